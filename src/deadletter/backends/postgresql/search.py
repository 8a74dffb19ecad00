"""
Search, newest death first, at a bounded cost.

SQL narrows down by columns, and `core.query` judges what that finds: heads alone
where they are enough, whole letters where the search is about contents.
"""

from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.escaping import shown
from deadletter.core.paging import cursor, place
from deadletter.core.query import (
    All,
    Meter,
    Node,
    is_costly,
    needs_contents,
    split,
)
from deadletter.core.query.search_step import (
    CUT,
    Bottom,
    Contents,
    Heads,
    Sizes,
    Wanted,
    search_step,
)
from deadletter.ports.letters import Names, Page
from deadletter.ports.search_steps import run_step

from .letters_rows import HEAD, opened, unopened
from .pool import Connection
from .search_terms import Sql, numbered, sql
from .search_window import (
    Place,
    Window,
    bottom,
    narrowest,
    size,
    text_window,
    windows,
)

_JOIN: Final = """
JOIN deadletter.letters l ON l.seq = w.seq
JOIN deadletter.letter_marks m ON m.letter = w.seq
"""
_NEWEST_FIRST: Final = "ORDER BY w.dead_at DESC, w.seq DESC LIMIT ?"
_SIZE: Final = "octet_length(c.body) + octet_length(c.rest)"
_OPENED: Final = f"""
SELECT {HEAD}, c.rest, substr(c.body, 1, {CUT})
FROM unnest($1::bigint[]) AS w (seq) {_JOIN}
JOIN deadletter.letter_contents c ON c.letter = w.seq
"""  # noqa: S608 -- made of constants
_ANY: Final[Sql] = ("true", [])


class Reading(Struct, frozen=True):
    """How a step reads: a stretch of an index, and what is true of all it wants."""

    connection: Connection
    window: Window
    narrow: Sql

    async def read(self, wanted: Wanted[Place]) -> Any:
        """Read what the search step asks for."""
        match wanted:
            case Bottom(after, depth):
                return await bottom(
                    self.connection, self.window, start=after, depth=depth
                )
            case Heads(after, end, most):
                rows = await self._rows(HEAD, "", after, end, most)
                return [((row[17], row[0]), unopened(row)) for row in rows]
            case Sizes(after, end, most):
                contents = "JOIN deadletter.letter_contents c ON c.letter = w.seq"
                columns = f"w.dead_at, w.seq, {_SIZE}"
                rows = await self._rows(columns, contents, after, end, most)
                return [((dead_at, seq), size) for dead_at, seq, size in rows]
            case Contents(places):
                rows = await self.connection.fetch(_OPENED, [seq for _, seq in places])
                return [((row[17], row[0]), opened(row)) for row in rows]

    async def _rows(
        self,
        columns: str,
        join: str,
        after: Place | None,
        end: Place | None,
        most: int,
    ) -> list[Any]:
        places, values = self.window.places(start=after, end=end)
        where, more = self.narrow
        rows: list[Any] = await self.connection.fetch(
            numbered(
                f"SELECT {columns} FROM ({places}) w {_JOIN} {join}"  # noqa: S608 -- names are ours, values are bound
                f" WHERE {where} {_NEWEST_FIRST}"
            ),
            *values,
            *more,
            most,
        )
        return rows


async def find(
    connection: Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Page:
    """One page of what a search finds."""
    _check(limit)
    start = None if after is None else place(after)
    by_head, _ = split(query)
    candidates = windows(by_head, now)
    if (texts := await text_window(connection, query)) is not None:
        candidates.append(texts)
    most = meter.budget.letters
    window = await narrowest(connection, candidates, start=start, most=most)
    narrow = _ANY if window.exact else sql(All(by_head), now)
    step = search_step(
        query, limit=limit, start=start, exact=window.exact, now=now, meter=meter
    )
    reading = Reading(connection, window, narrow)
    found = await run_step(step, reading.read, meter, is_costly=is_costly(query))
    heads = tuple(head for _, head in found.hits)
    if window.exact and not needs_contents(query):
        looked_at = len(heads)
    else:
        looked_at = await size(
            connection, window, start=start, end=found.last, most=most
        )
    if found.last is None:
        return Page(heads, looked_at=looked_at)
    return Page(heads, cursor(*found.last), looked_at, found.last[0])


async def find_ids(
    connection: Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Names:
    """The ids one page would show; where an index knows them, little else is read."""
    _check(limit)
    by_head, _ = split(query)
    window, *others = windows(by_head, now)
    if others or not window.exact or needs_contents(query):
        page = await find(
            connection, query, limit=limit, after=after, now=now, meter=meter
        )
        return Names(tuple(head.id for head in page.heads), page.after)
    most = min(limit, meter.budget.letters)
    return await _named(connection, window, most, after)


async def _named(
    connection: Connection, window: Window, most: int, after: str | None
) -> Names:
    text, values = window.places(start=None if after is None else place(after))
    # In one row: of all but the last only the id is wanted.
    ids, *last = await connection.fetchrow(
        numbered(
            "SELECT array_agg(id), (array_agg(dead_at))[?], (array_agg(seq))[?]"  # noqa: S608 -- names are ours, values are bound
            f" FROM (SELECT l.id, w.dead_at, w.seq FROM ({text} LIMIT ?) w"
            " JOIN deadletter.letters l ON l.seq = w.seq"
            " ORDER BY w.dead_at DESC, w.seq DESC) named"
        ),
        *(most, most),
        *values,
        most + 1,
    )
    names = tuple(map(shown, ids or ()))
    if len(names) <= most:
        return Names(names)
    return Names(names[:most], cursor(*last))


def _check(limit: int) -> None:
    if limit < 1:
        raise ConfigError(f"a page of {limit} letters: ask for at least one")
