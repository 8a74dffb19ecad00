"""When each version of an application was first seen at a mailbox."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.versions import Seen

from .rows import micros, when
from .sql import Row, fetch, packed, stored, write

_SEE: Final = "INSERT INTO versions (source, version, first_seen)"
_MANY: Final = """
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),
    json_extract(value, '$[2]')
FROM json_each(?) WHERE TRUE
"""
_SEEN_BEFORE: Final = """
ON CONFLICT (source, version) DO UPDATE SET first_seen = excluded.first_seen
WHERE excluded.first_seen < versions.first_seen
"""
_COLUMNS: Final = "source, version, first_seen"
_SOME: Final = "SELECT * FROM versions WHERE (source, version) IN (VALUES"
_ALL: Final = "SELECT * FROM versions LIMIT ?"


def see(connection: sqlite3.Connection, seen: Seen) -> None:
    """Write down versions that were seen; an earlier time is kept."""
    rows = [(stored(source), stored(v), micros(at)) for (source, v), at in seen.items()]
    if any(isinstance(value, bytes) for row in rows for value in row):
        write(connection, f"{_SEE} VALUES", rows, _SEEN_BEFORE)
    elif rows:
        many = f"{_SEE}{_MANY}{_SEEN_BEFORE}"
        connection.execute(many, (packed(rows),))


def first_seen(
    connection: sqlite3.Connection, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when these versions were first seen, those that were."""
    found: dict[tuple[str, str], datetime] = {}
    for start in range(0, len(names), 1_000):
        some = names[start : start + 1_000]
        marks = ", ".join(["(?, ?)"] * len(some))
        values = [stored(text) for name in some for text in name]
        found |= _seen(fetch(connection, _COLUMNS, f"{_SOME} {marks})", values))
    return found


def all_seen(
    connection: sqlite3.Connection, most: int
) -> dict[tuple[str, str], datetime]:
    """Return when each version was first seen; at most that many versions."""
    return _seen(fetch(connection, _COLUMNS, _ALL, (most,)))


def _seen(rows: Sequence[Row]) -> dict[tuple[str, str], datetime]:
    return {(source, version): when(at) for source, version, at in rows}
