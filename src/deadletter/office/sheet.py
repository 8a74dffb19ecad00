"""Letters as a table for a spreadsheet."""

import csv
from collections.abc import AsyncIterable, Sequence
from typing import Final, TextIO

from deadletter.core.letter import LetterHead
from deadletter.core.text import spelled

COLUMNS: Final = (
    *("id", "state", "source", "partition", "message_id", "key", "business_key"),
    *("reason", "reason_text", "trouble", "code", "error_type", "error_text"),
    *("fingerprint", "attempts", "replays", "first_failed_at", "dead_at"),
    *("consumer", "version", "trace_id", "size"),
)
# A cell that begins with one of these is a formula to a spreadsheet; the wide
# ones are to some in Asian locales.
_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 -- exactly these


async def write_sheet(pages: AsyncIterable[Sequence[LetterHead]], out: TextIO) -> int:
    """
    Write the heads of letters as CSV; how many there were.

    Text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    table = csv.writer(out)
    table.writerow(COLUMNS)
    written = 0
    async for heads in pages:
        table.writerows([_cell(getattr(head, name)) for name in COLUMNS] for head in heads)
        written += len(heads)
    return written


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    text = value.isoformat() if hasattr(value, "isoformat") else spelled(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
