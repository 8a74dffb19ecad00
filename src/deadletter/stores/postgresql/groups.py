"""Groups of like failures: made by deaths, and how they stand."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from deadletter.core.failure import Trouble
from deadletter.core.grouping import SEARCHED, Asked, GroupRule, StatusCount, as_of
from deadletter.core.letter import Group, GroupStatus, Standing, State
from deadletter.core.text import shown, stored

from .database import Connection
from .rows import legible, storable

# When each version of an application was first seen at a mailbox.

_SOME: Final = """
SELECT source, version, first_seen FROM deadletter.versions
WHERE (source, version) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
_ALL: Final = "SELECT source, version, first_seen FROM deadletter.versions LIMIT $1"


async def first_seen(
    connection: Connection, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when these versions were first seen, those that were."""
    sources, versions = zip(*names, strict=True)
    found = await connection.fetch(
        _SOME, [stored(one) for one in sources], [stored(one) for one in versions]
    )
    return _seen(found)


async def all_seen(connection: Connection, most: int) -> dict[tuple[str, str], datetime]:
    """Return when each version was first seen; at most that many versions."""
    return _seen(await connection.fetch(_ALL, most))


def _seen(rows: Sequence[Sequence[Any]]) -> dict[tuple[str, str], datetime]:
    return {(source, version): at for source, version, at in map(legible, rows)}


_COLUMNS: Final = """
fingerprint, source, error_type, text, frame, trouble, code, first_seen, last_seen,
total, status, since, owner, note, until, version
"""
_LIST: Final = f"SELECT {_COLUMNS} FROM deadletter.groups"  # noqa: S608 -- made of constants
_NAMED: Final = f"""
{_LIST} WHERE fingerprint = ANY($1) ORDER BY fingerprint FOR UPDATE
"""
# As it stands now, see `core.grouping.as_of`.
_STANDS: Final = "CASE WHEN until <= $2 THEN 'ongoing' ELSE status END = ANY(${})"
_MENTIONS: Final = (
    f"""({" OR ".join(f'strpos(lower({name} COLLATE "C"), ${{0}}) > 0' for name in SEARCHED)})"""
)
_BY_STATUS: Final = """
SELECT CASE WHEN until <= $1 THEN 'ongoing' ELSE status END AS standing,
    count(*), count(*) FILTER (WHERE open > 0)
FROM deadletter.groups WHERE $2::text[] IS NULL OR source = ANY($2)
GROUP BY standing
"""
_STATES: Final = """
SELECT fingerprint, state, n FROM deadletter.group_states
WHERE fingerprint = ANY($1) AND n > 0
"""
_STANDING: Final = """
SELECT fingerprint, status, since, owner, note, until, version
FROM deadletter.groups WHERE fingerprint = ANY($1) ORDER BY fingerprint FOR UPDATE
"""
_LOCK: Final = """
SELECT FROM deadletter.groups WHERE fingerprint = ANY($1) ORDER BY fingerprint
FOR UPDATE
"""
_BLANK: Final = """
UPDATE deadletter.groups g SET text = '', frame = '', code = ''
WHERE fingerprint = ANY($1) AND (text <> '' OR frame <> '' OR code <> '')
AND NOT EXISTS (
    SELECT FROM deadletter.group_states s
    WHERE s.fingerprint = g.fingerprint AND s.n > 0)
RETURNING fingerprint
"""
_SET: Final = """
UPDATE deadletter.groups
SET status = $2, since = $3, owner = $4, note = $5, until = $6, version = $7
WHERE fingerprint = $1
"""


_PUT: Final = """
INSERT INTO deadletter.groups (fingerprint, source, error_type, text, frame, trouble,
    code, first_seen, last_seen, total, open)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0)
ON CONFLICT (fingerprint) DO UPDATE SET
    (error_type, text, frame, trouble, code, first_seen, last_seen, total)
    = (excluded.error_type, excluded.text, excluded.frame, excluded.trouble,
       excluded.code, excluded.first_seen, excluded.last_seen, excluded.total)
