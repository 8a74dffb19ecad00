"""What cannot be typed: where the error points, and what it says."""

import pytest

from deadletter.core.errors import QueryError
from deadletter.core.message import LONGEST_TEXT
from deadletter.core.query import parse, show
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.parse import MAX_TEXT


def refused(text: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("a eror:x", 2, 'did you mean "error"?'),
        ("mailbx:x", 0, 'did you mean "mailbox"?'),
        ("http://x", 0, "put it in quotes"),
        ("key.x:a", 0, 'no field "key.x"'),
        (f"{'x' * 900}:a", 0, "no field"),
        ("is:foo", 3, "pending, reviewed, replaying, replayed, closed"),
        ("is:[open,foo]", 9, "unreviewed"),
        ("is:pend*", 3, "takes no *"),
        ("has:note", 4, "reply_to"),
        ("reason:bad", 7, "attempts-exhausted"),
        ("trouble:bad", 8, "worker-lost"),
        ("category:bad", 9, "NON_RETRYABLE"),
        ("attempts:>x", 10, "whole number"),
        ("attempts:-1", 9, "whole number"),
        ("attempts:\N{ARABIC-INDIC DIGIT THREE}", 9, "whole number"),
        (f"size:{'9' * 19}", 5, "whole number"),
        ("attempts:3*", 9, "takes no *"),
        ("attempts:>[1,2]", 13, "not a list"),
        ("age:24h", 0, "needs > or <"),
        ("age:>24", 5, "s, m, h, d or w"),
        ("age:>99999999w", 5, "100 years"),
        ("age:>999999999w", 5, "100 years"),
        ("since:>7d", 0, "takes no >"),
        ("since:[1d,2d]", 10, "not a list"),
        ("since:soon", 6, "a duration like 7d"),
        ("dead:7d", 5, "2026-11-01T12:00"),
        ("dead:2026-02-31", 5, "not a time"),
        ("dead:2026-11-01T25:00", 5, "not a time"),
        ("dead:0001-01-01T00:00+05:00", 5, "not a time"),
        ("dead:20261101", 5, "not a time"),
        ("key:>a", 0, "takes no >"),
        ("error:>a", 0, "error:TimeoutError"),
        ("body.x:>abc", 8, "body.amount:>100"),
        ("header.x:>1e5", 10, "numbers"),
        ("body:x", 0, "where to look"),
        ("header:x", 0, "header.tenant:eu"),
        ("body.:x", 5, "name is missing"),
        ("body..a:x", 5, "name is missing"),
        (":x", 0, "name is missing"),
        ("key:", 4, "no value"),
        ("key: a", 4, "no value"),
        ("(key:)", 5, "no value"),
        ("TimeoutError: refused", 13, "in quotes"),
        ("key:!a", 4, "before the field"),
        ("key:a(b)", 5, "in quotes"),
        ('key:a"b"', 5, "in quotes"),
        ("foo(bar)", 3, "in quotes"),
        ("key:[a", 4, "close it with ]"),
        ("key:[a,", 4, "close it with ]"),
        ("key:[a b]", 7, "comma"),
        ("key:[,a]", 5, "value is missing"),
        ("key:[a,]", 7, "value is missing"),
        ("key:[]", 5, "value is missing"),
        ("key:[a]b", 7, "space is missing"),
        ("key:[a(b]", 6, "in quotes"),
        ('a "b', 2, "close it with"),
        ('"a"b', 3, "space is missing"),
        ('""', 0, "nothing between"),
        ("a\\", 1, "two of them"),
        (r"C:\temp", 2, "two of them"),
        (r"a\temp", 1, "two of them"),
        ("(a", 0, "never closed"),
        ("a)", 1, "never opened"),
        ("()", 1, "nothing before"),
        ("a OR", 4, "missing at the end"),
        ("a AND", 5, "missing at the end"),
        ("!", 1, "missing at the end"),
        ("OR a", 0, 'write "OR"'),
        ("a OR OR b", 5, 'write "OR"'),
        ("a AND OR b", 6, 'write "OR"'),
        ("NOT a", 0, "write ! before it"),
        ("a\0b", 1, "character 2"),
        ("ab\ud800", 2, "character 3"),
    ],
)
def test_an_error_points_at_the_token_and_says_what_to_do(text: str, at: int, says: str) -> None:
    error = refused(text)

    assert (error.at, says in error.text) == (at, True), error.text


def test_an_error_shows_where_it_points() -> None:
    error = refused("a eror:x")

    assert str(error).endswith("\n  a eror:x\n    ^")


def test_an_error_about_odd_characters_can_be_printed() -> None:
    assert str(refused("ab\ud800")).encode()


def test_a_text_has_a_greatest_length() -> None:
    assert parse("x" * MAX_TEXT)
    assert refused("x" * (MAX_TEXT + 1)).at == MAX_TEXT


def test_characters_that_cannot_be_typed_are_written_as_codes() -> None:
    for character in ("\0", "\udc80", "*", "\\", '"', "é"):
        text = f'message:"a\\u{ord(character):04x}b"'
        wanted = Term("message", Op.IS, (literal(f"a{character}b"),))
        assert parse(text) == wanted
        assert parse(show(wanted)) == wanted
    assert r"write it as \udc80" in refused("message:a\udc80").text
    for text in (r"\u", r"\u12", r"\u12g4", r"\U0001f4ee"):
        assert "write two of them" in refused(f"message:{text}").text


def test_the_longest_id_that_can_be_sent_can_be_searched_for() -> None:
    longest = "\0" * LONGEST_TEXT

    assert parse(show(Term("message", Op.IS, (longest,)))) == Term("message", Op.IS, (longest,))


def test_a_search_has_at_most_100_terms() -> None:
    assert parse("a " * 100)
    assert refused("a " * 101).at == 200


def test_the_values_of_a_list_are_counted_as_terms() -> None:
    assert parse(f"key:[{','.join('a' * 100)}]")
    assert "100 terms" in refused(f"key:[{','.join('a' * 101)}]").text


def test_a_search_is_at_most_20_deep() -> None:
    assert parse("(" * 20 + "a" + ")" * 20)
    assert parse("!" * 20 + "a")
    assert refused("(" * 21 + "a" + ")" * 21).at == 20
    assert refused("!(" * 500 + "a").at == 20
