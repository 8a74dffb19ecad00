"""A text that matches has every trigram that is asked for."""

from hypothesis import given

from deadletter.core.letter import DeadLetter
from deadletter.core.query import Node, matches, parse, split
from deadletter.core.query.trigrams import text_trigrams, trigrams
from deadletter.testing.generate import NOW, letters, queries


def test_trigrams_are_small_and_told_once() -> None:
    assert trigrams("AbcABC") == ["abc", "bca", "cab"]
    assert trigrams("ab") == []


def test_every_value_of_a_term_is_an_alternative() -> None:
    assert text_trigrams([parse("text:[Refused,gone]")]) == [
        ["ref", "efu", "fus", "use", "sed"],
        ["gon", "one"],
    ]


def test_the_term_with_the_fewest_alternatives_tells() -> None:
    asked = [parse("text:[one,two]"), parse("text:three"), parse("is:open")]

    assert text_trigrams(asked) == [["thr", "hre", "ree"]]


def test_short_texts_negations_and_other_fields_tell_nothing() -> None:
    for query in ("text:ab", "text:[refused,ab]", "!text:refused", "code:refused"):
        assert text_trigrams([parse(query)]) is None


def test_long_texts_are_told_by_some_of_their_trigrams() -> None:
    (found,) = text_trigrams([parse("text:" + "abcdefghij" * 20 + "xyz")]) or [[]]

    assert 0 < len(found) <= 16


@given(letter=letters(), query=queries())
def test_a_letter_that_matches_has_them(letter: DeadLetter, query: Node) -> None:
    by_head, _ = split(query)
    alternatives = text_trigrams(by_head)
    if alternatives is not None and matches(query, letter, now=NOW):
        there = set(trigrams(letter.head.error_text))
        assert any(there.issuperset(grams) for grams in alternatives)
