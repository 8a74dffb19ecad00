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
from deadletter.ports.letters import Page

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
SELECT h.*, h.seq AS tag, c.frame, c.digest, c.rest, c.body, '' AS history
FROM ({}) h CROSS JOIN letter_contents c ON c.letter = h.seq
"""
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
    if limit < 1:
        raise ConfigError(f"a page of {limit} letters: ask for at least one")
    start = None if after is None else _place(after)
    by_head, _ = split(query)
    narrow = sql(All(by_head), now)
    window = narrowest(connection, windows(by_head, now), start=start, most=LOOK)
    end = bottom(connection, window, start=start, depth=LOOK)
    fulfils = matcher(query, now=now)
    opens = needs_contents(query)

    hits: list[tuple[Place, LetterHead]] = []
    at, opened, is_last = start, 0, False
    while len(hits) <= limit and opened < OPEN and not is_last:
        most = _SLICE if opens else limit + 1 - len(hits)
        letters = _read(
            connection, window.select("*", start=at, end=end), narrow, most, opens=opens
        )
        for at, letter in letters:
            if fulfils(letter):
                hits.append((at, letter.head))
            if len(hits) > limit:
                break
        opened += len(letters) if opens else 0
        is_last = len(letters) < most

    if len(hits) > limit:  # one more than asked for: there is a next page
        hits.pop()
        last: Place | None = hits[-1][0]
    else:
        last = end if is_last else at
    return Page(
        tuple(head for _, head in hits),
        after=None if last is None else cursor(when(last[0]), last[1]),
        looked_at=size(connection, window, start=start, end=last, most=LOOK),
    )


def _read(
    connection: sqlite3.Connection, window: Sql, narrow: Sql, most: int, *, opens: bool
) -> list[tuple[Place, DeadLetter]]:
    """The next letters of a window, with contents only where they are needed."""
    select = f"SELECT * FROM ({window[0]}) WHERE {narrow[0]} LIMIT ?"  # noqa: S608 -- made of our own names; values are bound
    values = [*window[1], *narrow[1], most]
    if opens:
        found = whole(connection, _OPENED.format(select), values)
        return [((micros(one.head.dead_at), seq), one) for seq, one in found]
    return [
        ((row[17], row[0]), DeadLetter(head=head_of(row), message=_UNOPENED))
        for row in fetch(connection, HEAD, select, values)
    ]


def _place(after: str) -> Place:
    dead_at, seq = place(after)
    return micros(dead_at), seq
