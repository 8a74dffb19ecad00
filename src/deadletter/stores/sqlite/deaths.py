"""Deaths over time in a SQLite file."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.deaths import (
    DAY,
    STEPS,
    By,
    Counters,
    DeathCount,
    DeathFilter,
    FirstSeen,
    Key,
    VersionDeaths,
    added_up,
    due_before,
    floor,
    next_step,
    renamed,
    uncounted,
    when,
)

from . import sql
from .sql import fetch, is_plain, micros, shown, storable, stored, write

_COLUMNS: Final = "step, at, source, fingerprint, version, n"
_ADD: Final = f"INSERT INTO deaths ({_COLUMNS}) VALUES"
_MORE: Final = """
ON CONFLICT (step, at, source, fingerprint, version) DO UPDATE SET n = n + excluded.n
"""
_NAMES: Final = {By.NONE: "''", By.SOURCE: "source", By.GROUP: "fingerprint", By.VERSION: "version"}
_READ: Final = """
WITH found AS MATERIALIZED (
    SELECT at - at % ? AS at, {} AS name, sum(n) AS n FROM deaths
    WHERE step IN {} AND at >= ? AND at < ?{} GROUP BY 1, 2
), shown AS (
    SELECT name FROM found WHERE name <> '' GROUP BY 1 ORDER BY sum(n) DESC, name LIMIT ?
)
SELECT at, CASE WHEN name IN (SELECT name FROM shown) THEN name ELSE '' END AS name, sum(n) AS n
FROM found GROUP BY 1, 2 ORDER BY 1, 2
"""
_BY_VERSION: Final = """
SELECT fingerprint, version, sum(n) AS n, min(at) AS first, max(at) AS last FROM deaths
WHERE fingerprint IN ({}) GROUP BY 1, 2 ORDER BY 5 DESC, 4 DESC, 2 DESC
"""
_OLDEST: Final = "SELECT min(at) FROM deaths WHERE step = ? AND at < ?"
_TAKE: Final = "DELETE FROM deaths WHERE {} RETURNING step, at, source, fingerprint, version, n"
_TAKE_STEP: Final = _TAKE.format("step = ? AND at >= ? AND at < ?")
_VERSIONS: Final = """
SELECT source, version, first_seen FROM versions
WHERE first_seen >= ? AND first_seen < ? ORDER BY first_seen DESC LIMIT ?
"""
_COUNTED: Final = """
SELECT at - at % ? AS day, source, sum(n) AS n FROM deaths WHERE at >= 0 GROUP BY 1, 2
"""
_NEEDED: Final = """
SELECT dead_at / 1000000 - dead_at / 1000000 % ? AS day, source, count(*) AS n
FROM letters NOT INDEXED WHERE dead_at >= 0 GROUP BY 1, 2
"""
_NAMED: Final = 500  # groups in one statement


def add(connection: sqlite3.Connection, counters: Counters) -> None:
    """Add deaths to counters, new or not."""
    rows: Sequence[sql.Row] = [(*key, n) for key, n in counters.items()]
    if not is_plain("".join([f"{key[2]}{key[3]}{key[4]}" for key in counters])):
        rows = [storable(row) for row in rows]
    write(connection, _ADD, rows, _MORE)


def read(connection: sqlite3.Connection, request: DeathFilter) -> list[DeathCount]:
    """Return deaths over time."""
    only, values = "", []
    for column, names in (("source", request.sources), ("fingerprint", request.groups)):
        if names:
            only += f" AND {column} IN ({', '.join('?' * len(names))})"
            values += [stored(name) for name in names]
    select = _READ.format(_NAMES[request.by], STEPS, only)
    given = (request.seconds, *request.span, *values, request.most)
    rows = fetch(connection, "at, name, n", select, given)
    return [DeathCount(when(at), name, n) for at, name, n in rows]


def by_version(connection: sqlite3.Connection, groups: Sequence[str]) -> list[VersionDeaths]:
    """Return the deaths of groups by version."""
    select = _BY_VERSION.format(", ".join("?" * len(groups)))
    names = [stored(name) for name in groups]
    rows = fetch(connection, "fingerprint, version, n, first, last", select, names)
    return [
        VersionDeaths(group=group, version=version, n=n, first=when(first), last=when(last))
        for group, version, n, first, last in rows
    ]


def tidy(connection: sqlite3.Connection, now: datetime) -> bool:
    """Add up the counters of one step; return whether there were any."""
    for step, before in due_before(now).items():
        (oldest,) = connection.execute(_OLDEST, (step, before)).fetchone()
        if oldest is not None:
            start = floor(oldest, next_step(step))
            span = (step, start, start + next_step(step))
            add(connection, added_up(_taken(connection, _TAKE_STEP, span)))
            return True
    return False


def rename(connection: sqlite3.Connection, names: Mapping[str, str]) -> None:
    """Count the deaths of these groups for others."""
    old = list(names)
    for start in range(0, len(old), _NAMED):
        some = [stored(name) for name in old[start : start + _NAMED]]
        take = _TAKE.format(f"fingerprint IN ({', '.join('?' * len(some))})")
        add(connection, renamed(_taken(connection, take, some), names))


def versions(
    connection: sqlite3.Connection, since: datetime, until: datetime, limit: int
) -> list[FirstSeen]:
    """Return the versions that were first seen in a span, latest first."""
    values = (micros(since), micros(until), limit)
    rows = fetch(connection, "source, version, first_seen", _VERSIONS, values)
    return [FirstSeen(source, version, sql.when(at)) for source, version, at in rows]


def missing(connection: sqlite3.Connection) -> list[str]:
    """Return sentences on letters whose deaths are not counted."""

    def by_day(select: str) -> dict[tuple[int, str], int]:
        return {(day, shown(name)): n for day, name, n in connection.execute(select, (DAY,))}

    return uncounted(by_day(_COUNTED), by_day(_NEEDED))


def _taken(connection: sqlite3.Connection, take: str, values: Sequence[Any]) -> Counters:
    found: Counter[Key] = Counter()
    for step, at, source, group, version, n in connection.execute(take, values).fetchall():
        found[step, at, shown(source), shown(group), shown(version)] += n
    return found
