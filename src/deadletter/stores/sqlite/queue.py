"""
One mailbox in the file: messages in, deliveries out.

The clock is read when it is a job's turn: a lease begins when it is written,
however long another process kept us waiting.
"""

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.errors import DeadLetterError
from deadletter.core.message import Delivery, Message
from deadletter.core.seals import Marks, leaving
from deadletter.ports.broker import Acked, Fate, Released, Settlement
from deadletter.ports.features import Features

from .audit import ADD, mailbox_marks, sealing_of
from .engine import Database, is_brief
from .sql import Claimed, MessageRow, Tokens, micros, read_claimed, rows_of, seconds
from .waking import Waking

# Giving deliveries up, a batch in a few statements.
#
# The usual batch is all ours: one statement each for acks and releases, and their
# count says that all is well. Otherwise it is undone and done again carefully, to
# say which were somebody else's by now.

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
    """Some deliveries of the batch now belong to another worker."""


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
    connection: sqlite3.Connection, settlements: Sequence[Settlement], mailbox: int, now: int
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
    connection: sqlite3.Connection, receipts: set[Receipt], mailbox: int, now: int, by: int
) -> None:
    """Extend all leases, or raise NotAllOurs."""
    values = (now + by, by, _json(list(receipts)), now, mailbox)
    _all(connection.execute(_EXTEND, values), len(receipts))


def extend_ours(
    connection: sqlite3.Connection, receipts: set[Receipt], mailbox: int, now: int, by: int
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
    connection: sqlite3.Connection, receipts: Sequence[Receipt], now: int, mailbox: int
) -> set[Receipt]:
    """Return the receipts that are still ours."""
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


_QUEUE_CHUNK: Final = 100  # rows in one INSERT

# `main`: a temporary table of an application may have the name of one of ours.
COUNT_SENT: Final = f"""
UPDATE main.mailboxes SET sent = sent + ?, sent_marks = sent_marks + ? {ADD}, gone = 0
WHERE id = ? RETURNING expire_after, marks_key
"""  # noqa: S608 -- made of constants
_INSERT: Final = """
INSERT INTO main.messages (mailbox, id, body, extra, sent_at, expires_at, due, span) VALUES
"""
_CLAIM: Final = """
UPDATE messages SET token = ?, leased = ?, span = ?, attempts = attempts + 1,
    alone = ?, first_at = coalesce(first_at, ?)
WHERE seq IN (
    SELECT seq FROM messages
    WHERE mailbox = ? AND token IS NULL AND suspect = 0 AND due <= ?
    ORDER BY due, seq LIMIT ?)
"""
_CLAIM_SUSPECT: Final = _CLAIM.replace("suspect = 0", "suspect = 1")
_UNDO: Final = """
UPDATE messages SET token = NULL, leased = NULL, span = 0, alone = 0,
    attempts = attempts - 1, first_at = CASE WHEN attempts > 1 THEN first_at END
WHERE leased = ? AND token = ?
"""


class Mailbox:
    """The row of one mailbox, created when first needed; source and sink share it."""

    def __init__(
        self,
        db: Database,
        name: str,
        *,
        waking: Waking,
        tokens: Tokens,
        make: Callable[[sqlite3.Connection, str], int],
    ) -> None:
        self.db = db
        self.name = name
        self.waking = waking
        self.tokens = tokens
        self.marks = db.sealing.marks()  # of its sums, unless that turns out otherwise
        self._make = make
        self._id: int | None = None

    async def id(self) -> int:
        """The number of its row, which stays for ever."""
        if self._id is None:
            self._id = await self.db.write(lambda c: self._make(c, self.name))
        return self._id

    def forget(self) -> None:
        """Forget a deleted mailbox; its next use creates it again."""
        self._id = None

    def now(self) -> int:
        """Return the time as it is stored."""
        return micros(self.db.clock.now())


