r"""
Text with wildcards, matched in linear time.

In a pattern `*` stands for any text, also none; `\*` is a star and `\\` a
backslash. Nothing here is ever a regular expression, and nothing backtracks.
"""

from collections.abc import Iterable, Sequence
from typing import AnyStr, Final, TypeAlias

Pieces: TypeAlias = tuple[str, ...]
"""The literal texts around the stars of a pattern: one when it has no star."""

_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def pieces(pattern: str) -> Pieces:
    """Take a pattern apart: `a*b` is `("a", "b")`, `a*` is `("a", "")`."""
    if "*" not in pattern and "\\" not in pattern:
        return (pattern,)
    found: list[str] = []
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "*":
            found.append("".join(literal))
            literal.clear()
        elif character == "\\":
            literal.append(next(characters, "\\"))
        else:
            literal.append(character)
    return (*found, "".join(literal))


def pattern(parts: Iterable[str]) -> str:
    """Put a pattern together from its pieces; stars in a row become one."""
    first, *rest = map(literal, parts)
    if not rest:
        return first
    middle = [part for part in rest[:-1] if part]
    return "*".join([first, *middle, rest[-1]])


def literal(text: str) -> str:
    """The pattern that matches this text and no other."""
    return text.replace("\\", "\\\\").replace("*", "\\*")


def fold(text: str) -> str:
    """
    The text with A to Z made small, and nothing else changed.

    Every database can do exactly this, so that all of them agree with us.
    """
    return text.lower() if text.isascii() else text.translate(_LOWER)


def fits(parts: Sequence[AnyStr], text: AnyStr) -> bool:
    """Whether the whole text fits a pattern's pieces."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return text == first
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    # The leftmost place for each piece leaves the most room for the next.
    for part in parts[1:-1]:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