"""
_RULES: Final = "SELECT fingerprint, rules FROM deadletter.group_rules"
_read: Final = msgspec.json.Decoder(tuple[GroupRule, ...])


async def rules(connection: Connection) -> dict[str, tuple[GroupRule, ...]]:
    """Return the merges and splits that people decided, by group."""
    found = await connection.fetch(_RULES)
    return {shown(name): _read.decode(said) for name, said in found}


async def put(connection: Connection, name: str, group: Group) -> None:
    """Write a group, new or again, without its counts by state."""
    row = (
        name,
        group.source,
        group.error_type,
        group.text,
        group.frame,
        group.trouble,
        group.code,
        group.first_seen,
        group.last_seen,
        group.total,
    )
    await connection.execute(_PUT, *storable(row))
    await put_standing(connection, name, group.standing)


async def lock(connection: Connection, names: Sequence[str]) -> None:
    """Have groups to oneself until the end; before anything in them is counted."""
    await connection.execute(_LOCK, names)


async def blank(connection: Connection, names: Sequence[str]) -> list[str]:
    """Delete what groups without letters say of them; which ones these were."""
    gone = await connection.fetch(_BLANK, names)
    return sorted(shown(row[0]) for row in gone)


async def groups(connection: Connection, asked: Asked) -> list[Group]:
    """Groups, latest or largest first."""
    conditions = ["$2::timestamptz IS NOT NULL"]
    values: list[Any] = [asked.limit, asked.now]
    if asked.source is not None:
        values.append(stored(asked.source))
        conditions.append(f"source = ${len(values)}")
    if asked.only_open:
        conditions.append("open > 0")
    if asked.named:
        values.append(stored(asked.named))
        conditions.append(f"starts_with(fingerprint, ${len(values)})")
    if asked.pattern:
        values.append(stored(asked.pattern))
        conditions.append(_MENTIONS.format(len(values)))
    if asked.statuses is not None:
        values.append(list(asked.statuses))
        conditions.append(_STANDS.format(len(values)))
    if asked.start is not None:
        marks = ", ".join(f"${len(values) + n}" for n in range(1, len(asked.start) + 1))
        values += storable(asked.start)
        conditions.append(f"({', '.join(asked.order)}) < ({marks})")
    order = ", ".join(f"{name} DESC" for name in asked.order)
    rows = await connection.fetch(
        f"{_LIST} WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT $1", *values
    )
    states: defaultdict[str, dict[State, int]] = defaultdict(dict)
    for fingerprint, state, n in await connection.fetch(_STATES, [row[0] for row in rows]):
        states[fingerprint][State(state)] = n
    return [_group(legible(row), states[row[0]], asked.now) for row in rows]


async def count_groups(
    connection: Connection, sources: Sequence[str], now: datetime
) -> dict[GroupStatus, StatusCount]:
    """Return the number of groups by their current status."""
    rows = await connection.fetch(_BY_STATUS, now, [stored(one) for one in sources] or None)
    return {GroupStatus(status): StatusCount(n, opened) for status, n, opened in rows}


async def groups_named(
    connection: Connection, names: Sequence[str], now: datetime
) -> dict[str, Group]:
    """The groups of exactly these fingerprints, with their counts, locked."""
    asked = [stored(name) for name in names]
    rows = await connection.fetch(_NAMED, asked)
    states: defaultdict[str, dict[State, int]] = defaultdict(dict)
    for name, state, n in await connection.fetch(_STATES, asked):
        states[name][State(state)] = n
    found = [_group(legible(row), states[row[0]], now) for row in rows]
    return {group.fingerprint: group for group in found}


async def standings(connection: Connection, fingerprints: Sequence[str]) -> dict[str, Standing]:
    """Return the standings of groups that exist, locked."""
    rows = await connection.fetch(_STANDING, [stored(one) for one in fingerprints])
    return {row[0]: _standing(row[1:]) for row in map(legible, rows)}


async def put_standing(connection: Connection, fingerprint: str, standing: Standing) -> None:
    """Write down how a group stands, without a word in the audit."""
    await connection.execute(
        _SET,
        stored(fingerprint),
        standing.status,
        standing.since,
        stored(standing.owner),
        stored(standing.note),
        standing.until,
        stored(standing.version),
    )


def _standing(row: Sequence[Any]) -> Standing:
    status, since, owner, note, until, version = row
    return Standing(
        status=GroupStatus(status),
        since=since,
        owner=owner,
        note=note,
        until=until,
        version=version,
    )


def _group(row: Sequence[Any], states: dict[State, int], now: datetime) -> Group:
    return Group(
        fingerprint=row[0],
        source=row[1],
        error_type=row[2],
        text=row[3],
        frame=row[4],
        trouble=Trouble(row[5]),
        code=row[6],
        first_seen=row[7],
        last_seen=row[8],
        counts=states,
        total=row[9],
        standing=as_of(_standing(row[10:]), now),
    )
