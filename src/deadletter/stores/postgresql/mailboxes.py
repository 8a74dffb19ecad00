"""All mailboxes: their options, their counts, the way to each."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias, cast

from deadletter.core.errors import NotFound
from deadletter.core.seals import MASK, Sealing, leaving, left_over
from deadletter.core.topology import check_creation, check_deletion, check_name, check_update
from deadletter.ports.broker import Fate, QueueInfo, QueueOptions, Reconciled, Swept, reconciled
from deadletter.ports.features import Features

from .database import Connection, Database, Waking, limit_for, sealing_of
from .queue import BEGIN_SUMS, FOLD, Mailbox, PostgresqlSink, PostgresqlSource, span
from .rows import CLAIMED, deliveries

# Waits and leases that would last longer than was asked for.
#
# They were written while the server's clock was ahead. Every sweep looks at a few, and
# goes on where the last one ended.

_AT_ONCE: Final = 500  # rows of each lane to look at in one sweep
_SLACK: Final = timedelta(seconds=1)  # clocks that agree differ by less
_END: Final = datetime(9999, 1, 1, tzinfo=UTC)

# Rows that somebody else is at are left for the next sweep.
_WAITING: Final = """
WITH seen AS MATERIALIZED (
    SELECT box.id, lane.suspect, found.*
    FROM deadletter.mailboxes box
    CROSS JOIN (VALUES (false), (true)) AS lane (suspect)
    LEFT JOIN unnest($1::int[], $2::bool[], $3::timestamptz[])
        AS on_from (id, suspect, below) USING (id, suspect)
    CROSS JOIN LATERAL (
        SELECT seq, due, due - span - deadletter.clock() AS ahead,
            count(*) OVER () AS looked, min(due) OVER () AS lowest
        FROM (
            SELECT seq, due, span FROM deadletter.messages
            WHERE mailbox = box.id AND suspect = lane.suspect AND token IS NULL
            AND due > deadletter.clock() + $5 AND due < coalesce(on_from.below, $6)
            ORDER BY due DESC LIMIT $4
        ) AS far
    ) AS found
    WHERE NOT box.gone
), locked AS MATERIALIZED (
    SELECT m.seq FROM deadletter.messages m
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM seen WHERE ahead > $5))
    AND m.token IS NULL FOR UPDATE SKIP LOCKED
), shortened AS (
    UPDATE deadletter.messages m SET due = deadletter.clock() + m.span
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM locked)) RETURNING m.seq, m.mailbox
)
SELECT id, suspect, min(lowest), max(looked), count(shortened.seq),
    max(ahead) FILTER (WHERE shortened.seq IS NOT NULL),
    CASE WHEN count(shortened.seq) > 0 THEN pg_notify('deadletter', id::text) END
FROM seen LEFT JOIN shortened USING (seq) GROUP BY id, suspect
"""
_CLAIMED: Final = """
WITH locked AS MATERIALIZED (
    SELECT seq, leased - span - deadletter.clock() AS ahead FROM deadletter.messages
    WHERE token IS NOT NULL AND leased > deadletter.clock() + $2
    AND leased - span > deadletter.clock() + $2
    ORDER BY leased DESC LIMIT $1 FOR UPDATE SKIP LOCKED
), shortened AS (
    UPDATE deadletter.messages m SET leased = deadletter.clock() + m.span
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM locked))
)
SELECT count(*), max(ahead) FROM locked
"""


class Misdated:
    """Finds and shortens them, a part of every mailbox at a time."""

    def __init__(self) -> None:
        self._below: dict[tuple[int, bool], datetime] = {}  # where to go on

    async def shorten(self, connection: Connection) -> tuple[int, timedelta, list[int]]:
        """
        Shorten what is found in the transaction of the connection.

        Returns how many there were, how far the furthest was ahead, and the mailboxes
        in which messages wait less long now.
        """
        boxes = [box for box, _ in self._below]
        lanes = [suspect for _, suspect in self._below]
        on_from = (boxes, lanes, [*self._below.values()])
        rows = await connection.fetch(_WAITING, *on_from, _AT_ONCE, _SLACK, _END)
        self._below = {(row[0], row[1]): row[2] for row in rows if row[3] == _AT_ONCE}
        count, furthest = await connection.fetchrow(_CLAIMED, _AT_ONCE, _SLACK)
        found = [row for row in rows if row[4]]
        aheads = [furthest or timedelta(), *(row[5] for row in found)]
        return count + sum(row[4] for row in found), max(aheads), [r[0] for r in found]


# The store-side decider: what lost workers held, and what is past saving.

_LOST_AT_ONCE: Final = 5_000  # a slice, so that nobody waits long for these rows
_FOLDED_AT_ONCE: Final = 5_000  # likewise

# Lost in company, it may have been a neighbour's fault: not charged. Lost alone,
# it was its own.
_TAKE_BACK: Final = """
WITH lost AS MATERIALIZED (
    SELECT seq FROM deadletter.messages
    WHERE token IS NOT NULL AND leased <= deadletter.clock()
    ORDER BY leased LIMIT $1 FOR UPDATE SKIP LOCKED
), freed AS (
    UPDATE deadletter.messages m
    SET token = NULL, leased = NULL, span = '0', alone = false, suspect = true,
        spared = m.spared + CASE WHEN m.alone THEN 0 ELSE 1 END
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM lost)) RETURNING m.mailbox
)
SELECT mailbox, count(*), pg_notify('deadletter', mailbox::text)
FROM freed GROUP BY mailbox
"""
# A dead queue's messages neither expire nor run out of attempts.
_MORTAL: Final = """
SELECT id, max_attempts FROM deadletter.mailboxes mortal
WHERE NOT gone AND NOT EXISTS (
    SELECT 1 FROM deadletter.mailboxes u WHERE u.dead_queue = mortal.name)
