"""All mailboxes in the file: their options, their counts, the way to each."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery
from deadletter.core.seals import Sealing, leaving, left_over
from deadletter.core.topology import check_creation, check_deletion, check_name, check_update
from deadletter.ports.broker import Fate, QueueInfo, QueueOptions, Reconciled, Swept, reconciled
from deadletter.ports.features import Features

from .audit import ADD, sealing_of
from .engine import Database
from .queue import Mailbox, SqliteSink, SqliteSource, count_fate
from .sql import Tokens, micros, read_claimed, seconds, when
from .waking import Waking

# Waits and leases that would last longer than was asked for.
#
# They were written by a clock that was ahead: this machine's before it stepped back, or
# another process's. Every sweep looks at a few, and goes on where the last one ended.

_AT_ONCE: Final = 500  # rows of each lane to look at in one sweep
_SLACK: Final = 1_000_000  # microseconds; clocks that agree differ by less
_END: Final = 2**63 - 1

_LANES: Final = """
SELECT box.id, lane.suspect FROM mailboxes AS box
CROSS JOIN (SELECT 0 AS suspect UNION ALL SELECT 1) AS lane
WHERE NOT box.gone AND EXISTS (
    SELECT 1 FROM messages WHERE messages.mailbox = box.id
    AND messages.suspect = lane.suspect AND token IS NULL AND due > ?)
"""
_WAITING: Final = """
SELECT seq, due, span FROM messages
WHERE mailbox = ? AND suspect = ? AND token IS NULL AND due > ? AND due < ?
ORDER BY due DESC LIMIT ?
"""
_CLAIMED: Final = """
SELECT seq, leased, span FROM messages WHERE token IS NOT NULL AND leased > ?
ORDER BY leased DESC LIMIT ?
"""
_SHORTEN_WAIT: Final = "UPDATE messages SET due = ? + span WHERE seq = ?"
_SHORTEN_LEASE: Final = "UPDATE messages SET leased = ? + span WHERE seq = ?"


class Misdated:
    """Finds and shortens them, a part of every mailbox at a time."""

    def __init__(self) -> None:
        self._below: dict[tuple[int, int], int] = {}  # where to go on in each lane

    def shorten(self, connection: sqlite3.Connection, now: int) -> tuple[int, int]:
        """
        Shorten what is found in the transaction of the connection.

        Returns how many there were and how far the furthest was ahead, in microseconds.
        """
        after = now + _SLACK
        waits: list[tuple[int, int]] = []  # seq and how far it is ahead
        for lane in connection.execute(_LANES, (after,)).fetchall():
            below = self._below.pop(lane, _END)
            values = (*lane, after, below, _AT_ONCE)
            rows = connection.execute(_WAITING, values).fetchall()
            if len(rows) == _AT_ONCE:
                self._below[lane] = rows[-1][1]
            waits += _ahead(rows, now)
        leases = _ahead(connection.execute(_CLAIMED, (after, _AT_ONCE)).fetchall(), now)
        connection.executemany(_SHORTEN_WAIT, [(now, seq) for seq, _ in waits])
        connection.executemany(_SHORTEN_LEASE, [(now, seq) for seq, _ in leases])
        found = [ahead for _, ahead in (*waits, *leases)]
        return len(found), max(found, default=0)


def _ahead(rows: list[tuple[int, int, int]], now: int) -> list[tuple[int, int]]:
    """Return leases that would last longer than their span, and by how much."""
    return [(seq, until - span - now) for seq, until, span in rows if until - span - now > _SLACK]


# The store-side decider: what lost workers held, and what is past saving.

_LOST_AT_ONCE: Final = 5_000  # a slice, so that writers beside us do not wait long

# Lost in company, it may have been a neighbour's fault: not charged. Lost alone,
# it was its own.
_TAKE_BACK: Final = """
UPDATE messages SET token = NULL, leased = NULL, span = 0, alone = 0, suspect = 1,
    spared = spared + 1 - alone
