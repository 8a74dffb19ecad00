"""Groups of like failures: made by deaths, and how they stand."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec

from deadletter.core.audit import DIED_AGAIN, act
from deadletter.core.failure import Trouble
from deadletter.core.grouping import (
    Asked,
    GroupLimit,
    GroupRule,
    Rules,
    as_of,
    day_of,
    followed,
    placed,
    regressed,
    regresses,
    said,
    versions_to_compare,
)
from deadletter.core.letter import DeadLetter, Group, GroupStatus, LetterHead, Standing, State
from deadletter.core.query.versions import Seen
from deadletter.core.text import shown, stored

from .audit import append
from .database import Connection
from .letters_rows import columns
from .rows import legible, storable

# New groups counted by kind and day, so that a flood of them ends in one.

# Locked until the end: of two who make groups of a kind, the later one waits.
# A clock that is behind at midnight must not begin a new day again.
_MADE: Final = """
INSERT INTO deadletter.group_kinds AS t (overflow, day, made)
SELECT name, $2, 0 FROM unnest($1::text[]) AS name ORDER BY name
ON CONFLICT (overflow) DO UPDATE SET
    made = CASE WHEN t.day >= excluded.day THEN t.made ELSE 0 END,
    day = greatest(t.day, excluded.day)
RETURNING overflow, made
"""
_THERE: Final = "SELECT fingerprint FROM deadletter.groups WHERE fingerprint = ANY($1)"
_COUNT: Final = """
UPDATE deadletter.group_kinds t SET made = t.made + g.n
FROM unnest($1::text[], $2::integer[]) AS g (overflow, n)
WHERE t.overflow = g.overflow
"""


async def limit_groups(
    connection: Connection,
    letters: Sequence[DeadLetter],
    now: datetime,
    limit: GroupLimit,
    rules: Rules | None,
) -> Sequence[DeadLetter]:
    """Return the letters in the groups they are to be kept in; new ones are counted."""
    letters, named = placed(letters, rules)
    new = limit.candidates(letters, named)
    await _drop_those_there(connection, new, limit)
    if not new:
        return letters
    kinds = sorted(set(new.values()))
    made = dict(await connection.fetch(_MADE, kinds, day_of(now)))
    # Whoever had the lock may have made some of them meanwhile.
    await _drop_those_there(connection, new, limit)
    kept, more = limit.divert(letters, new, made)
    if more:
        await connection.execute(_COUNT, list(more), list(more.values()))
    return followed(kept, rules) if rules else kept


async def _drop_those_there(connection: Connection, new: dict[str, str], limit: GroupLimit) -> None:
    if not new:
        return
    rows = await connection.fetch(_THERE, [stored(name) for name in new])
    there = [shown(row[0]) for row in rows]
    limit.remember(there)
    for name in there:
        del new[name]


# When each version of an application was first seen at a mailbox.

_SOME: Final = """
SELECT source, version, first_seen FROM deadletter.versions
WHERE (source, version) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
_ALL: Final = "SELECT source, version, first_seen FROM deadletter.versions LIMIT $1"


def rows_of(seen: Seen) -> list[Any]:
    """Return versions that were seen, as columns."""
    rows = [(stored(source), stored(v), at) for (source, v), at in seen.items()]
    return columns(sorted(rows), 3)


async def first_seen(
    connection: Connection, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when these versions were first seen, those that were."""
    if not names:
        return {}
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


async def regress(
    connection: Connection, deaths: Mapping[str, Sequence[LetterHead]], now: datetime
) -> None:
    """Resolved groups that these deaths belong to may not be resolved after all."""
    found = await standings(connection, list(deaths))
    wanted = versions_to_compare(found, chain.from_iterable(deaths.values()))
    seen = await first_seen(connection, wanted)
    for fingerprint, heads in deaths.items():
        if fingerprint not in found or not regresses(found[fingerprint], heads, seen):
            continue
        after = regressed(found[fingerprint], now)
        await put_standing(connection, fingerprint, after)
        detail = said(found[fingerprint], after)
        entry = act("regress", fingerprint, DIED_AGAIN, at=now, detail=detail)
        await append(connection, [entry])


def died(letters: Sequence[DeadLetter]) -> Sequence[Any]:
    """
    What deaths of one group say of it, as a row.

    fingerprint, source, error_type, text, frame, trouble, code, first, last, total
    """
    times = [letter.head.dead_at for letter in letters]
    # Of several at the same moment, the one that came last.
    latest = max(reversed(letters), key=lambda letter: letter.head.dead_at)
    head = latest.head
    return storable(
        (
            head.fingerprint,
            letters[0].head.source,
            head.error_type,
            head.error_text,
            latest.frame,
            head.trouble,
            head.code,
            min(times),
            max(times),
            len(letters),
        )
    )


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
