"""The audit: appended to in the transaction of each act, never changed."""

from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.audit import seal
from deadletter.core.chain import Chain
from deadletter.core.escaping import stored
from deadletter.core.letter import AuditEntry

from .letters_rows import columns
from .pool import Connection, sealing_of
from .text import legible, storable

_PAGE: Final = 5_000

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


async def read_into(connection: Connection, chain: Chain) -> None:
    """Hand the whole audit to whoever checks it, from its first entry on."""
    while entries := await page(connection, target=None, after=chain.seq, limit=_PAGE):
        chain.add(entries)


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