WHERE seq IN (
    SELECT seq FROM messages WHERE token IS NOT NULL AND leased <= ?
    ORDER BY leased LIMIT ?)
"""
# A dead queue's messages neither expire nor run out of attempts.
_MORTAL: Final = """
SELECT id FROM mailboxes AS mortal WHERE NOT gone AND NOT EXISTS (
    SELECT 1 FROM mailboxes AS user WHERE user.dead_queue = mortal.name)
"""
_EXPIRED: Final = f"""
SELECT seq FROM messages
WHERE token IS NULL AND expires_at <= :now AND mailbox IN ({_MORTAL})
LIMIT :limit
"""  # noqa: S608 -- made of constants
_EXHAUSTED: Final = f"""
SELECT seq FROM mailboxes CROSS JOIN messages ON messages.mailbox = mailboxes.id
WHERE token IS NULL AND suspect = 1 AND max_attempts > 0
AND attempts - spared >= max_attempts AND mailboxes.id IN ({_MORTAL})
LIMIT :limit
"""  # noqa: S608 -- made of constants
# It is not an attempt, so none is counted; and held alone, so that losing it
# again neither charges nor spares it anything.
_CLAIM: Final = """
UPDATE messages SET token = :token, leased = :until, span = :until - :now, alone = 1
WHERE seq IN ({which})
"""
_NAMES: Final = "SELECT json_group_object(id, name) FROM mailboxes"
_SUSPECTS: Final = """
SELECT json_group_array(name) FROM mailboxes WHERE EXISTS (
    SELECT 1 FROM messages WHERE mailbox = mailboxes.id
    AND token IS NULL AND suspect = 1 AND due <= ?)
"""

_names: Final = msgspec.json.Decoder(dict[int, str]).decode
_suspects: Final = msgspec.json.Decoder(frozenset[str]).decode


def sweep(
    connection: sqlite3.Connection,
    misdated: Misdated,
    *,
    now: int,
    lease: int,
    token: int,
    limit: int,
) -> Swept:
    """Do it all, in the transaction of the connection."""
    until = now + lease
    shortened, ahead = misdated.shorten(connection, now)
    lost = connection.execute(_TAKE_BACK, (now, _LOST_AT_ONCE)).rowcount
    doomed = 0
    for which in (_EXPIRED, _EXHAUSTED):
        values = {"token": token, "until": until, "now": now, "limit": limit - doomed}
        doomed += connection.execute(_CLAIM.format(which=which), values).rowcount
    (names,) = connection.execute(_SUSPECTS, (now,)).fetchone()
    deliveries: Sequence[Delivery] = ()
    if doomed:
        claimed = read_claimed(connection, until, token)
        (mailboxes,) = connection.execute(_NAMES).fetchone()
        deliveries = claimed.deliveries(_names(mailboxes))
    return Swept(
        lost, _suspects(names), tuple(deliveries), misdated=shortened, ahead=ahead / 1_000_000
    )


MAKE: Final = """
INSERT INTO main.mailboxes (name, marks_key) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET gone = 0 RETURNING id, marks_key
"""
_SET: Final = """
UPDATE mailboxes SET dead_queue = ?, max_attempts = ?, expire_after = ?, reference = ?
WHERE name = ?
"""
_EXISTING: Final = """
SELECT name, dead_queue, max_attempts, expire_after, reference
FROM mailboxes WHERE NOT gone
"""
_DETACH: Final = "UPDATE mailboxes SET dead_queue = NULL WHERE dead_queue = ?"
_MARKS: Final = """
SELECT coalesce(message_marks(marks_key, messages.id, body), 0)
FROM mailboxes JOIN messages ON mailbox = mailboxes.id WHERE name = ?
"""
_EMPTY: Final = """
DELETE FROM messages WHERE mailbox = (SELECT id FROM mailboxes WHERE name = ?)
"""
_LEAVE: Final = """
UPDATE mailboxes SET gone = 1, dead_queue = NULL, max_attempts = 0,
    expire_after = NULL, reference = ''
