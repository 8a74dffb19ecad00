"""
Search, newest death first, at a bounded cost.

SQL narrows down by columns, and `core.query` judges what that finds: heads alone
where they are enough, whole letters where the search is about contents.
"""

import sqlite3
from datetime import datetime
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message
from deadletter.core.paging import cursor, place
from deadletter.core.query import All, Node, matcher, needs_contents, split
from deadletter.ports.letters import Names, Page

from .letters_rows import HEAD, head_of
from .letters_whole import whole
from .rows import EPOCH, micros, when
from .search_terms import Sql, sql
from .search_window import Place, bottom, narrowest, size, windows
from .sql import fetch

LOOK: Final = 10_000  # letters looked at for one page
OPEN: Final = 500  # of these, letters whose contents are looked at
_SLICE: Final = 100  # letters opened at once

_OPENED: Final = """
SELECT h.*, h.seq AS tag, c.frame, c.digest, c.rest, c.body
FROM ({}) h CROSS JOIN letter_contents c ON c.letter = h.seq
"""
_NAMED: Final = "id, dead_at, seq"
_UNOPENED: Final = Message(id="", body=b"", sent_at=EPOCH)


def find(
    connection: sqlite3.Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
) -> Page:
    """One page of what a search finds."""
    _check(limit)
    start = None if after is None else _place(after)
    by_head, _ = split(query)
    candidates = windows(by_head, now)
    window = narrowest(connection, candidates, start=start, most=LOOK)
    if window.exact:  # what is read is all that is looked at
        narrow, end = [], None
    else:
        # What indexes know first: most is settled by them.
        narrow = [other.condition for other in candidates if other is not window]
        narrow.append(sql(All(by_head), now))
        end = bottom(connection, window, start=start, depth=LOOK)
    fulfils = matcher(query, now=now)
    opens = needs_contents(query)

    hits: list[tuple[Place, LetterHead]] = []
    at, is_last = start, False
    read, most = 0, OPEN if opens else LOOK
    while len(hits) <= limit and read < most and not is_last:
        some = min(_SLICE if opens else limit + 1 - len(hits), most - read)
        select = window.select("*", start=at, end=end, also=narrow)
        letters = _read(connection, select, some, opens=opens)
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
        after=None if last is None else cursor(when(last[0]), last[1]),
        looked_at=len(hits)
        if window.exact and not opens
        else size(connection, window, start=start, end=last, most=LOOK),
    )


def find_ids(
    connection: sqlite3.Connection,
    query: Node,
    *,
    limit: int,
    after: str | None,
    now: datetime,
) -> Names:
    """The ids one page would show; where an index knows them, nothing else is read."""
    _check(limit)
    by_head, _ = split(query)
    window, *others = windows(by_head, now)
    if others or not window.exact or needs_contents(query):
        page = find(connection, query, limit=limit, after=after, now=now)
        return Names(tuple(head.id for head in page.heads), page.after)
    most = min(limit, LOOK)
    start = None if after is None else _place(after)
    select, values = window.select(_NAMED, start=start)
    rows = fetch(connection, _NAMED, f"{select} LIMIT ?", [*values, most + 1])
    ids = tuple(row[0] for row in rows[:most])
    if len(rows) <= most:
        return Names(ids)
    _, dead_at, seq = rows[most - 1]
    return Names(ids, cursor(when(dead_at), seq))


def _read(
    connection: sqlite3.Connection, window: Sql, most: int, *, opens: bool
) -> list[tuple[Place, DeadLetter]]:
    """The next letters of a window, with contents only where they are needed."""
    select, values = f"{window[0]} LIMIT ?", [*window[1], most]
    if opens:
        found = whole(connection, _OPENED.format(select), values, story=False)
        return [((micros(one.head.dead_at), seq), one) for seq, one in found]
    return [
        ((row[17], row[0]), DeadLetter(head=head_of(row), message=_UNOPENED))
        for row in fetch(connection, HEAD, select, values)
    ]


def _check(limit: int) -> None:
    if limit < 1:
        raise ConfigError(f"a page of {limit} letters: ask for at least one")


def _place(after: str) -> Place:
    dead_at, seq = place(after)
    return micros(dead_at), seq