"""
_EXPIRED: Final = "expires_at <= deadletter.clock() ORDER BY expires_at"
_EXHAUSTED: Final = """
suspect AND mortal.max_attempts > 0 AND attempts - spared >= mortal.max_attempts
ORDER BY due, seq
"""
# It is not an attempt, so none is counted; and held alone, so that losing it
# again neither charges nor spares it anything.
_CLAIM: Final = f"""
WITH claim AS MATERIALIZED (SELECT nextval('deadletter.tokens') AS token),
doomed AS MATERIALIZED (
    SELECT m.seq FROM ({_MORTAL}) mortal CROSS JOIN LATERAL (
        SELECT seq FROM deadletter.messages
        WHERE mailbox = mortal.id AND token IS NULL AND {{doomed}}
        LIMIT $1 FOR UPDATE SKIP LOCKED) m
    LIMIT $1)
UPDATE deadletter.messages m
SET token = (SELECT token FROM claim), leased = deadletter.clock() + $2, span = $2,
    alone = true
WHERE m.seq = ANY(ARRAY(SELECT seq FROM doomed))
RETURNING {CLAIMED}
"""  # noqa: S608 -- made of constants
_DOOM: Final = [_CLAIM.format(doomed=doomed) for doomed in (_EXPIRED, _EXHAUSTED)]
NOW: Final = "SELECT deadletter.clock()"
_NAMES: Final = "SELECT id, name FROM deadletter.mailboxes"
_SUSPECTS: Final = """
SELECT name FROM deadletter.mailboxes b WHERE EXISTS (
    SELECT 1 FROM deadletter.messages WHERE mailbox = b.id
    AND token IS NULL AND suspect AND due <= deadletter.clock())
"""


async def sweep(
    connection: Connection, misdated: Misdated, *, limit: int, lease: timedelta
) -> tuple[Swept, list[int]]:
    """Do it all in one transaction; also the mailboxes that were given back to."""
    shortened, ahead, hurried = await misdated.shorten(connection)
    lost = await connection.fetch(_TAKE_BACK, _LOST_AT_ONCE)
    rows: list[Any] = []
    for sql in _DOOM:
        if len(rows) < limit:
            rows += await connection.fetch(sql, limit - len(rows), lease)
    names = dict(await connection.fetch(_NAMES)) if rows else {}
    doomed = deliveries(rows, names)
    suspects = frozenset(row[0] for row in await connection.fetch(_SUSPECTS))
    await connection.execute(FOLD, _FOLDED_AT_ONCE)
    swept = Swept(
        sum(row[1] for row in lost),
        suspects,
        tuple(doomed),
        misdated=shortened,
        ahead=ahead.total_seconds(),
        at=await connection.fetchval(NOW),
    )
    return swept, [*hurried, *(row[0] for row in lost)]


# Options are judged by those of other mailboxes: one change at a time.
_LOCK: Final = "LOCK TABLE deadletter.mailboxes IN SHARE ROW EXCLUSIVE MODE"
_FIND: Final = """
SELECT id, marks_key FROM deadletter.mailboxes WHERE name = $1 AND NOT gone
"""
_HOLD: Final = f"{_FIND} FOR SHARE"
_MAKE: Final = """
INSERT INTO deadletter.mailboxes (name, marks_key) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET gone = false RETURNING id, marks_key
"""
_SET: Final = """
UPDATE deadletter.mailboxes
SET dead_queue = $2, max_attempts = $3, expire_after = $4, reference = $5
WHERE name = $1
"""
_EXISTING: Final = """
SELECT name, dead_queue, max_attempts, expire_after, reference
FROM deadletter.mailboxes WHERE NOT gone
"""
_DETACH: Final = """
UPDATE deadletter.mailboxes SET dead_queue = NULL WHERE dead_queue = $1
"""
_LEAVE: Final = """
UPDATE deadletter.mailboxes
SET gone = true, dead_queue = NULL, max_attempts = 0, expire_after = NULL,
    reference = ''