WHERE name = ? RETURNING id
"""
_INFO: Final = """
SELECT name, dead_queue, max_attempts, expire_after, reference, sent,
    (SELECT count(*) FROM messages WHERE mailbox = mailboxes.id
        AND token IS NULL AND suspect = 0 AND due <= :now),
    (SELECT count(*) FROM messages WHERE mailbox = mailboxes.id
        AND token IS NULL AND suspect = 0 AND due > :now),
    coalesce(claims.n, 0),
    (SELECT count(*) FROM messages WHERE mailbox = mailboxes.id
        AND token IS NULL AND suspect = 1),
    (SELECT sent_at FROM messages WHERE mailbox = mailboxes.id
        AND token IS NULL AND suspect = 0 ORDER BY due, seq LIMIT 1),
    (SELECT json_group_object(fate, n) FROM tally WHERE mailbox = mailboxes.id)
FROM mailboxes LEFT JOIN (
    SELECT mailbox, count(*) AS n FROM messages WHERE token IS NOT NULL GROUP BY mailbox
) AS claims ON claims.mailbox = mailboxes.id
WHERE NOT gone ORDER BY name
"""

_SUMS: Final = """
SELECT id, name, marks_key, sent, sent_marks,
    (SELECT json_group_object(fate, json_array(n, marks)) FROM tally
        WHERE mailbox = mailboxes.id),
    (SELECT coalesce(message_marks(marks_key, messages.id, body), 0) FROM messages
        WHERE mailbox = mailboxes.id)
FROM mailboxes ORDER BY name
"""

_USE_KEY: Final = "UPDATE mailboxes SET marks_key = ? WHERE id = ?"
# What is there is where the sums begin; how many came and went stays as it is.
_SENT_ANEW: Final = f"""
UPDATE mailboxes SET sent_marks = ? + (
    SELECT coalesce(message_marks(marks_key, messages.id, body), 0) FROM messages
    WHERE mailbox = mailboxes.id) {ADD}
