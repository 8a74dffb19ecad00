"""Groups of like failures: made by deaths, and how they stand."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

from deadletter.core.audit import DIED_AGAIN, act
from deadletter.core.errors import NotFound
from deadletter.core.escaping import shown, stored
from deadletter.core.failure import Trouble
from deadletter.core.grouping import (
    Asked,
    as_of,
    regressed,
    regresses,
    said,
    versions_to_compare,
)
from deadletter.core.letter import (
    By,
    DeadLetter,
    Group,
    GroupStatus,
    LetterHead,
    Standing,
    State,
)

from .audit import append
from .pool import Connection
from .text import legible, storable
from .versions import first_seen

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
    for fingerprint, state, n in await connection.fetch(
        _STATES, [row[0] for row in rows]
    ):
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


async def say(
    connection: Connection, fingerprint: str, standing: Standing, by: By, now: datetime
) -> None:
    """Write down how a group stands."""
    old = (await _standings(connection, [fingerprint])).get(fingerprint)
    if old is None:
        raise NotFound(f"there is no group {fingerprint}")
    await put_standing(connection, fingerprint, standing)
    entry = act("group", fingerprint, by, at=now, detail=said(old, standing))
    await append(connection, [entry])


async def regress(
    connection: Connection, deaths: Mapping[str, Sequence[LetterHead]], now: datetime
) -> None:
    """Resolved groups that these deaths belong to may not be resolved after all."""
    found = await _standings(connection, list(deaths))
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


async def _standings(
    connection: Connection, fingerprints: Sequence[str]
) -> dict[str, Standing]:
    rows = await connection.fetch(_STANDING, [stored(one) for one in fingerprints])
    return {row[0]: _standing(row[1:]) for row in map(legible, rows)}


async def put_standing(
    connection: Connection, fingerprint: str, standing: Standing
) -> None:
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
