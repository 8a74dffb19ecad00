import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.text import hint_of

WORDS = st.lists(st.text("ab.=", min_size=1, max_size=20), max_size=8)


@given(WORDS, st.text("ab.=", max_size=60))
def test_a_text_without_the_hint_holds_none_of_the_words(words: list[str], text: str) -> None:
    if not hint_of(words).search(text):
        assert not any(word in text for word in words)


@given(WORDS)
def test_every_word_is_hinted_at(words: list[str]) -> None:
    hint = hint_of(words)

    assert all(hint.search(f"x{word}x") for word in words)


@pytest.mark.parametrize("text", ["", "a", "pass", "no word at all"])
def test_without_words_there_is_nothing_to_find(text: str) -> None:
    assert not hint_of([]).search(text)


@pytest.mark.parametrize("text", ["", "tok", "spend it", "ke y"])
def test_words_are_not_taken_for_patterns(text: str) -> None:
    assert not hint_of(["token", "s.end", "k?ey", "pass"]).search(text)


def test_a_word_of_any_length_will_do() -> None:
    word = "x" * 100_000

    assert hint_of([word]).search(word)