WHERE id = ?
"""  # noqa: S608 -- made of constants
_LEFT_ANEW: Final = "UPDATE tally SET marks = fate_marks(fate, n) WHERE mailbox = ?"

_sums: Final = msgspec.json.Decoder(dict[str, tuple[int, int]]).decode
_tally: Final = msgspec.json.Decoder(dict[str, int]).decode


class SqliteBroker:
    """The file's mailboxes."""

    def __init__(self, db: Database, features: Features) -> None:
        self.features = features
        self._db = db
        self._tokens = Tokens()
        self._misdated = Misdated()
        self._waking = Waking(db.reader(), db.clock)
        self._boxes: dict[str, Mailbox] = {}

    def source(self, mailbox: str) -> SqliteSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        return SqliteSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> SqliteSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return SqliteSink(self._box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        await self._db.write(lambda c: _create(c, options))

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        await self._db.write(lambda c: _update(c, options))

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""
        purged = await self._db.write(lambda c: _delete(c, name, force=force))
        if name in self._boxes:
            self._boxes[name].forget()
        return purged

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""
        now = micros(self._db.clock.now())
        return await self._db.read(lambda c: _queues(c, now))

    async def reconcile(self) -> Sequence[Reconciled]:
        """Compare the messages that are there with those that came and went."""
        return await self._db.read(_reconcile)

    @property
    def sealing(self) -> Sealing:
        """Return the keys of the sums of mailboxes."""
        return self._db.sealing

    async def rekey(self) -> int:
        """Make sums that fit anew with the first key; how many mailboxes."""
        return await self._db.write(_rekey, patient=True)

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: mailboxes of this engine have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Take back what lost workers held, and claim what is past saving."""
        token, by = self._tokens.next(), seconds(lease)
        clock, misdated = self._db.clock, self._misdated
        return await self._db.write(
            lambda connection: sweep(
                connection, misdated, now=micros(clock.now()), lease=by, token=token, limit=limit
            )
        )

    async def number(self, mailbox: str) -> int:
        """The number of a mailbox's row."""
        return await self._box(mailbox).id()

    def ring(self, number: int) -> None:
        """Something was put into a mailbox."""
        self._waking.ring(number)

    def stop(self) -> None:
        """Stop waking those who wait. Blocks."""
        self._waking.stop()

    def _box(self, name: str) -> Mailbox:
        if name not in self._boxes:
            check_name(name)
            self._boxes[name] = Mailbox(
                self._db, name, waking=self._waking, tokens=self._tokens, make=make
            )
        return self._boxes[name]


def make(connection: sqlite3.Connection, name: str) -> int:
    """The number of the mailbox of that name, made if it is not there."""
    values = (name, sealing_of(connection).key_id)
    number, _ = connection.execute(MAKE, values).fetchone()
    return int(number)


def _existing(connection: sqlite3.Connection) -> dict[str, QueueOptions]:
    return {row[0]: _options(row) for row in connection.execute(_EXISTING)}


def _options(row: tuple[Any, ...]) -> QueueOptions:
    return QueueOptions(
        name=row[0], dead_queue=row[1], max_attempts=row[2], expire_after=row[3], reference=row[4]
    )


def _create(connection: sqlite3.Connection, options: QueueOptions) -> None:
    existing = _existing(connection)
    check_creation(options, existing)
    make(connection, options.name)
    _set(connection, options)


def _update(connection: sqlite3.Connection, options: QueueOptions) -> None:
    existing = _existing(connection)
    check_update(options, existing)
    _set(connection, options)


def _set(connection: sqlite3.Connection, options: QueueOptions) -> None:
    values = (
        options.dead_queue,
        options.max_attempts,
        options.expire_after,
        options.reference,
        options.name,
    )
    connection.execute(_SET, values)


def _delete(connection: sqlite3.Connection, name: str, *, force: bool) -> int:
    existing = _existing(connection)
    if name not in existing:
        raise NotFound(f"there is no queue {name!a}")
    check_deletion(name, existing, force=force)
    connection.execute(_DETACH, (name,))
    (marks,) = connection.execute(_MARKS, (name,)).fetchone()
    purged = connection.execute(_EMPTY, (name,)).rowcount
    (number,) = connection.execute(_LEAVE, (name,)).fetchone()
    count_fate(connection, number, Fate.PURGED, purged, marks)
    return purged


def _reconcile(connection: sqlite3.Connection) -> list[Reconciled]:
    return [found for _, found, _ in _compared(connection)]


def _compared(connection: sqlite3.Connection) -> Iterator[tuple[int, Reconciled, dict[str, int]]]:
    """Yield each mailbox: its number, its reconciliation and its counts."""
    sealing = sealing_of(connection)
    for box, name, key, sent, sent_marks, tally, real in connection.execute(_SUMS):
        numbers = {"sent": (sent, sent_marks), **_sums(tally)}
        counts = {fate: n for fate, (n, _) in numbers.items()}
        sums = {fate: marks for fate, (_, marks) in numbers.items()}
        same = left_over(counts, sums) == real
        yield box, reconciled(name, sealing, key, sent, same=same), counts


def _rekey(connection: sqlite3.Connection) -> int:
    key_id = sealing_of(connection).key_id
    changed = 0
    for box, found, counts in list(_compared(connection)):
        if found.key_id == key_id or not (found.is_known and found.same):
            continue
        connection.execute(_USE_KEY, (key_id, box))
        connection.execute(_SENT_ANEW, (leaving("sent", counts["sent"], 0), box))
        connection.execute(_LEFT_ANEW, (box,))
        changed += 1
    return changed


def _queues(connection: sqlite3.Connection, now: int) -> list[QueueInfo]:
    return [
        QueueInfo(
            options=_options(row),
            ready=row[6],
            delayed=row[7],
            claimed=row[8],
            suspects=row[9],
            oldest_at=None if row[10] is None else when(row[10]),
            tally={"sent": row[5], **_tally(row[11])},
        )
        for row in connection.execute(_INFO, {"now": now})
    ]
