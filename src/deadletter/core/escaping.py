"""
Text as a database can hold it, and back.

Some refuse NUL, and lone surrogates are no text to any; both come in from foreign
brokers. They are written after a character that no text should have.
"""

import re
from typing import Final, overload

MARK: Final = "\ufdd0"
"""Whatever text has it was escaped."""

_ODD: Final = re.compile(f"[\0\ud800-\udfff{MARK}]")
_ESCAPED: Final = re.compile(f"{MARK}(....)", re.DOTALL)


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


def _escape(found: re.Match[str]) -> str:
    return f"{MARK}{ord(found[0]):04x}"


def _meant(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))
