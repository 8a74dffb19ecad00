"""A text that matches has every trigram that is asked for."""

from hypothesis import given
from hypothesis import strategies as st

from contracts.generate import NOW, letters, queries
from deadletter.core.letter import DeadLetter
from deadletter.core.query import Node, matches, parse
from deadletter.core.query.filters import Hint, body_text, hints, trigrams


def test_trigrams_are_small_and_told_once() -> None:
    assert trigrams("AbcABC") == ["abc", "bca", "cab"]
    assert trigrams("ab") == []


def test_every_value_of_a_term_is_an_alternative() -> None:
    assert hints(parse("text:[Refused,gone]")) == [
        Hint(("ref", "efu", "fus", "use", "sed")),
        Hint(("gon", "one")),
    ]


def test_every_term_of_an_or_is_an_alternative() -> None:
    expected = [Hint(("one",)), Hint(("two",))]

    assert hints(parse("text:one OR text:two")) == expected
    assert hints(parse("is:open (text:one OR (text:two is:pending))")) == expected


def test_words_are_in_the_error_text_or_in_the_body() -> None:
    assert hints(parse("one"), bodies=True) == [Hint(("one",)), Hint(("one",), in_body=True)]
    assert hints(parse("one")) is None  # bodies are not indexed


def test_the_term_with_the_fewest_alternatives_tells() -> None:
    asked = parse("text:[one,two] text:three is:open")

    assert hints(asked) == [Hint(("thr", "hre", "ree"))]


def test_short_texts_negations_and_other_fields_tell_nothing() -> None:
    for query in ("text:ab", "text:[refused,ab]", "!text:refused", "code:refused"):
        assert hints(parse(query)) is None
    for query in ("text:refused OR is:open", "text:refused OR ab", "\\ud800abc"):
        assert hints(parse(query), bodies=True) is None


def test_long_texts_are_told_by_some_of_their_trigrams() -> None:
    (found,) = hints(parse("text:" + "abcdefghij" * 20 + "xyz")) or [Hint(())]

    assert 0 < len(found.grams) <= 16


@given(letter=letters(), query=queries())
def test_a_letter_that_matches_has_them(letter: DeadLetter, query: Node) -> None:
    told = hints(query, bodies=True)
    if told is not None and matches(query, letter, now=NOW):
        in_text = set(trigrams(letter.head.error_text))
        in_body = set(trigrams(body_text(letter.message.body)))
        assert any((in_body if hint.in_body else in_text).issuperset(hint.grams) for hint in told)


@given(
    word=st.text(st.characters(exclude_categories=["Cs"]), min_size=3),
    before=st.binary(max_size=5),
    behind=st.binary(max_size=5),
)
def test_a_word_is_in_the_text_of_any_bytes_that_hold_it(
    word: str, before: bytes, behind: bytes
) -> None:
    body = before + word.encode().upper() + behind

    assert set(trigrams(body_text(body))).issuperset(trigrams(word))
