"""The audit: appended to in the transaction of each act, never changed."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from zlib import crc32

from deadletter.core.audit import seal
from deadletter.core.campaign import Outcome
from deadletter.core.letter import AuditEntry
from deadletter.core.seals import MASK, NO_KEY, PLAIN, Marks, Sealing, leaving
from deadletter.core.text import shown

from .sql import EPOCH, Row, fetch, micros, numbers, stored, when, write
from .sql import shown as plain

# Sums by identity: with which key each is made, and functions that SQL can call.

ADD: Final = f"& {MASK}"
"""Behind the sum of two sums."""

_OF_MAILBOX: Final = "SELECT marks_key FROM mailboxes WHERE id = ?"
_OF_OFFICE: Final = "SELECT marks_key, kept = 0 AND deaths = 0 FROM office"
_OF_CAMPAIGNS: Final = """
SELECT campaign, outcome, marks_key FROM campaign_outcomes
WHERE campaign IN (SELECT value FROM json_each(?))
"""
_BEGIN: Final = "UPDATE office SET marks_key = ?"


class OfficeConnection(sqlite3.Connection):
    """A connection that knows what letters, audit and sums are sealed with."""

    sealing: Sealing = PLAIN


def sealing_of(connection: sqlite3.Connection) -> Sealing:
    """Return the keys that seal letters, the audit and sums on this connection."""
    return connection.sealing if isinstance(connection, OfficeConnection) else PLAIN


def mailbox_marks(connection: sqlite3.Connection, mailbox: int) -> Marks:
    """Return the marks that the sums of a mailbox are made of."""
    ((key_id,),) = connection.execute(_OF_MAILBOX, (mailbox,)).fetchall()
    return sealing_of(connection).marks(key_id)


def office_marks(connection: sqlite3.Connection) -> Marks:
    """Return the marks that the sums of letters are made of, to add to these."""
    ((key_id, is_empty),) = connection.execute(_OF_OFFICE).fetchall()
    sealing = sealing_of(connection)
    if is_empty and key_id != sealing.key_id:
        key_id = sealing.key_id
        connection.execute(_BEGIN, (key_id,))
    return sealing.marks(key_id)


def item_marks(
    connection: sqlite3.Connection, campaigns: Iterable[int]
) -> Callable[[int, Outcome], Marks]:
    """Return what says of which marks the sums of campaigns are made."""
    sealing = sealing_of(connection)
    rows = connection.execute(_OF_CAMPAIGNS, (numbers(campaigns),))
    known = {(seq, outcome): sealing.marks(key_id) for seq, outcome, key_id in rows}
    return lambda campaign, outcome: known.get((campaign, outcome), sealing.marks())


class _Sum:
    """A sum of marks that SQL makes."""

    def __init__(self, mark: Callable[..., int]) -> None:
        self._mark = mark
        self._sum = 0

    def step(self, *values: Any) -> None:
        """Add one row."""
        self._sum += self._mark(*values)

    def finalize(self) -> int:
        """The sum."""
        return self._sum & MASK


def teach(connection: sqlite3.Connection, sealing: Sealing) -> None:
    """Give a connection the functions that the sums are made with."""

    def text_mark(key_id: bytes, text: str | bytes, count: int) -> int:
        return sealing.marks(key_id).text(plain(text)) * count

    def message_mark(key_id: bytes, id_: Any, body: Any) -> int:
        if not isinstance(body, bytes):  # written by others: never the mark of ours
            body = f"not bytes: {body!r}".encode("utf-8", "surrogatepass")
        return sealing.marks(key_id).message(shown(str(plain(id_))), body)

    def item_mark(key_id: bytes, campaign: int, letter: int, outcome: str) -> int:
        return sealing.marks(key_id).item(campaign, letter, outcome)

    # Without the id of a key, as the first migration of sums calls them: without a key.
    for name, arguments, mark in (
        ("text_marks", 2, partial(text_mark, NO_KEY)),
        ("message_marks", 2, partial(message_mark, NO_KEY)),
        ("message_marks", 3, message_mark),
        ("item_marks", 4, item_mark),
    ):
        connection.create_aggregate(name, arguments, partial(_Sum, mark))
    connection.create_function("crc32", 1, crc32, deterministic=True)
    connection.create_function("fate_marks", 2, lambda fate, n: leaving(fate, n, 0))


_END: Final = "SELECT audit_seq, audit_hash FROM office"
_MOVE_END: Final = "UPDATE office SET audit_seq = ?, audit_hash = ?"
_APPEND: Final = "INSERT INTO audit (seq, at, actor, action, target, reason, detail, hash) VALUES"
_COLUMNS: Final = "seq, at, actor, action, target, reason, detail, previous, hash"
_SELECT: Final = """
SELECT a.*, coalesce(p.hash, '') AS previous
FROM audit a LEFT JOIN audit p ON p.seq = a.seq - 1
"""
_FROM: Final = f"{_SELECT} WHERE a.seq > ? ORDER BY a.seq LIMIT ?"
LAST: Final = 2**63 - 1
"""The largest number of an entry."""
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


def latest(
    connection: sqlite3.Connection, wanted: Mapping[str, str | None], before: int | None, limit: int
) -> list[AuditEntry]:
    """Entries in front of `before` with these values, newest first."""
    given = {name: stored(value) for name, value in wanted.items() if value is not None}
    conditions = ["a.seq < ?", *(f"a.{name} = ?" for name in given)]
    end = LAST if before is None else before
    return [
        _entry(row)
        for row in fetch(
            connection,
            _COLUMNS,
            f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY a.seq DESC LIMIT ?",
            (end, *given.values(), limit),
        )
    ]


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
        at=when(at) if isinstance(at, int) else EPOCH,  # else its seal does not fit
        actor=actor,
        action=action,
        target=target,
        reason=reason,
        detail=detail,
        previous=previous,
        hash=hash_,
    )
