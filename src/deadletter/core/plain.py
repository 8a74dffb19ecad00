"""
Text of others, fit to be stored.

Controls would act on a terminal, halves of surrogate pairs cannot be encoded, NUL
is refused by databases, and direction marks make a line say something else than
it shows. They are spelled out; everything else stays as it is.
"""

import re
from typing import Final

_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def plain(text: str) -> str:
    """The text with what is unfit spelled out; tabs and newlines stay."""
    return text if text.isprintable() else _UNFIT.sub(_spelled, text)


def plain_line(text: str) -> str:
    """The same on one line."""
    return plain(text).replace("\n", "\\n")


def is_word(text: str) -> bool:
    """Whether it is printable ASCII without spaces, as a secret in a header is."""
    return text.isascii() and text.isprintable() and " " not in text


def cut(text: str, limit: int) -> str:
    """The text, or its beginning with a mark where the rest is missing."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