WHERE name = $1 RETURNING id
"""
_EMPTY: Final = """
WITH purged AS (DELETE FROM deadletter.messages WHERE mailbox = $1 RETURNING mark)
SELECT count(*), coalesce(sum(mark), 0) FROM purged
"""
_PURGED: Final = f"""
INSERT INTO deadletter.tally AS t (mailbox, fate, shard, n, marks)
VALUES ($1, '{Fate.PURGED}', 0, $2, $3)
ON CONFLICT (mailbox, fate, shard) DO UPDATE
SET n = t.n + excluded.n, marks = (t.marks + excluded.marks) & {MASK}
"""  # noqa: S608 -- made of constants
_LONG: Final = 3_600.0  # seconds that looking at every message may take
_READY: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM deadletter.messages
    WHERE mailbox = $1 AND token IS NULL AND suspect = false
        AND due <= deadletter.clock()
    LIMIT 1000) AS some
"""
_INFO: Final = """
SELECT b.name, dead_queue, max_attempts, expire_after, reference, b.id,
    c.ready, c.delayed, c.claimed, c.suspects,
    (SELECT sent_at FROM deadletter.messages WHERE mailbox = b.id
        AND token IS NULL AND NOT suspect ORDER BY due, seq LIMIT 1)
FROM deadletter.mailboxes b CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE due <= deadletter.clock() AND NOT suspect) AS ready,
        count(*) FILTER (WHERE due > deadletter.clock() AND NOT suspect) AS delayed,
        count(*) FILTER (WHERE suspect) AS suspects,
        (SELECT count(*) FROM deadletter.messages
            WHERE mailbox = b.id AND token IS NOT NULL) AS claimed
    FROM deadletter.messages WHERE mailbox = b.id AND token IS NULL) c
WHERE NOT gone ORDER BY b.name
"""
_TALLY: Final = """
SELECT mailbox, fate, sum(n)::bigint FROM deadletter.tally GROUP BY mailbox, fate
"""


_SUMS: Final = f"""
SELECT mailbox, fate, sum(n)::bigint, (sum(marks) % {MASK + 1})::bigint
FROM deadletter.tally GROUP BY mailbox, fate
"""  # noqa: S608 -- made of constants
_MAILBOXES_NAMES: Final = """
SELECT id, name, marks_key FROM deadletter.mailboxes ORDER BY name
"""
# Nobody sends or settles until the end, and whoever does so next sees the new key.
_ALONE: Final = (
    "SELECT id, name, marks_key FROM deadletter.mailboxes WHERE id = $1 FOR UPDATE",
    "LOCK TABLE deadletter.messages, deadletter.tally IN SHARE ROW EXCLUSIVE MODE",
)
_IN_MAILBOX: Final = """
SELECT seq, mailbox, id, body, mark FROM deadletter.messages
WHERE mailbox = $2 AND seq > $1 ORDER BY seq LIMIT 1000
"""
_MARK_ANEW: Final = """
UPDATE deadletter.messages m SET mark = g.mark
FROM unnest($1::bigint[], $2::bigint[]) AS g (seq, mark)
WHERE m.seq = g.seq AND m.seq = ANY($1)
"""
_SENT_ANEW: Final = f"""
UPDATE deadletter.tally t SET marks = (t.marks + $2) & {MASK}
WHERE mailbox = $1 AND fate = 'sent' AND shard = (
    SELECT min(shard) FROM deadletter.tally WHERE mailbox = $1 AND fate = 'sent')
"""  # noqa: S608 -- made of constants
_USE_KEY: Final = "UPDATE deadletter.mailboxes SET marks_key = $2 WHERE id = $1"
_THERE: Final = """
SELECT seq, mailbox, id, body, mark FROM deadletter.messages
WHERE seq > $1 ORDER BY seq LIMIT 1000
"""


