"""
Search, newest death first, at a bounded cost.

SQL narrows down by columns, and `core.query` judges what that finds: heads alone
where they are enough, whole letters where the search is about contents.
"""

from datetime import datetime
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.core.escaping import shown
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.paging import cursor, place
from deadletter.core.query import All, Node, matcher, needs_contents, split
from deadletter.ports.letters import Names, Page

from .letters_rows import CONTENTS, HEAD, unopened, whole
from .pool import Connection
from .search_terms import Sql, numbered, sql
from .search_window import Place, Window, bottom, narrowest, size, windows

LOOK: Final = 10_000  # letters looked at for one page
OPEN: Final = 500  # of these, letters whose contents are looked at
_SLICE: Final = 100  # letters opened at once

_JOIN: Final = """
JOIN deadletter.letters l ON l.seq = w.seq
JOIN deadletter.letter_marks m ON m.letter = w.seq
"""
_OPENED: Final = "JOIN deadletter.letter_contents c ON c.letter = w.seq"
_NO_STORY: Final = CONTENTS.replace("c.history", "''::bytea")
_NEWEST_FIRST: Final = "ORDER BY w.dead_at DESC, w.seq DESC LIMIT ?"
_ANY: Final[Sql] = ("true", [])


async def find(
    connection: Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
) -> Page:
    """One page of what a search finds."""
    _check(limit)
    start = None if after is None else place(after)
    by_head, _ = split(query)
    candidates = windows(by_head, now)
    window = await narrowest(connection, candidates, start=start, most=LOOK)
    if window.exact:  # what is read is all that is looked at
        narrow, end = _ANY, None
    else:
        narrow = sql(All(by_head), now)
        end = await bottom(connection, window, start=start, depth=LOOK)
    fulfils = matcher(query, now=now)
    opens = needs_contents(query)

    hits: list[tuple[Place, LetterHead]] = []
    at, is_last = start, False
    read, most = 0, OPEN if opens else LOOK
    while len(hits) <= limit and read < most and not is_last:
        some = min(_SLICE if opens else limit + 1 - len(hits), most - read)
        places = window.places(start=at, end=end)
        letters = await _read(connection, places, narrow, some, opens=opens)
        for at, letter in letters:
            if fulfils(letter):
                hits.append((at, letter.head))
            if len(hits) > limit:
                break
        read += len(letters)
        is_last = len(letters) < some

    if len(hits) > limit:  # one more than asked for: there is a next page
        hits.pop()
        last: Place | None = hits[-1][0]
    else:
        last = end if is_last else at
    return Page(
        tuple(head for _, head in hits),
        after=None if last is None else cursor(*last),
        looked_at=len(hits)
        if window.exact and not opens
        else await size(connection, window, start=start, end=last, most=LOOK),
    )


async def find_ids(
    connection: Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
) -> Names:
    """The ids one page would show; where an index knows them, little else is read."""
    _check(limit)
    by_head, _ = split(query)
    window, *others = windows(by_head, now)
    if others or not window.exact or needs_contents(query):
        page = await find(connection, query, limit=limit, after=after, now=now)
        return Names(tuple(head.id for head in page.heads), page.after)
    return await _named(connection, window, min(limit, LOOK), after)


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


async def _read(
    connection: Connection, places: Sql, narrow: Sql, most: int, *, opens: bool
) -> list[tuple[Place, DeadLetter]]:
    """The next letters of a window, with contents only where they are needed."""
    columns, opened = (f"{HEAD}, {_NO_STORY}", _OPENED) if opens else (HEAD, "")
    rows = await connection.fetch(
        numbered(
            f"SELECT {columns} FROM ({places[0]}) w {_JOIN} {opened}"  # noqa: S608 -- names are ours, values are bound
            f" WHERE {narrow[0]} {_NEWEST_FIRST}"
        ),
        *places[1],
        *narrow[1],
        most,
    )
    return [((row[17], row[0]), whole(row) if opens else unopened(row)) for row in rows]


def _check(limit: int) -> None:
    if limit < 1:
        raise ConfigError(f"a page of {limit} letters: ask for at least one")
