"""The audit: appended to in the transaction of each act, never changed."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from deadletter.core.audit import seal
from deadletter.core.chain import Chain
from deadletter.core.letter import AuditEntry

from .marks import sealing_of
from .rows import micros, when
from .sql import Row, fetch, stored, write

_PAGE: Final = 5_000

_END: Final = "SELECT audit_seq, audit_hash FROM office"
_MOVE_END: Final = "UPDATE office SET audit_seq = ?, audit_hash = ?"
_APPEND: Final = (
    "INSERT INTO audit (seq, at, actor, action, target, reason, detail, hash) VALUES"
)
_COLUMNS: Final = "seq, at, actor, action, target, reason, detail, previous, hash"
_SELECT: Final = """
SELECT a.*, coalesce(p.hash, '') AS previous
FROM audit a LEFT JOIN audit p ON p.seq = a.seq - 1
"""
_FROM: Final = f"{_SELECT} WHERE a.seq > ? ORDER BY a.seq LIMIT ?"
_OF_TARGET: Final = f"{_SELECT} WHERE a.target = ? AND a.seq > ? ORDER BY a.seq LIMIT ?"


def append(connection: sqlite3.Connection, acts: Sequence[AuditEntry]) -> None:
    """Write acts at the end of the audit."""
    if not acts:
        return
    seq, previous = connection.execute(_END).fetchone()
    sealing = sealing_of(connection)
    entries = seal(acts, seq=seq, previous=previous, sealing=sealing)
    write(connection, _APPEND, [_row(entry) for entry in entries])
    connection.execute(_MOVE_END, (entries[-1].seq, entries[-1].hash))


def page(
    connection: sqlite3.Connection, *, target: str | None, after: int, limit: int
) -> list[AuditEntry]:
    """Entries behind `after`, oldest first."""
    if target is None:
        rows = fetch(connection, _COLUMNS, _FROM, (after, limit))
    else:
        rows = fetch(connection, _COLUMNS, _OF_TARGET, (stored(target), after, limit))
    return [_entry(row) for row in rows]


def read_into(connection: sqlite3.Connection, chain: Chain) -> None:
    """Hand the whole audit to whoever checks it, from its first entry on."""
    while entries := page(connection, target=None, after=chain.seq, limit=_PAGE):
        chain.add(entries)


def _row(entry: AuditEntry) -> Row:
    return (
        entry.seq,
        micros(entry.at),
        stored(entry.actor),
        stored(entry.action),
        stored(entry.target),
        stored(entry.reason),
        stored(entry.detail),
        entry.hash,
    )


def _entry(row: Row) -> AuditEntry:
    seq, at, actor, action, target, reason, detail, previous, hash_ = row
    return AuditEntry(
        seq=seq,
        at=when(at),
        actor=actor,
        action=action,
        target=target,
        reason=reason,
        detail=detail,
        previous=previous,
        hash=hash_,
    )
