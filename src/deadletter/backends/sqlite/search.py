"""
Search, newest death first, at a bounded cost.

SQL narrows down by columns, and `core.query` judges what that finds: heads alone
where they are enough, whole letters where the search is about contents.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.core.paging import cursor, place
from deadletter.core.query import All, Meter, Node, needs_contents, split
from deadletter.core.query.search_step import (
    CUT,
    Bottom,
    Contents,
    Found,
    Heads,
    Sizes,
    Step,
    Wanted,
    search_step,
)
from deadletter.ports.letters import Names, Page

from .letters_rows import HEAD, head_of
from .letters_whole import opened
from .rows import EPOCH, micros, when
from .search_terms import Sql, sql
from .search_window import (
    Place,
    Window,
    bottom,
    narrowest,
    size,
    text_window,
    windows,
)
from .sql import fetch, numbers

_SIZED: Final = """
SELECT h.dead_at, h.seq, length(c.body) + length(c.rest) AS size
FROM ({}) h CROSS JOIN letter_contents c ON c.letter = h.seq
ORDER BY h.dead_at DESC, h.seq DESC
"""
_OPENED: Final = f"""
SELECT h.*, h.seq AS tag, '' AS frame, c.digest, c.rest,
    CASE WHEN length(c.body) > {CUT} THEN substr(c.body, 1, {CUT}) ELSE c.body END
    AS body
FROM json_each(?) w CROSS JOIN letters h ON h.seq = w.value
CROSS JOIN letter_contents c ON c.letter = h.seq
"""  # noqa: S608 -- made of constants
_NAMED: Final = "id, dead_at, seq"
_UNOPENED: Final = Message(id="", body=b"", sent_at=EPOCH)
_Letters: TypeAlias = list[tuple[Place, DeadLetter]]


class Reading(Struct, frozen=True):
    """How a step reads: a stretch of an index, and what is true of all it wants."""

    connection: sqlite3.Connection
    window: Window
    narrow: list[Sql]

    def read(self, wanted: Wanted[Place]) -> Any:
        """Read what the search step asks for."""
        match wanted:
            case Bottom(after, depth):
                return bottom(self.connection, self.window, start=after, depth=depth)
            case Heads(after, end, most):
                return self._heads(after, end, most)
            case Sizes(after, end, most):
                return self._sizes(after, end, most)
            case Contents(places):
                return self._contents(places)

    def _heads(self, after: Place | None, end: Place | None, most: int) -> _Letters:
        text, values = self._select(after, end)
        rows = fetch(self.connection, HEAD, f"{text} LIMIT ?", [*values, most])
        return [
            ((row[17], row[0]), DeadLetter(head=head_of(row), message=_UNOPENED))
            for row in rows
        ]

    def _sizes(
        self, after: Place | None, end: Place | None, most: int
    ) -> list[tuple[Place, int]]:
        text, values = self._select(after, end)
        select = _SIZED.format(f"{text} LIMIT ?")
        rows = fetch(self.connection, "dead_at, seq, size", select, [*values, most])
        return [((dead_at, seq), size) for dead_at, seq, size in rows]

    def _contents(self, places: Sequence[Place]) -> _Letters:
        seqs = numbers(seq for _, seq in places)
        found = opened(self.connection, _OPENED, (seqs,))
        return list(zip(places, found, strict=True))

    def _select(self, after: Place | None, end: Place | None) -> Sql:
        return self.window.select("*", start=after, end=end, also=self.narrow)


def find(
    connection: sqlite3.Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Page:
    """One page of what a search finds."""
    _check(limit)
    start = None if after is None else _place(after)
    by_head, _ = split(query)
    candidates = windows(by_head, now)
    if (texts := text_window(connection, query)) is not None:
        candidates.append(texts)
    most = meter.budget.letters
    window = narrowest(connection, candidates, start=start, most=most)
    narrow: list[Sql] = []
    if not window.exact:  # else what is read is all that is looked at
        # What indexes know first: most is settled by them.
        others = (one for one in candidates if one is not window and one.narrows)
        narrow = [other.condition for other in others]
        narrow.append(sql(All(by_head), now))
    step = search_step(
        query, limit=limit, start=start, exact=window.exact, now=now, meter=meter
    )
    found = _run(step, Reading(connection, window, narrow))
    heads = tuple(head for _, head in found.hits)
    if window.exact and not needs_contents(query):
        looked_at = len(heads)
    else:
        looked_at = size(connection, window, start=start, end=found.last, most=most)
    if found.last is None:
        return Page(heads, looked_at=looked_at)
    back_to = when(found.last[0])
    return Page(heads, cursor(back_to, found.last[1]), looked_at, back_to)


def _run(step: Step[Place], reading: Reading) -> Found[Place]:
    try:
        wanted = next(step)
        while True:
            wanted = step.send(reading.read(wanted))
    except StopIteration as end:
        found: Found[Place] = end.value
        return found


def find_ids(
    connection: sqlite3.Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
    meter: Meter,
) -> Names:
    """The ids one page would show; where an index knows them, nothing else is read."""
    _check(limit)
    by_head, _ = split(query)
    window, *others = windows(by_head, now)
    if others or not window.exact or needs_contents(query):
        page = find(connection, query, limit=limit, after=after, now=now, meter=meter)
        return Names(tuple(head.id for head in page.heads), page.after)
    most = min(limit, meter.budget.letters)
    start = None if after is None else _place(after)
    select, values = window.select(_NAMED, start=start)
    rows = fetch(connection, _NAMED, f"{select} LIMIT ?", [*values, most + 1])
    ids = tuple(row[0] for row in rows[:most])
    if len(rows) <= most:
        return Names(ids)
    _, dead_at, seq = rows[most - 1]
    return Names(ids, cursor(when(dead_at), seq))


def _check(limit: int) -> None:
    if limit < 1:
        raise ConfigError(f"a page of {limit} letters: ask for at least one")


def _place(after: str) -> Place:
    dead_at, seq = place(after)
    return micros(dead_at), seq