Held: TypeAlias = tuple[int, bytes]
"""The number of a mailbox, and the id of the key its sums are made with."""


class PostgresqlBroker:
    """The database's mailboxes."""

    def __init__(self, db: Database, features: Features, waking: Waking) -> None:
        self.features = features
        self._db = db
        self._waking = waking
        self._misdated = Misdated()
        self._boxes: dict[str, Mailbox] = {}

    def source(self, mailbox: str) -> PostgresqlSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        return PostgresqlSource(self.box(mailbox), self.features)

    def sink(self, mailbox: str) -> PostgresqlSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return PostgresqlSink(self.box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        await self._db.write(partial(_create, options=options))

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        await self._db.write(partial(_update, options=options))

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""
        purged = await self._db.write(partial(_delete, name=name, force=force))
        if name in self._boxes:
            self._boxes[name].forget()
        return purged

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""
        return await self._db.read(_queues)

    async def reconcile(self) -> Sequence[Reconciled]:
        """Compare the messages that are there with those that came and went."""
        return await self._db.read(_reconcile, within=_LONG)

    @property
    def sealing(self) -> Sealing:
        """Return the keys of the sums of mailboxes."""
        return self._db.sealing

    async def rekey(self) -> int:
        """Make sums that fit anew with the first key; how many mailboxes."""
        boxes = await self._db.fetch(_MAILBOXES_NAMES)
        return sum(
            [await self._db.write(partial(_rekey, box=row[0]), within=_LONG) for row in boxes]
        )

    async def time(self) -> datetime:
        """Return the time on the server."""
        ((now,),) = await self._db.fetch(NOW)
        return cast(datetime, now)

    async def ready(self, mailbox: str) -> int:
        """Return the number of receivable messages, counted up to 1000."""
        rows = await self._db.fetch(_READY, await self.number(mailbox))
        return int(rows[0][0])

    async def reconnect(self) -> None:
        """Give up the connections nobody uses; those in use end by their deadlines."""
        self._db.reconnect()

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: mailboxes of this engine have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Take back what lost workers held, and claim what is past saving."""
        swept, given_back = await self._db.write(
            partial(sweep, misdated=self._misdated, limit=limit, lease=span(lease)),
            within=limit_for(),
        )
        for box in given_back:
            self._waking.ring(box)
        return swept

    async def number(self, mailbox: str) -> int:
        """The number of a mailbox, which is made if it is not there yet."""
        return await self.box(mailbox).id()

    def box(self, name: str) -> Mailbox:
        """Return the way to a mailbox, which is made when its number is first asked for."""
        if name not in self._boxes:
            check_name(name)
            self._boxes[name] = Mailbox(self._db, name, waking=self._waking, make=self._make)
        return self._boxes[name]

    async def _make(self, name: str) -> Held:
        rows = await self._db.fetch(_FIND, name)
        if not rows:
            rows = await self._db.fetch(_MAKE, name, self.sealing.key_id)
        number, key_id = rows[0]
        return number, key_id


async def hold(connection: Connection, name: str) -> Held | None:
    """A mailbox, if there is one, that nobody deletes or changes before the end."""
    row = await connection.fetchrow(_HOLD, name)
    return None if row is None else (row[0], row[1])


async def held(connection: Connection, name: str) -> Held:
    """A mailbox, made if need be, that nobody deletes or changes before the end."""
    check_name(name)
    found = await hold(connection, name)
    if found is None:
        key_id = sealing_of(connection).key_id
        found = await connection.fetchrow(_MAKE, name, key_id)
    number, key_id = found
    return number, key_id


async def _existing(connection: Connection) -> dict[str, QueueOptions]:
    await connection.execute(_LOCK)
    return {row[0]: _options(row) for row in await connection.fetch(_EXISTING)}


def _options(row: Any) -> QueueOptions:
    return QueueOptions(
        name=row[0], dead_queue=row[1], max_attempts=row[2], expire_after=row[3], reference=row[4]
    )


async def _create(connection: Connection, options: QueueOptions) -> None:
    existing = await _existing(connection)
    check_creation(options, existing)
    await connection.execute(_MAKE, options.name, sealing_of(connection).key_id)
    await _set(connection, options)


async def _update(connection: Connection, options: QueueOptions) -> None:
    existing = await _existing(connection)
    check_update(options, existing)
    await _set(connection, options)


async def _set(connection: Connection, options: QueueOptions) -> None:
    await connection.execute(
        _SET,
        options.name,
        options.dead_queue,
        options.max_attempts,
        options.expire_after,
        options.reference,
    )


async def _delete(connection: Connection, name: str, *, force: bool) -> int:
    existing = await _existing(connection)
    if name not in existing:
        raise NotFound(f"there is no queue {name!a}")
    check_deletion(name, existing, force=force)
    await connection.execute(_DETACH, name)
    number = await connection.fetchval(_LEAVE, name)
    purged, marks = await connection.fetchrow(_EMPTY, number)
    if purged:
        total = leaving(Fate.PURGED, purged, int(marks))
        await connection.execute(_PURGED, number, purged, total)
    return int(purged)


async def _reconcile(connection: Connection) -> list[Reconciled]:
    sealing = sealing_of(connection)
    rows = await connection.fetch(_MAILBOXES_NAMES)
    keys = {box: key_id for box, _, key_id in rows}
    counts, sums = await _tallies(connection)
    there: Counter[int] = Counter()
    unmarked: Counter[int] = Counter()
    async for _, box, id_, body, kept in _messages(connection, _THERE):
        if kept is None:
            unmarked[box] += 1
        else:
            there[box] += sealing.marks(keys[box]).message(_text(id_), body)
    return [
        reconciled(
            name,
            sealing,
            key_id,
            counts[box].get("sent", 0),
            same=left_over(counts[box], sums[box]) == there[box] & MASK,
            unmarked=unmarked[box],
        )
        for box, name, key_id in rows
    ]


async def _rekey(connection: Connection, box: int) -> int:
    """Make the sums of a mailbox anew with the first key, if they fit."""
    find, lock = _ALONE
    _, _, key_id = await connection.fetchrow(find, box)
    sealing = sealing_of(connection)
    if key_id == sealing.key_id or not sealing.has(key_id):
        return 0
    await connection.execute(lock)
    counts, sums = await _tallies(connection)
    old, new = sealing.marks(key_id), sealing.marks()
    before = 0
    seqs: list[int] = []
    marks: list[int] = []
    async for seq, _, id_, body, kept in _messages(connection, _IN_MAILBOX, box):
        before += 0 if kept is None else old.message(_text(id_), body)
        seqs.append(seq)
        marks.append(new.message(_text(id_), body))
    if left_over(counts[box], sums[box]) != before & MASK:
        return 0
    total = sum(marks) & MASK
    await connection.execute(_MARK_ANEW, seqs, marks, timeout=_LONG)
    await connection.execute(BEGIN_SUMS, box)
    await connection.execute(_SENT_ANEW, box, total)
    await connection.execute(_USE_KEY, box, sealing.key_id)
    return 1


async def _tallies(
    connection: Connection,
) -> tuple[defaultdict[int, dict[str, int]], defaultdict[int, dict[str, int]]]:
    """Counts and sums of what came and went, by mailbox and fate."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    sums: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for box, fate, n, marks in await connection.fetch(_SUMS, timeout=_LONG):
        counts[box][fate], sums[box][fate] = n, marks
    return counts, sums


async def _messages(connection: Connection, select: str, *values: Any) -> AsyncIterator[Any]:
    after = 0
    while rows := await connection.fetch(select, after, *values, timeout=_LONG):
        after = rows[-1][0]
        for row in rows:
            yield row


def _text(id_: bytes) -> str:
    return id_.decode("utf-8", "surrogatepass")


async def _queues(connection: Connection) -> list[QueueInfo]:
    tally: defaultdict[int, dict[str, int]] = defaultdict(lambda: {"sent": 0})
    for box, fate, n in await connection.fetch(_TALLY):
        tally[box][fate] = n
    return [
        QueueInfo(
            options=_options(row),
            ready=row[6],
            delayed=row[7],
            claimed=row[8],
            suspects=row[9],
            oldest_at=row[10],
            tally=tally[row[5]],
        )
        for row in await connection.fetch(_INFO)
    ]
