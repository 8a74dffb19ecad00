"""Deaths over time in a PostgreSQL database."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.deaths import (
    DAY,
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
from deadletter.core.text import shown, stored

from .database import Connection
from .letters_rows import columns

COLUMNS: Final = ("integer", "bigint", "text", "text", "text", "bigint")
"""The types of the columns of a counter."""
ADD: Final = """
INSERT INTO deadletter.deaths AS t (step, at, source, fingerprint, version, n)
SELECT * FROM unnest({}) ON CONFLICT (step, at, source, fingerprint, version)
DO UPDATE SET n = t.n + excluded.n
"""
_ADD: Final = ADD.format(", ".join(f"${n}::{kind}[]" for n, kind in enumerate(COLUMNS, 1)))
_LONGEST: Final = 600  # characters of a counter's names: an index takes no more
_NAMES: Final = {By.NONE: "''", By.SOURCE: "source", By.GROUP: "fingerprint", By.VERSION: "version"}
# One part for each step: then each is a range of the index.
_PART: Final = """
SELECT at - at %% $1 AS at, {0} AS name, n FROM deadletter.deaths
WHERE step = %s AND at >= $2 AND at < $3
AND (cardinality($4::text[]) = 0 OR source = ANY($4))
AND (cardinality($5::text[]) = 0 OR fingerprint = ANY($5))
"""
_READ: Final = f"""
WITH died AS (
{" UNION ALL ".join(_PART % step for step in (300, 3_600, 86_400))}
), found AS MATERIALIZED (
    SELECT at, name, sum(n) AS n FROM died GROUP BY 1, 2
), shown AS (
    SELECT name FROM found WHERE name <> '' GROUP BY 1 ORDER BY sum(n) DESC, name LIMIT $6
)
SELECT at, CASE WHEN name IN (SELECT name FROM shown) THEN name ELSE '' END, sum(n)::bigint
FROM found GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 -- made of constants
_BY_VERSION: Final = """
SELECT fingerprint, version, sum(n)::bigint, min(at), max(at) FROM deadletter.deaths
WHERE fingerprint = ANY($1) GROUP BY 1, 2 ORDER BY 5 DESC, 4 DESC, version COLLATE "C" DESC
"""
_OLDEST: Final = "SELECT min(at) FROM deadletter.deaths WHERE step = $1 AND at < $2"
_TAKE: Final = """
DELETE FROM deadletter.deaths WHERE {} RETURNING step, at, source, fingerprint, version, n
"""
_TAKE_STEP: Final = _TAKE.format("step = $1 AND at >= $2 AND at < $3")
_TAKE_GROUPS: Final = _TAKE.format("fingerprint = ANY($1)")
_VERSIONS: Final = """
SELECT source, version, first_seen FROM deadletter.versions
WHERE first_seen >= $1 AND first_seen < $2 ORDER BY first_seen DESC LIMIT $3
"""
_COUNTED: Final = """
SELECT at - at % $1, source, sum(n)::bigint FROM deadletter.deaths WHERE at >= 0 GROUP BY 1, 2
"""
_NEEDED: Final = """
SELECT s - s % $1, source, count(*) FROM (
    SELECT floor(extract(epoch FROM dead_at))::bigint AS s, source
    FROM deadletter.letters WHERE dead_at >= 'epoch') AS died
GROUP BY 1, 2
"""


def columns_of(counters: Counters) -> list[Sequence[Any]]:
    """Return counters as columns, in the order in which their rows are locked."""
    found: Counter[Key] = Counter()
    for (step, at, source, group, version), n in counters.items():
        if len(source) + len(group) + len(version) > _LONGEST:
            group = version = ""  # noqa: PLW2901 -- counted as one of the others
        found[step, at, stored(source), stored(group), stored(version)] += n
    return columns(sorted((*key, n) for key, n in found.items()), len(COLUMNS))


async def read(connection: Connection, request: DeathFilter) -> list[DeathCount]:
    """Return deaths over time."""
    sources, groups = (list(map(stored, names)) for names in (request.sources, request.groups))
    rows = await connection.fetch(
        _READ.format(_NAMES[request.by]),
        request.seconds,
        *request.span,
        sources,
        groups,
        request.most,
    )
    counts = [DeathCount(when(at), shown(name), n) for at, name, n in rows]
    return sorted(counts, key=lambda one: (one.at, one.name))


async def by_version(connection: Connection, groups: Sequence[str]) -> list[VersionDeaths]:
    """Return the deaths of groups by version."""
    rows = await connection.fetch(_BY_VERSION, [stored(name) for name in groups])
    return [
        VersionDeaths(
            group=shown(group), version=shown(version), n=n, first=when(first), last=when(last)
        )
        for group, version, n, first, last in rows
    ]


async def tidy(connection: Connection, now: datetime) -> bool:
    """Add up the counters of one step; return whether there were any."""
    for step, before in due_before(now).items():
        oldest = await connection.fetchval(_OLDEST, step, before)
        if oldest is not None:
            start = floor(oldest, next_step(step))
            rows = await connection.fetch(_TAKE_STEP, step, start, start + next_step(step))
            await _add(connection, added_up(_counters(rows)))
            return True
    return False


async def rename(connection: Connection, names: Mapping[str, str]) -> None:
    """Count the deaths of these groups for others."""
    rows = await connection.fetch(_TAKE_GROUPS, [stored(name) for name in names])
    await _add(connection, renamed(_counters(rows), names))


async def versions(
    connection: Connection, since: datetime, until: datetime, limit: int
) -> list[FirstSeen]:
    """Return the versions that were first seen in a span, latest first."""
    rows = await connection.fetch(_VERSIONS, since, until, limit)
    return [FirstSeen(shown(source), shown(version), at) for source, version, at in rows]


async def missing(connection: Connection) -> list[str]:
    """Return sentences on letters whose deaths are not counted."""

    async def by_day(select: str) -> dict[tuple[int, str], int]:
        rows = await connection.fetch(select, DAY)
        return {(day, shown(name)): n for day, name, n in rows}

    return uncounted(await by_day(_COUNTED), await by_day(_NEEDED))


async def _add(connection: Connection, counters: Counters) -> None:
    if counters:
        await connection.execute(_ADD, *columns_of(counters))


def _counters(rows: Iterable[Any]) -> Counters:
    found: Counter[Key] = Counter()
    for step, at, source, group, version, n in rows:
        found[step, at, shown(source), shown(group), shown(version)] += n
    return found
