"""The audit: appended to in the transaction of each act, never changed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from deadletter.core.audit import seal
from deadletter.core.letter import OPEN, AuditEntry, State
from deadletter.core.seals import Marks
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Shifts

from .database import Connection, SerializationFailure, sealing_of
from .letters_rows import columns
from .rows import legible, storable

# Whoever appends holds this row until the end: one chain, whoever writes.
_END: Final = "SELECT audit_seq, audit_hash FROM deadletter.office FOR UPDATE"
_APPEND: Final = """
WITH written AS (
    INSERT INTO deadletter.audit
        (seq, at, actor, action, target, reason, detail, hash)
    SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[],
        $5::text[], $6::text[], $7::text[], $8::text[]))
UPDATE deadletter.office SET audit_seq = $9, audit_hash = $10
"""
_SELECT: Final = """
SELECT a.seq, a.at, a.actor, a.action, a.target, a.reason, a.detail,
    coalesce(p.hash, ''), a.hash
FROM deadletter.audit a LEFT JOIN deadletter.audit p ON p.seq = a.seq - 1
"""
_FROM: Final = f"{_SELECT} WHERE a.seq > $1 ORDER BY a.seq LIMIT $2"
_OF_TARGET: Final = f"""{_SELECT}
WHERE a.seq > $1 AND "left"(a.target, 200) = "left"($3, 200) AND a.target = $3
ORDER BY a.seq LIMIT $2
"""
LAST: Final = 2**63 - 1
"""The largest number of an entry."""
_HAS: Final = "left(a.{name}, 200) = left(${n}, 200) AND a.{name} = ${n}"  # as in the indexes


async def append(connection: Connection, acts: Sequence[AuditEntry]) -> None:
    """Write acts at the end of the audit."""
    if not acts:
        return
    seq, previous = await connection.fetchrow(_END)
    sealing = sealing_of(connection)
    entries = seal(acts, seq=seq, previous=previous, sealing=sealing)
    rows = columns([_row(entry) for entry in entries], 8)
    await connection.execute(_APPEND, *rows, entries[-1].seq, entries[-1].hash)


async def page(
    connection: Connection, *, target: str | None, after: int, limit: int
) -> list[AuditEntry]:
    """Entries behind `after`, oldest first."""
    if target is None:
        rows = await connection.fetch(_FROM, after, limit)
    else:
        rows = await connection.fetch(_OF_TARGET, after, limit, stored(target))
    return [_entry(row) for row in rows]


async def latest(
    connection: Connection, wanted: Mapping[str, str | None], before: int | None, limit: int
) -> list[AuditEntry]:
    """Entries in front of `before` with these values, newest first."""
    values: list[Any] = [limit, LAST if before is None else before]
    conditions = ["a.seq < $2"]
    for name, value in wanted.items():
        if value is not None:
            values.append(stored(value))
            conditions.append(_HAS.format(name=name, n=len(values)))
    rows = await connection.fetch(
        f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY a.seq DESC LIMIT $1", *values
    )
    return [_entry(row) for row in rows]


def _row(entry: AuditEntry) -> Sequence[Any]:
    return storable(
        (
            entry.seq,
            entry.at,
            entry.actor,
            entry.action,
            entry.target,
            entry.reason,
            entry.detail,
            entry.hash,
        )
    )


def _entry(row: Any) -> AuditEntry:
    seq, at, actor, action, target, reason, detail, previous, hash_ = legible(row)
    return AuditEntry(
        seq=seq,
        at=at,
        actor=actor,
        action=action,
        target=target,
        reason=reason,
        detail=detail,
        previous=previous,
        hash=hash_,
    )


# How many letters are in which state: counted as they change.
#
# Everything here happens in the transaction of the change itself, once for a whole
# batch, so that nobody ever has to count letters to show a number. Rows are changed
# in one order, groups first and by name, so that those who count at the same time
# wait for each other and not in a circle.

STATES: Final = """
by_group AS (
    INSERT INTO deadletter.group_states AS t (fingerprint, state, n)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
    ON CONFLICT (fingerprint, state) DO UPDATE SET n = t.n + excluded.n
), by_source AS (
    INSERT INTO deadletter.source_states AS t (source, state, n)
    SELECT * FROM unnest($4::text[], $5::text[], $6::bigint[])
    ON CONFLICT (source, state) DO UPDATE SET n = t.n + excluded.n
)
"""
"""Counts the first six columns of `counted`."""

OPENED: Final = """
opened AS (
    UPDATE deadletter.groups t SET open = open + g.n
    FROM unnest($7::text[], $8::bigint[]) AS g (fingerprint, n)
    WHERE t.fingerprint = g.fingerprint AND t.fingerprint = ANY($7)
)
"""
"""...and the next two what is open, by group."""

_COUNT: Final = f"WITH {OPENED}, {STATES} SELECT"
_KEY: Final = "SELECT marks_key, kept = 0 AND deaths = 0 FROM deadletter.office"
_BEGIN: Final = """
UPDATE deadletter.office SET marks_key = $1 WHERE kept = 0 AND deaths = 0
"""
_COUNTS: Final = "SELECT source, state, n FROM deadletter.source_states WHERE n > 0"


async def office_marks(connection: Connection) -> Marks:
    """
    Return the marks that the sums of letters are made of, to add to these.

    Whoever does so asks for `office_key` in the same statement, and says by `fits` if
    that was the key.
    """
    sealing = sealing_of(connection)
    if connection.office_key is None:
        key_id, is_empty = await connection.fetchrow(_KEY)
        if is_empty and key_id != sealing.key_id:
            key_id = sealing.key_id
            await connection.execute(_BEGIN, key_id)
        connection.office_key = key_id
    return sealing.marks(connection.office_key)


def office_key(connection: Connection) -> bytes:
    """Return the id of the key of `office_marks`."""
    return cast(bytes, connection.office_key)


def check_fits(connection: Connection, *, fits: bool) -> None:
    """Begin the transaction anew if the sums are made with another key by now."""
    if not fits:
        connection.office_key = None
        raise SerializationFailure


def counted(shifts: Shifts) -> tuple[list[Any], Counter[str]]:
    """Return the changes by group and by source as columns, and the open letters by group."""
    by_group: Counter[tuple[str, State]] = Counter()
    by_source: Counter[tuple[str, State]] = Counter()
    by_open: Counter[str] = Counter()
    for (source, fingerprint, state), n in shifts.items():
        by_group[stored(fingerprint), state] += n
        by_source[stored(source), state] += n
        by_open[stored(fingerprint)] += n if state in OPEN else 0
    return [*_columns(by_group), *_columns(by_source)], by_open


def opened(by_open: Counter[str]) -> list[Any]:
    """Return the change of open letters by group, as columns."""
    return columns(sorted((name, n) for name, n in by_open.items() if n), 2)


async def count(connection: Connection, shifts: Shifts) -> None:
    """Write down how many letters more or less there are."""
    states, by_open = counted(shifts)
    await connection.execute(_COUNT, *states, *opened(by_open))


async def counts(connection: Connection) -> dict[str, dict[State, int]]:
    """Return the number of letters in each state, by source."""
    found: dict[str, dict[State, int]] = {}
    for source, state, n in await connection.fetch(_COUNTS):
        found.setdefault(shown(source), {})[State(state)] = n
    return found


def _columns(by: Counter[tuple[str, State]]) -> list[Any]:
    return columns(sorted((name, state, n) for (name, state), n in by.items() if n), 3)
