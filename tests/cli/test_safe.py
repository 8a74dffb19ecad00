import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.text import clean, clean_json, clean_lines

HARMFUL = [
    "\x1b[31mred",
    "\x1b]52;c;Y3VybA==\x07",
    "\x1b]8;;http://evil\x1b\\link",
    "a\rb",
    "a\x08b",
    "\x9b31m",
    "\x7f",
    "user\u202etxt.exe",
    "line\u2028two",
    "\u2066isolated\u2069",
    "\ufeff",
    "\u200b",
    "\ud800",
    "\U000e0041",
    "\x00",
]
ODD = {*range(0x20), *range(0x7F, 0xA0)} - {0x0A}


def is_harmless(text: str) -> bool:
    return (
        all(ord(c) not in ODD for c in text)
        and not any(c in text for c in "\u2028\u2029\u202e\u2066\u2069\ufeff\u200b")
        and text.encode() is not None
    )


@pytest.mark.parametrize("text", HARMFUL)
def test_terminal_control_characters_are_escaped(text: str) -> None:
    assert is_harmless(clean(text))
    assert is_harmless(clean_lines(text))
    assert "\\" in clean(text)


def test_plain_text_stays_as_it_is() -> None:
    text = "Grüße, 東京 — 100 % 👍 [bold]x[/bold] {0.__class__} %s"

    assert clean(text) == text


def test_one_line_stays_one_line() -> None:
    assert clean("a\nb\r\nc\td") == "a\\nb\\r\\nc\\td"
    assert clean_lines("a\nb\tc") == "a\nb    c"


@given(st.text(st.characters()))
def test_nothing_harmful_ever_comes_out(text: str) -> None:
    assert is_harmless(clean(text))
    assert "\n" not in clean(text)
    assert is_harmless(clean_lines(text))


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_json_means_the_same_afterwards(text: str) -> None:
    document = json.dumps({"text": text}, ensure_ascii=False)

    cleaned = clean_json(document)

    assert json.loads(cleaned) == {"text": text}
    assert is_harmless(cleaned)
