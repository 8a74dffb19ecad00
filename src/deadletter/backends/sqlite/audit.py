"""The audit: appended to in the transaction of each act, never changed."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from deadletter.core.audit import check_chain, seal
from deadletter.core.letter import AuditEntry

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


def append(connection: sqlite3.Connection, acts: Iterable[AuditEntry]) -> None:
    """Write acts at the end of the audit."""
    seq, previous = connection.execute(_END).fetchone()
    entries = seal(acts, seq=seq, previous=previous)
    if not entries:
        return
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


def problems(connection: sqlite3.Connection) -> Iterator[str]:
    """What is wrong with the audit, from its first entry to its last."""
    last, last_hash = connection.execute(_END).fetchone()
    seq, seal_ = 0, ""
    while entries := page(connection, target=None, after=seq, limit=_PAGE):
        yield from check_chain(entries, seq=seq, previous=seal_)
        seq, seal_ = entries[-1].seq, entries[-1].hash
    if (seq, seal_) != (last, last_hash):
        yield f"the audit ends with entry {seq}, but {last} were written"


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
