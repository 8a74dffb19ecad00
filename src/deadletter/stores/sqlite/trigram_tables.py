"""What the indexes of error texts and of bodies have in common: tables of FTS5."""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from .sql import Row, fetch

_TIDIED: Final = 200  # pages put in order at once
_REMOVED: Final = "SELECT removed FROM {}"
_TIDY: Final = "INSERT INTO {0} ({0}, rank) VALUES ('merge', ?)"
_IS_TIDY: Final = "UPDATE {} SET removed = 0 WHERE removed = ?"


def first_rows(rows: Sequence[Row], sizes: Iterable[int], most: int) -> list[Row]:
    """The first rows whose sizes are at most `most` together, or one row."""
    totals = accumulate(sizes)
    return [
        row
        for at, (row, total) in enumerate(zip(rows, totals, strict=True))
        if not at or total <= most
    ]


def is_untidy(connection: sqlite3.Connection, stand: str) -> bool:
    """Return whether texts were taken out since the index was tidied."""
    return bool(_removed(connection, stand))


def tidy_some(connection: sqlite3.Connection, table: str, stand: str) -> bool:
    """
    Rewrite some of an index without what was taken out; return whether there is more.

    `stand` is the table of one row that says how the index stands.
    """
    removed = _removed(connection, stand)
    if not removed:
        return False
    before = connection.total_changes
    connection.execute(_TIDY.format(table), (-_TIDIED,))
    if connection.total_changes - before >= 2:  # as FTS5 says that it is not done
        return True
    connection.execute(_IS_TIDY.format(stand), (removed,))
    return False


def matching(
    connection: sqlite3.Connection,
    selects: Sequence[str],
    alternatives: Iterable[Sequence[str]],
    most: int,
) -> list[int] | None:
    """
    The numbers of letters that may have all trigrams of one of the alternatives.

    `selects` are those the index tells, then those that it does not know. None if
    there are more than `most`.
    """
    match = " OR ".join(f"({' AND '.join(map(_quoted, grams))})" for grams in alternatives)
    found: list[int] = []
    for select, values in zip(selects, ([match], [], []), strict=True):
        rows = fetch(connection, "seq", select, [*values, most + 1])
        found += [seq for (seq,) in rows]
        if len(found) > most:
            return None
    return found


def _removed(connection: sqlite3.Connection, stand: str) -> int:
    (removed,) = connection.execute(_REMOVED.format(stand)).fetchone()
    return int(removed)


def _quoted(gram: str) -> str:
    escaped = gram.replace('"', '""')
    return f'"{escaped}"'
