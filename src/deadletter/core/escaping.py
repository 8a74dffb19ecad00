"""
Odd text in a form that others can hold or show.

Some databases refuse NUL, and lone surrogates are no text to anybody; both come in
from foreign brokers. `stored` and `shown` keep them exactly, after a character that
no text should have. `spelled` is for readers: half a character becomes `\\udc80`, the
same six characters that find it in a search.
"""

import re
from collections.abc import Callable
from typing import Any, Final, overload

MARK: Final = "\ufdd0"
"""Whatever text has it was escaped."""

_ODD: Final = re.compile(f"[\0\ud800-\udfff{MARK}]")
_ESCAPED: Final = re.compile(f"{MARK}([0-9a-f]{{4}})")
_HALF: Final = re.compile("[\ud800-\udfff]")


@overload
def stored(text: str) -> str: ...
@overload
def stored(text: str | None) -> str | None: ...
def stored(text: str | None) -> str | None:
    """A text as it can be stored; two that differ still do."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return _ODD.sub(_escape, text)


@overload
def shown(text: str) -> str: ...
@overload
def shown(text: str | None) -> str | None: ...
def shown(text: str | None) -> str | None:
    """A stored text as what it was."""
    if text is None or text.isascii() or MARK not in text:
        return text
    return _ESCAPED.sub(_meant, text)


def spelled(text: str) -> str:
    """Return the text with every lone surrogate spelled out."""
    return text if text.isascii() else _HALF.sub(_in_letters, text)


def each_text(change: Callable[[str], str], value: Any) -> Any:
    """Return a value of plain types with each text in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            each_text(change, key): each_text(change, inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [each_text(change, inner) for inner in value]
    return value


def _in_letters(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _escape(found: re.Match[str]) -> str:
    return f"{MARK}{ord(found[0]):04x}"


def _meant(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))
