"""Differences between messages, in lines that a page shows."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deadletter.office.diff import Difference, Sign
from deadletter.server.console.bounds import shortened, weight

LARGEST: Final = 200_000  # bytes of HTML of all lines
_LINE: Final = 1_000
_OF_LINE: Final = 40  # bytes around the text of a line
_KINDS: Final = {Sign.SAME: "same", Sign.GONE: "gone", Sign.NEW: "new"}


class ChangedLine(Struct, frozen=True):
    """One line: its sign, the name of the sign, and its text."""

    sign: str
    kind: str
    text: str


class Changed(Struct, frozen=True, kw_only=True):
    """The lines that differ in one part of a message."""

    part: str
    lines: tuple[ChangedLine, ...]
    cut: bool


def changed_parts(found: Sequence[Difference], *, most: int = LARGEST) -> tuple[Changed, ...]:
    """Return differences as a page shows them, in at most `most` bytes of HTML."""
    parts = []
    for difference in found:
        lines = []
        for line in difference.lines:
            text = shortened(line.text, _LINE)
            most -= weight(text) + _OF_LINE
            if most < 0:
                break
            lines.append(ChangedLine(line.sign.value, _KINDS[line.sign], text))
        is_cut = difference.cut or len(lines) < len(difference.lines)
        parts.append(Changed(part=difference.part, lines=tuple(lines), cut=is_cut))
    return tuple(parts)
