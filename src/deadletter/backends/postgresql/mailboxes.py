"""All mailboxes: their options, their counts, the way to each."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from deadletter.core.errors import NotFound
from deadletter.core.topology import (
    check_creation,
    check_deletion,
    check_name,
    check_update,
)
from deadletter.ports.broker import Fate, QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Features

from .database import Database, limit_for
from .misdated import Misdated
from .pool import Connection
from .queue import Mailbox, PostgresqlSink, PostgresqlSource
from .settling import span
from .sweeping import NOW, sweep
from .waking import Waking

# Options are judged by those of other mailboxes: one change at a time.
_LOCK: Final = "LOCK TABLE deadletter.mailboxes IN SHARE ROW EXCLUSIVE MODE"
_FIND: Final = "SELECT id FROM deadletter.mailboxes WHERE name = $1 AND NOT gone"
_HOLD: Final = f"{_FIND} FOR SHARE"
_MAKE: Final = """
INSERT INTO deadletter.mailboxes (name) VALUES ($1)
ON CONFLICT (name) DO UPDATE SET gone = false RETURNING id
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
WITH purged AS (DELETE FROM deadletter.messages WHERE mailbox = $1 RETURNING 1)
SELECT count(*) FROM purged
"""
_PURGED: Final = f"""
INSERT INTO deadletter.tally AS t (mailbox, fate, shard, n)
VALUES ($1, '{Fate.PURGED}', 0, $2)
ON CONFLICT (mailbox, fate, shard) DO UPDATE SET n = t.n + excluded.n
"""  # noqa: S608 -- made of constants
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
        return PostgresqlSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> PostgresqlSink:
        """The way into one mailbox, which is made if it is not there yet."""
        return PostgresqlSink(self._box(mailbox))

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

    async def time(self) -> datetime:
        """Return the time on the server."""
        ((now,),) = await self._db.fetch(NOW)
        return cast(datetime, now)

    async def ready(self, mailbox: str) -> int:
        """How many could be taken from a mailbox now; at most 1000 are counted."""
        rows = await self._db.fetch(_READY, await self.number(mailbox))
        return int(rows[0][0])

    async def reconnect(self) -> None:
        """Give up the connections nobody uses; those in use end by their deadlines."""
        self._db.reconnect()

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """None: mailboxes here have no limits of their own."""
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
        return await self._box(mailbox).id()

    def _box(self, name: str) -> Mailbox:
        if name not in self._boxes:
            check_name(name)
            self._boxes[name] = Mailbox(
                self._db, name, waking=self._waking, make=self._make
            )
        return self._boxes[name]

    async def _make(self, name: str) -> int:
        rows = await self._db.fetch(_FIND, name) or await self._db.fetch(_MAKE, name)
        return int(rows[0][0])


async def hold(connection: Connection, name: str) -> int | None:
    """The number of a mailbox, if there is one; nobody deletes it before the end."""
    number: int | None = await connection.fetchval(_HOLD, name)
    return number


async def held(connection: Connection, name: str) -> int:
    """The number of a mailbox, made if need be, that nobody deletes before the end."""
    check_name(name)
    number = await hold(connection, name)
    if number is None:
        number = await connection.fetchval(_MAKE, name)
    return int(number)


async def _existing(connection: Connection) -> dict[str, QueueOptions]:
    await connection.execute(_LOCK)
    return {row[0]: _options(row) for row in await connection.fetch(_EXISTING)}


def _options(row: Any) -> QueueOptions:
    return QueueOptions(
        name=row[0],
        dead_queue=row[1],
        max_attempts=row[2],
        expire_after=row[3],
        reference=row[4],
    )


async def _create(connection: Connection, options: QueueOptions) -> None:
    existing = await _existing(connection)
    check_creation(options, existing)
    await connection.execute(_MAKE, options.name)
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
    purged = int(await connection.fetchval(_EMPTY, number))
    if purged:
        await connection.execute(_PURGED, number, purged)
    return purged


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
