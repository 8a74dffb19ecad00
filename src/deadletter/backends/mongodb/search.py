"""
Search, newest death first, at a bounded cost.

The server narrows down by what letters say of themselves, and `core.query` judges
what that finds: heads alone where they are enough, contents where it must.
"""

from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.errors import ConfigError
from deadletter.core.paging import cursor
from deadletter.core.paging import place as cursor_place
from deadletter.core.query import (
    All,
    Meter,
    Node,
    is_costly,
    needs_contents,
    split,
)
from deadletter.core.query.search_step import (
    Bottom,
    Contents,
    Heads,
    Sizes,
    Wanted,
    search_step,
)
from deadletter.ports.letters import Names, Page
from deadletter.ports.search_steps import run_step

from .letters_documents import HEAD, OPENED, opened, unopened
from .schema import Collections, Document
from .search_terms import filtered
from .search_window import Window, bottom, narrowest, size, windows
from .times import place, placed

_LONGEST: Final = 5_000  # milliseconds the server may take for one answer
_SIZE: Final = {
    "place": 1,
    "size": {"$add": [{"$binarySize": "$body"}, {"$binarySize": "$rest"}]},
}


class Asked(Struct, frozen=True):
    """A search for a page."""

    query: Node
    limit: int
    after: str | None
    now: datetime
    meter: Meter

    @property
    def start(self) -> bytes | None:
        """The place to go on from."""
        if self.limit < 1:
            raise ConfigError(f"a page of {self.limit} letters: ask for at least one")
        return None if self.after is None else place(*cursor_place(self.after))


class Reading(Struct, frozen=True):
    """How a step reads: a stretch of an index, and what is true of all it wants."""

    there: Collections
    session: AsyncClientSession
    window: Window
    narrow: Document

    async def read(self, wanted: Wanted[bytes]) -> Any:
        """Read what the search step asks for."""
        match wanted:
            case Bottom(after, depth):
                return await bottom(
                    self.there, self.session, self.window, start=after, depth=depth
                )
            case Heads(after, end, most):
                found = await self._documents(HEAD, after, end, most)
                return [(one["place"], unopened(one)) for one in found]
            case Sizes(after, end, most):
                found = await self._documents(_SIZE, after, end, most)
                return [(one["place"], one["size"]) for one in found]
            case Contents(places):
                found = await self.there.letters.find(
                    {"place": {"$in": list(places)}},
                    OPENED,
                    session=self.session,
                    max_time_ms=_LONGEST,
                ).to_list()
                return [(one["place"], opened(one)) for one in found]

    async def _documents(
        self, columns: Document, after: bytes | None, end: bytes | None, most: int
    ) -> list[Document]:
        stretch = self.window.letters(start=after, end=end)
        found = self.there.letters.find(
            {"$and": [stretch, self.narrow]},
            columns,
            session=self.session,
            hint=self.window.index,
            limit=most,
            max_time_ms=_LONGEST,
            allow_disk_use=True,
        )
        return await found.sort("place", -1).to_list()


async def find(there: Collections, session: AsyncClientSession, asked: Asked) -> Page:
    """One page of what a search finds."""
    start, query, meter = asked.start, asked.query, asked.meter
    by_head, _ = split(query)
    most = meter.budget.letters
    window = await narrowest(
        there, session, windows(by_head, asked.now), start=start, most=most
    )
    narrow: Document = {} if window.exact else filtered(All(by_head), asked.now)
    step = search_step(
        query,
        limit=asked.limit,
        start=start,
        exact=window.exact,
        now=asked.now,
        meter=meter,
    )
    reading = Reading(there, session, window, narrow)
    found = await run_step(step, reading.read, meter, is_costly=is_costly(query))
    heads = tuple(head for _, head in found.hits)
    looked_at = len(heads)
    if not window.exact or needs_contents(query):
        looked_at = await size(
            there, session, window, start=start, end=found.last, most=most
        )
    if found.last is None:
        return Page(heads, looked_at=looked_at)
    back_to, _ = placed(found.last)
    return Page(heads, _after(found.last), looked_at, back_to)


async def find_ids(
    there: Collections, session: AsyncClientSession, asked: Asked
) -> Names:
    """The ids one page would show; where an index knows them, little else is read."""
    start = asked.start
    by_head, _ = split(asked.query)
    window, *others = windows(by_head, asked.now)
    if others or not window.exact or needs_contents(asked.query):
        page = await find(there, session, asked)
        return Names(tuple(head.id for head in page.heads), page.after)
    most = min(asked.limit, asked.meter.budget.letters)
    wanted = window.letters(start=start)
    letters = there.letters.find(wanted, {"place": 1}, session=session)
    letters = letters.hint(window.index).sort("place", -1).limit(most + 1)
    rows = await letters.to_list()
    ids = tuple(one["_id"] for one in rows[:most])
    return Names(ids, _after(rows[most - 1]["place"]) if len(rows) > most else None)


def _after(left_off: bytes) -> str:
    return cursor(*placed(left_off))