class SqliteSink:
    """The way into one mailbox."""

    def __init__(self, box: Mailbox) -> None:
        self.mailbox = box.name
        self._box = box

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none, returning once they are on disk."""
        if not messages:
            return
        box = await self._box.id()
        rows = rows_of(messages)
        wait = max(0, seconds(delay))
        brief = is_brief(len(rows), sum([len(row[1]) for row in rows]))
        while not await self._sent(box, rows, messages, wait, brief=brief):
            pass  # the sums of the mailbox are made with another key by now
        self._box.waking.ring(box)

    async def _sent(
        self,
        box: int,
        rows: Sequence[MessageRow],
        messages: Sequence[Message],
        wait: int,
        *,
        brief: bool,
    ) -> bool:
        marks, now = self._box.marks, self._box.now
        total = leaving("sent", len(rows), marks.messages(messages))
        try:
            await self._box.db.write(
                lambda c: _send(c, box, rows, (marks, total), now(), wait), brief=brief
            )
        except _OtherMarks as error:
            self._box.marks = error.marks
            return False
        return True


class _OtherMarks(Exception):
    """The sums of a mailbox are made of other marks than we took them for."""

    def __init__(self, marks: Marks) -> None:
        super().__init__(marks)
        self.marks = marks


class SqliteSource:
    """Deliveries of one mailbox."""

    def __init__(self, box: Mailbox, features: Features) -> None:
        self.mailbox = box.name
        self.features = features
        self._box = box

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1:
            return []
        box = await self._box.id()
        limit = 1 if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            found = await self._claim(box, limit, lease, alone=alone)
            left = deadline - loop.time()
            if found or left <= 0:
                return found
            with self._box.waking.bell(box, alone=alone) as bell:
                await bell.wait(left)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Forget or hand back, in one transaction; says for each if it was ours."""
        if not settlements:
            return []
        box = await self._box.id()
        batch = sorted_out(settlements, box)
        now, write = self._box.now, self._box.db.write
        try:
            await write(lambda c: settle(c, batch, now()), brief=True, patient=True)
            ours: Sequence[bool] = [True] * len(settlements)
        except NotAllOurs:
            ours = await write(lambda c: settle_ours(c, settlements, box, now()))
        if batch.released:
            self._box.waking.ring(box)
        return ours

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        if not deliveries:
            return []
        box = await self._box.id()
        receipts = {delivery.receipt for delivery in deliveries}
        by = seconds(lease)
        now, write = self._box.now, self._box.db.write
        try:
            await write(lambda c: extend(c, receipts, box, now(), by), brief=True)
        except NotAllOurs:
            ours = await write(lambda c: extend_ours(c, receipts, box, now(), by))
            return [delivery.receipt in ours for delivery in deliveries]
        return [True] * len(deliveries)

    async def _claim(
        self, box: int, limit: int, lease: float, *, alone: bool
    ) -> Sequence[Delivery]:
        token, until = self._box.tokens.next(), 0
        sql = _CLAIM_SUSPECT if alone else _CLAIM

        def claim(connection: sqlite3.Connection) -> Claimed | None:
            nonlocal until
            now = self._box.now()  # by now: we may have waited for our turn
            span = seconds(lease)
            until = now + span
            values = (token, until, span, alone, now, box, now, limit)
            if connection.execute(sql, values).rowcount == 0:
                return None
            return read_claimed(connection, until, token)

        def undo(connection: sqlite3.Connection) -> None:
            connection.execute(_UNDO, (until, token))

        try:
            claimed = await self._box.db.write(claim, brief=True)
        except asyncio.CancelledError:
            # Nobody will ever see these deliveries: as if they had not been made.
            with suppress(DeadLetterError):  # closed meanwhile: the lease runs out
                self._box.db.submit(undo, brief=True).add_done_callback(_ignore)
            raise
        return [] if claimed is None else claimed.deliveries({box: self.mailbox})


def _send(  # noqa: PLR0917 -- one batch
    connection: sqlite3.Connection,
    box: int,
    rows: Sequence[MessageRow],
    sum_: tuple[Marks, int],
    now: int,
    wait: int,
) -> None:
    marks, total = sum_
    counted = connection.execute(COUNT_SENT, (len(rows), total, box))
    expire_after, key_id = counted.fetchone()
    if key_id != marks.key_id:
        real = sealing_of(connection).marks(key_id)
        if real is not marks:
            raise _OtherMarks(real)
    for sql, values in insertions(box, rows, expire_after, now, wait):
        connection.execute(sql, values)


def insertions(
    box: int, rows: Sequence[MessageRow], expire_after: float | None, now: int, wait: int
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the statements that put rows into a mailbox, each with its values."""
    expiry = None if expire_after is None else now + seconds(expire_after)
    due = now + wait
    for start in range(0, len(rows), _QUEUE_CHUNK):
        chunk = rows[start : start + _QUEUE_CHUNK]
        values: list[Any] = []
        for id_, body, extra, sent_at, expires_at in chunk:
            expires = expiry if expires_at is None else expires_at
            first_due = due if expires is None else min(due, expires)
            values += (box, id_, body, extra, sent_at, expires, first_due, wait)
        yield _insert(len(chunk)), values


@cache
def _insert(count: int) -> str:
    return _INSERT + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * count)


def _ignore(future: asyncio.Future[Any]) -> None:
    # If undoing failed the lease runs out instead; the error was for nobody.
    if not future.cancelled():
        future.exception()
