"""The letters of a search as a CSV sheet, to download."""

import io
from collections.abc import AsyncIterator, Sequence
from typing import Final

from deadletter.core.letter import LetterHead
from deadletter.core.query import Node
from deadletter.office.exports import write_sheet
from deadletter.server.search import MOST, Searching

LARGEST: Final = 10_000  # letters of a sheet: the command writes any number


async def sheet_of(searching: Searching, query: Node) -> bytes:
    """Return the newest letters of a search as CSV, up to `LARGEST`."""
    out = io.StringIO()
    await write_sheet(_pages(searching, query), out)
    return out.getvalue().encode("utf-8", "replace")


async def _pages(searching: Searching, query: Node) -> AsyncIterator[Sequence[LetterHead]]:
    after: str | None = None
    left = LARGEST
    while left > 0:
        page = await searching.search(query, limit=min(MOST, left), after=after)
        yield page.heads
        left -= len(page.heads)
        after = page.after
        if after is None or page.letters is not None:
            return
