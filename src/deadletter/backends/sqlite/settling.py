"""
Giving deliveries up, a batch in a few statements.

The usual batch is all ours: one statement each for acks and releases, and their
count says that all is well. Otherwise it is undone and done again carefully, to
say which were somebody else's by now.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.marks import leaving
from deadletter.core.message import Message
from deadletter.ports.broker import Acked, Fate, Released, Settlement

from .marks import ADD, mailbox_marks
from .rows import seconds

Receipt: TypeAlias = tuple[int, int]  # seq, token
ReleaseRow: TypeAlias = tuple[int, int, int, str | None, bool, bool]
"""seq, token, delay, history, spared, still a suspect"""

_CHUNK: Final = 100

# Ours is what still carries our token and whose lease still runs.
_OURS: Final = """
FROM json_each(?) AS asked CROSS JOIN messages
ON messages.seq = json_extract(asked.value, '$[0]')
AND messages.token = json_extract(asked.value, '$[1]')
WHERE messages.leased > ? AND messages.mailbox = ?
"""
_LIST_OURS: Final = f"SELECT json_group_array(json_array(seq, token)) {_OURS}"
_EXTEND: Final = f"""
UPDATE messages SET leased = ?, span = ? WHERE seq IN (SELECT seq {_OURS})
"""  # noqa: S608 -- made of constants
_ACK: Final = f"""
DELETE FROM messages WHERE seq IN (SELECT seq {_OURS})
"""  # noqa: S608 -- made of constants
_ACK_ONE_CLAIM: Final = """
DELETE FROM messages WHERE seq IN (SELECT value FROM json_each(?))
AND token = ? AND leased > ? AND mailbox = ?
"""
_COUNT: Final = f"""
INSERT INTO tally (mailbox, fate, n, marks) VALUES (?, ?, ?, ?)
ON CONFLICT (mailbox, fate) DO UPDATE
SET n = n + excluded.n, marks = marks + excluded.marks {ADD}
"""  # noqa: S608 -- made of constants
_RELEASE: Final = """
UPDATE messages SET token = NULL, leased = NULL, alone = 0,
    due = min(? + given.column3, coalesce(expires_at, ? + given.column3)),
    span = given.column3,
    history = coalesce(given.column4, history),
    spared = spared + given.column5,
    suspect = suspect AND given.column6
FROM (VALUES {rows}) AS given
WHERE messages.seq = given.column1 AND messages.token = given.column2
AND messages.leased > ? AND messages.mailbox = ?
"""

_encode: Final = msgspec.json.Encoder().encode
_receipts: Final = msgspec.json.Decoder(list[Receipt]).decode


class NotAllOurs(Exception):
    """Some deliveries of the batch are somebody else's by now."""


class Batch(Struct, frozen=True):
    """Settlements, sorted out."""

    mailbox: int
    acked: list[Receipt]
    gone: dict[Fate, list[Message]]
    released: list[ReleaseRow]


def sorted_out(settlements: Sequence[Settlement], mailbox: int) -> Batch:
    """Settlements as they are written."""
    acked = [s for s in settlements if isinstance(s, Acked)]
    released = [s for s in settlements if isinstance(s, Released)]
    return Batch(
        mailbox,
        [settlement.delivery.receipt for settlement in acked],
        _by_fate(acked),
        [_release_row(settlement) for settlement in released],
    )


def _by_fate(acked: Sequence[Acked]) -> dict[Fate, list[Message]]:
    gone: defaultdict[Fate, list[Message]] = defaultdict(list)
    for settlement in acked:
        gone[settlement.fate].append(settlement.delivery.message)
    return gone


def _release_row(released: Released) -> ReleaseRow:
    seq, token = released.delivery.receipt
    delay = max(0, seconds(released.delay))
    # Its handler has run and its worker lives: it is proven. What comes back
    # unrun, and so uncharged and without a story, is not.
    still_suspect = not released.charged and released.history is None
    return seq, token, delay, released.history, not released.charged, still_suspect


def settle(connection: sqlite3.Connection, batch: Batch, now: int) -> None:
    """Carry out the batch, or raise NotAllOurs."""
    if batch.acked:
        _ack(connection, batch, now)
    for start in range(0, len(batch.released), _CHUNK):
        chunk = batch.released[start : start + _CHUNK]
        rows = [value for row in chunk for value in row]
        values = (now, now, *rows, now, batch.mailbox)
        _all(connection.execute(_release(len(chunk)), values), len(chunk))


def settle_ours(
    connection: sqlite3.Connection,
    settlements: Sequence[Settlement],
    mailbox: int,
    now: int,
) -> list[bool]:
    """Carry out what is ours and say which were."""
    receipts = [settlement.delivery.receipt for settlement in settlements]
    left = still_ours(connection, receipts, now, mailbox)
    mine = []
    for receipt in receipts:  # of one named twice, only the first
        mine.append(receipt in left)
        left.discard(receipt)
    ours = [s for s, flag in zip(settlements, mine, strict=True) if flag]
    settle(connection, sorted_out(ours, mailbox), now)
    return mine


def extend(
    connection: sqlite3.Connection,
    receipts: set[Receipt],
    mailbox: int,
    now: int,
    by: int,
) -> None:
    """Extend all leases, or raise NotAllOurs."""
    values = (now + by, by, _json(list(receipts)), now, mailbox)
    _all(connection.execute(_EXTEND, values), len(receipts))


def extend_ours(
    connection: sqlite3.Connection,
    receipts: set[Receipt],
    mailbox: int,
    now: int,
    by: int,
) -> set[Receipt]:
    """Extend the leases that still run and say which they were."""
    ours = still_ours(connection, list(receipts), now, mailbox)
    extend(connection, ours, mailbox, now, by)
    return ours


def count_fate(
    connection: sqlite3.Connection, mailbox: int, fate: Fate, count: int, marks: int
) -> None:
    """Note how so many messages, with this sum of their marks, left their mailbox."""
    if count:
        values = (mailbox, fate, count, leaving(fate, count, marks))
        connection.execute(_COUNT, values)


def _ack(connection: sqlite3.Connection, batch: Batch, now: int) -> None:
    tokens = {token for _, token in batch.acked}
    if len(tokens) == 1:
        sql = _ACK_ONE_CLAIM
        which: tuple[Any, ...] = (_json([seq for seq, _ in batch.acked]), *tokens)
    else:
        sql = _ACK
        which = (_json(batch.acked),)
    cursor = connection.execute(sql, (*which, now, batch.mailbox))
    _all(cursor, len(batch.acked))
    marks = mailbox_marks(connection, batch.mailbox)
    for fate, gone in batch.gone.items():
        total = marks.messages(gone)
        count_fate(connection, batch.mailbox, fate, len(gone), total)


def still_ours(
    connection: sqlite3.Connection,
    receipts: Sequence[Receipt],
    now: int,
    mailbox: int,
) -> set[Receipt]:
    """Those that are still ours."""
    values = (_json(receipts), now, mailbox)
    (found,) = connection.execute(_LIST_OURS, values).fetchone()
    return set(_receipts(found))


def _all(cursor: sqlite3.Cursor, count: int) -> None:
    if cursor.rowcount != count:
        raise NotAllOurs


def _json(value: object) -> str:
    return _encode(value).decode()


@cache
def _release(count: int) -> str:
    return _RELEASE.format(rows=", ".join(["(?, ?, ?, ?, ?, ?)"] * count))
