"""
Search, newest death first, at a bounded cost.

The server narrows down by what letters say of themselves, and `core.query` judges
what that finds: heads alone where they are enough, contents where it must.
"""

from datetime import datetime
from typing import Final

from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.errors import ConfigError
from deadletter.core.letter import LetterHead
from deadletter.core.paging import cursor
from deadletter.core.paging import place as cursor_place
from deadletter.core.query import All, Node, matcher, needs_contents, split
from deadletter.ports.letters import Names, Page

from .letters_documents import HEAD, OPENED, opened, unopened
from .schema import Collections, Document
from .search_terms import filtered
from .search_window import Window, bottom, narrowest, size, windows
from .times import place, placed

LOOK: Final = 10_000  # letters looked at for one page
OPEN: Final = 500  # of these, letters whose contents are looked at
_AT_ONCE: Final = 100  # letters opened at once
_LONGEST: Final = 30_000  # milliseconds the server may take for one answer


class Asked(Struct, frozen=True):
    """A search for a page."""

    query: Node
    limit: int
    after: str | None
    now: datetime

    @property
    def start(self) -> bytes | None:
        """The place to go on from."""
        if self.limit < 1:
            raise ConfigError(f"a page of {self.limit} letters: ask for at least one")
        return None if self.after is None else place(*cursor_place(self.after))


class _Found(Struct, frozen=True):
    """Letters with their places, where reading was left off, and within what."""

    hits: list[tuple[bytes, LetterHead]]
    left_off: bytes | None  # None: that was all of it
    window: Window


async def find(there: Collections, session: AsyncClientSession, asked: Asked) -> Page:
    """One page of what a search finds."""
    start = asked.start
    found = await _found(there, session, asked)
    seen = len(found.hits)
    if not found.window.exact or needs_contents(asked.query):
        seen = await size(
            there, session, found.window, start=start, end=found.left_off, most=LOOK
        )
    heads = tuple(head for _, head in found.hits)
    return Page(heads, after=_after(found.left_off), looked_at=seen)


async def find_ids(
    there: Collections, session: AsyncClientSession, asked: Asked
) -> Names:
    """The ids one page would show; where an index knows them, little else is read."""
    start = asked.start
    by_head, _ = split(asked.query)
    window, *others = windows(by_head, asked.now)
    if others or not window.exact or needs_contents(asked.query):
        found = await _found(there, session, asked)
        ids = tuple(head.id for _, head in found.hits)
        return Names(ids, _after(found.left_off))
    most = min(asked.limit, LOOK)
    wanted = window.letters(start=start)
    letters = there.letters.find(wanted, {"place": 1}, session=session)
    letters = letters.hint(window.index).sort("place", -1).limit(most + 1)
    rows = await letters.to_list()
    ids = tuple(one["_id"] for one in rows[:most])
    return Names(ids, _after(rows[most - 1]["place"]) if len(rows) > most else None)


async def _found(
    there: Collections, session: AsyncClientSession, asked: Asked
) -> _Found:
    start, limit = asked.start, asked.limit
    by_head, _ = split(asked.query)
    candidates = windows(by_head, asked.now)
    window = await narrowest(there, session, candidates, start=start, most=LOOK)
    narrow: Document = {}
    end = None
    if not window.exact:  # else what is read is all that is looked at
        narrow = filtered(All(by_head), asked.now)
        end = await bottom(there, session, window, start=start, depth=LOOK)
    opens = needs_contents(asked.query)
    most = OPEN if opens else LOOK
    letters = there.letters.find(
        {"$and": [window.letters(start=start, end=end), narrow]},
        OPENED if opens else HEAD,
        session=session,
        hint=window.index,
        limit=most,
        batch_size=_AT_ONCE if opens else min(limit + 1, most),
        max_time_ms=_LONGEST,
        allow_disk_use=True,
    ).sort("place", -1)
    fulfils = matcher(asked.query, now=asked.now)
    hits: list[tuple[bytes, LetterHead]] = []
    read, at = 0, start
    async with letters:
        async for document in letters:
            read, at = read + 1, document["place"]
            letter = opened(document) if opens else unopened(document)
            if fulfils(letter):
                hits.append((document["place"], letter.head))
            if len(hits) > limit:  # one more than asked for: there is a next page
                return _Found(hits[:-1], hits[-2][0], window)
    return _Found(hits, at if read == most else end, window)


def _after(left_off: bytes | None) -> str | None:
    return None if left_off is None else cursor(*placed(left_off))
