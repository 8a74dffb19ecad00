"""Searching in bodies and headers, which are hostile."""

import json
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.generate import NOW, bodies
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Headers, Message
from deadletter.core.query import (
    Term,
    Word,
    body_matches,
    body_value,
    header_matches,
    matches,
    parse,
    word_matches,
)
from deadletter.core.query.match import decoded


def letter_with(body: bytes) -> DeadLetter:
    return DeadLetter(
        head=LetterHead(id="x", source="orders", message_id="m", first_failed_at=NOW, dead_at=NOW),
        message=Message(id="m", body=body, sent_at=NOW),
    )


def term(text: str) -> Term:
    found = parse(text)
    assert isinstance(found, Term)
    return found


@pytest.mark.parametrize("value", ["42", "42.0"])
@pytest.mark.parametrize("document", [42, 42.0, "42", "42.0", [1, 42], ["x", "42"]])
def test_a_number_is_found_however_it_is_written(value: str, document: object) -> None:
    body = json.dumps({"n": document}).encode()

    assert body_matches(term(f"body.n:{value}"), body)
    assert body_matches(term(f"body.n:[1000,{value}]"), body)
    assert not body_matches(term("body.n:43"), body)


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("body.n:>41", 42),
        ("body.n:>=42", 42),
        ("body.n:<42.5", 42),
        ("body.n:<=42", "42"),
        ("body.n:>-1", 0),
        ("body.n:>9007199254740992", 9007199254740993),
        ("body.n:4*", 42),
        ("body.n:true", True),
        ("body.n:true", "true"),
        ("body.n:false", False),
        ("body.n:null", None),
        ("body.n:*", "anything"),
        ('body.n:""', ""),
        ("body.n:007", "007"),
        ("body.n:urgent", ["low", "urgent"]),
        ("body.n.0:low", ["low", "urgent"]),
        ("body.n.0:x", {"0": "x"}),
    ],
)
def test_terms_are_found_in_bodies(text: str, document: object) -> None:
    assert body_matches(term(text), json.dumps({"n": document}).encode())


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("body.n:>42", 42),
        ("body.n:>1", "many"),
        ("body.n:>0", True),
        ("body.n:>0", None),
        ("body.n:1", True),
        ("body.n:0", False),
        ("body.n:7", "007"),
        ("body.n:URGENT", "urgent"),
        ("body.n:*", {}),
        ("body.n:*", []),
        ("body.n.1:*", ["only one"]),
        ("body.n.-1:*", ["only one"]),
        ("body.n.x:*", ["only one"]),
        ("body.n.\N{ARABIC-INDIC DIGIT ZERO}:*", ["only one"]),
        ("body.n.0:*", "text"),
        (f"body.n.{'9' * 30}:*", ["only one"]),
    ],
)
def test_terms_that_do_not_match_are_not_found(text: str, document: object) -> None:
    assert not body_matches(term(text), json.dumps({"n": document}).encode())


def test_a_body_that_is_a_list_or_a_text_is_searched_too() -> None:
    assert body_value(b"[[1, 2], 3]", ("0", "1")) == [2]
    assert body_value(b'"text"', ()) == ["text"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b'{"n": 42',
        b'{"n": 42}}',
        b"\xff\xfe",
        b'{"n": "\xff"}',
        b'{"n": 1e999}',
        b'{"n": ' + b"4" * 5000 + b"}",
        b"[" * 100_000,
        b'{"n":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"n": 42, "x": "' + b"x" * 1_000_000 + b'"}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_cannot_be_decoded_matches_nothing(body: bytes) -> None:
    assert body_value(body, ("n",)) == []
    assert not body_matches(term("body.n:*"), body)


def test_numbers_of_thousands_of_digits_are_only_numbers() -> None:
    body = b'{"n": ' + b"4" * 4000 + b"}"

    assert body_matches(term("body.n:>42"), body)
    assert body_matches(term("body.n:44*"), body)


@given(bodies(), st.lists(st.text(), max_size=3))
def test_no_body_and_no_path_raises(body: bytes, path: list[str]) -> None:
    assert isinstance(body_value(body, tuple(path)), list)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("header.tenant:eu", True),
        ("header.tenant:us", True),
        ("header.TENANT:eu", True),
        ("header.tenant:e*", True),
        ("header.tries:3", True),
        ("header.tries:3.0", True),
        ("header.tries:>2", True),
        ("header.odd:*\N{REPLACEMENT CHARACTER}*", True),
        ('header.empty:""', True),
        ("header.tenant:EU", False),
        ("header.tenant:>2", False),
        ("header.tries:>3", False),
        ("header.none:*", False),
    ],
)
def test_terms_are_found_in_headers(text: str, found: bool) -> None:
    headers: Headers = (
        ("tenant", b"eu"),
        ("Tenant", b"us"),
        ("tries", b"3"),
        ("odd", b"a\xffb"),
        ("empty", b""),
    )

    assert header_matches(term(text), headers) == found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("refused", True),
        ("REFUSED", True),
        ("con*used", True),
        ("in the body", True),
        ("THE b*y", True),
        ("größe", True),
        ("refused in", False),
        ("con*body", False),
        (r"the\*body", False),
        ("GRÖSSE", False),
    ],
)
def test_words_are_sought_in_the_error_text_or_the_body(word: str, found: bool) -> None:
    body = "\0In The Body: Größe".encode()

    assert word_matches(Word(word), "Connection REFUSED", body) == found


def test_a_word_behind_the_first_megabyte_is_not_sought() -> None:
    body = b"x" * 1_000_000 + b"late"

    assert not word_matches(Word("late"), "", body)


def test_a_hundred_terms_open_a_large_body_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def counted(body: bytes) -> object:
        opened.append(len(body))
        return decoded(body)

    monkeypatch.setattr("deadletter.core.query.match.decoded", counted)
    query = parse(" OR ".join(f"body.a{n}:1" for n in range(100)))

    large = b"[" + b"1," * 400_000 + b"1]"
    assert not matches(query, letter_with(large), now=NOW)
    assert opened == []  # it has none of these names

    names = b", ".join(b'"a%d"' % n for n in range(100))
    large = b"[[" + names + b"]," + b"1," * 400_000 + b"1]"
    assert not matches(query, letter_with(large), now=NOW)
    assert opened == [len(large)]


def test_a_name_is_found_however_it_is_written() -> None:
    escaped = b'{"\\u006frder": {"g\xc3\xb6": 1}}'

    assert matches(parse("body.order.gö:1"), letter_with(escaped), now=NOW)
    assert not matches(parse("body.order.ga:1"), letter_with(escaped), now=NOW)


def test_a_body_stays_closed_when_the_head_settles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.core.query.match.decoded", pytest.fail)

    assert not matches(parse("body.a:1 is:closed"), letter_with(b"{}"), now=NOW)
    assert matches(parse("body.a:1 OR is:pending"), letter_with(b"{}"), now=NOW)


@pytest.mark.parametrize("word", ["a*", "aaaaaaab", "a*b*", "*"])
def test_a_hundred_words_in_a_large_body_take_their_time_but_not_more(word: str) -> None:
    query = parse(" OR ".join([f"{word}zz"] * 100))
    letter = letter_with(b"a" * 1_000_000)

    start = process_time()
    assert not matches(query, letter, now=NOW)

    assert process_time() - start < 2.0
