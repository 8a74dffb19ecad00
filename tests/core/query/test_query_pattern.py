"""Wildcards: what they match, and that nothing makes them slow."""

import random
from fnmatch import fnmatchcase
from itertools import product
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.query.ast import Word
from deadletter.core.query.fields import fits, fold, literal, pattern, pieces
from deadletter.core.query.match import word_matches


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("", ("",)),
        ("abc", ("abc",)),
        ("*", ("", "")),
        ("a*b", ("a", "b")),
        ("a*", ("a", "")),
        (r"a\*b", ("a*b",)),
        (r"a\\*", ("a\\", "")),
        ("odd\\", ("odd\\",)),
    ],
)
def test_a_pattern_comes_apart_at_its_stars(written: str, parts: tuple[str]) -> None:
    assert pieces(written) == parts


@given(st.lists(st.text(alphabet="ab*\\", max_size=3), min_size=1, max_size=5))
def test_a_pattern_put_together_matches_what_its_pieces_match(parts: list[str]) -> None:
    text = "a".join(parts)

    assert fits(pieces(pattern(parts)), text) == fits(parts, text)


@given(st.text())
def test_a_literal_matches_itself(text: str) -> None:
    assert pieces(literal(text)) == (text,)


def all_over(alphabet: str, longest: int) -> list[str]:
    return [
        "".join(letters)
        for length in range(longest + 1)
        for letters in product(alphabet, repeat=length)
    ]


def test_stars_mean_what_they_mean_everywhere() -> None:
    texts = all_over("ab", 6)

    wrong = [
        (stars, text)
        for stars in all_over("ab*", 5)
        for text in texts
        if fits(pieces(stars), text) != fnmatchcase(text, stars)
    ]

    assert wrong == []


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_folding_ascii_is_making_it_small(text: str) -> None:
    assert fold(text) == text.lower()


def test_folding_leaves_other_letters_alone() -> None:
    assert fold("ÄRGER İ") == "Ärger İ"


def test_hostile_patterns_are_fast() -> None:
    chance = random.Random(7)
    error_text, body = "a" * 8192, b"a" * 1_000_000
    slowest = 0.0

    for _ in range(200):
        part = "a" * chance.randint(0, 8) + chance.choice(["", "b", "?", "("])
        hostile = f"{part}*" * chance.randint(1, 2000 // (len(part) + 1)) + "b"
        start = process_time()
        assert not word_matches(Word(hostile), error_text, body)
        slowest = max(slowest, process_time() - start)

    assert slowest < 0.2  # of processor time; it takes 0.006


def fibonacci(length: int) -> str:
    one, two = "a", "ab"
    while len(two) < length:
        one, two = two, two + one
    return two[:length]


@pytest.mark.parametrize("length", [1, 2, 5, 8, 50, 99, 100, 1000, 1900])
@pytest.mark.parametrize("body", ["a" * 1_000_000, fibonacci(1_000_000)])
def test_texts_that_nearly_fit_everywhere_are_fast(body: str, length: int) -> None:
    text, raw = body[:8192], body.encode()
    slowest = 0.0

    for near in ("a" * length, fibonacci(length)):
        half = length // 2
        for part in (f"{near}(", f"({near}", f"{near[:half]}({near[half:]}"):
            for stars in (part, f"{'a*' * 40}{part}", f"{part}*a"):
                start = process_time()
                assert not word_matches(Word(stars), text, raw)
                slowest = max(slowest, process_time() - start)

    assert slowest < 0.2
