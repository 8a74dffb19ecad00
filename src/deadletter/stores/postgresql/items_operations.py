"""Operations of the queue server's transactions, on a connection to the database."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from deadletter.core.text import shown, stored
from deadletter.queue_server.model import (
    CLOCK_SLACK,
    NO_LABELS,
    Item,
    LeaseQueue,
    NewItem,
    item_id,
    pack_labels,
    queue_not_found,
    unpack_labels,
)
from deadletter.queue_server.plans import (
    DeadMove,
    ItemFacts,
    ItemState,
    Loads,
    Placement,
    Requeue,
    StateSums,
    StoredQueue,
)
from deadletter.queue_server.queue_rows import (
    CHANGES,
    COLUMNS,
    queue_of,
    stored_queue_of,
    values_of,
)
from deadletter.queue_server.transactions import LeaseChange, StateCounts

from .database import Connection

# ruff: noqa: S608 -- all SQL here is made of constants

# Items as columns, and items read from rows.

ITEM: Final = """
m.seq, m.state, m.due, m.attempts, m.expires, m.enqueue_at, m.created_at,
m.updated_at, m.source_id, m.labels, m.payload
"""
"""The columns that `read_items` takes, in order."""

FACTS: Final = """
m.queue, m.seq, m.partition, m.state, m.attempts, m.expires, m.enqueue_at
"""
"""The columns that `item_facts` takes, in order."""

_LEASED: Final = int(ItemState.LEASED)


class ReadItems(Struct, frozen=True):
    """Items as they were read; made into values after the transaction."""

    rows: Sequence[Any]
    max_attempts: int  # of their queue

    @property
    def count(self) -> int:
        """Return the number of items."""
        return len(self.rows)

    def items(self) -> list[Item]:
        """Return the items in order."""
        return read_items(self.rows, self.max_attempts)


def read_items(rows: Iterable[Any], max_attempts: int) -> list[Item]:
    """Return the items of a queue in order."""
    known, texts = None, NO_LABELS  # mostly the same for a whole batch
    found = []
    # One loop with few calls: it runs for every item.
    for (
        seq, state, due, attempts, expires, enqueue_at, created_at, updated_at,
        source_id, labels, payload,
    ) in rows:  # fmt: skip
        if labels != known:
            known, texts = labels, unpack_labels(labels)
        leased = state == _LEASED
        found.append(
            Item(
                id=item_id(seq),
                payload=payload,
                reference=texts[0],
                encoding=texts[1],
                kind=texts[2],
                attempts=attempts,
                max_attempts=max_attempts,
                source_id=source_id and shown(source_id),
                is_leased=leased,
                lease_deadline=due if leased else None,
                expire_deadline=expires,
                enqueue_at=enqueue_at,
                created_at=created_at,
                updated_at=updated_at,
            )
        )
    found.sort(key=lambda item: item.id)
    return found


def item_facts(row: Sequence[Any]) -> ItemFacts:
    """Return the facts of an item."""
    return ItemFacts(*row[1:7])


def columns_of(batch: Sequence[NewItem]) -> tuple[Sequence[Any], ...]:
    """Return times, labels and payloads; a column without any value is empty."""
    times = [item.enqueue_at for item in batch]
    labels = [pack_labels(item.reference, item.encoding, item.kind) for item in batch]
    return (
        times if any(times) else (),
        labels if any(labels) else (),
        [item.payload for item in batch],
    )


_CLOCK: Final = "SELECT deadletter.clock()"

IS_DEAD_QUEUE: Final = """
EXISTS (SELECT 1 FROM deadletter.lease_queues u WHERE u.dead_queue = q.name)
"""
"""Whether a queue `q` is the dead queue of another one."""

_QUEUE: Final = f"SELECT {COLUMNS}, id, {IS_DEAD_QUEUE} FROM deadletter.lease_queues q"
_QUEUE_BY_NAME: Final = f"{_QUEUE} WHERE name = $1"
_HELD_QUEUE: Final = f"{_QUEUE_BY_NAME} FOR KEY SHARE"
_QUEUES_BY_NUMBER: Final = f"{_QUEUE} WHERE id = ANY($1)"
_ALL_QUEUES: Final = f"SELECT {COLUMNS} FROM deadletter.lease_queues"
_QUEUE_PAGE: Final = f"""
{_ALL_QUEUES} WHERE name >= $1 AND ($3::text IS NULL OR namespace = $3)
ORDER BY name LIMIT $2
"""
# The options of one queue depend on those of others: one change at a time.
_LOCK_QUEUES: Final = "LOCK TABLE deadletter.lease_queues IN SHARE ROW EXCLUSIVE MODE"
_SAVE_QUEUE: Final = f"""
INSERT INTO deadletter.lease_queues ({COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (name) DO UPDATE SET {CHANGES}
"""
# Of items that nobody leases: they are due when their schedule or their life is over, or
# now if they have had their last attempt. A leased item is due when its lease ends.
_SPARE: Final = """
UPDATE deadletter.items SET due = least(enqueue_at, expires)
WHERE due <= $3 AND queue = $1 AND state <> 1 AND ($2::int IS NULL OR attempts < $2)
"""
_SPEND: Final = """
UPDATE deadletter.items SET due = $3 WHERE queue = $1 AND state <> 1 AND attempts >= $2::int
"""
_DETACH_USERS: Final = """
UPDATE deadletter.lease_queues SET dead_queue = NULL WHERE dead_queue = $1
"""
_DELETE_QUEUE: Final = "DELETE FROM deadletter.lease_queues WHERE name = $1 RETURNING id"
_DELETE_LOADS: Final = "DELETE FROM deadletter.lease_loads WHERE queue = $1"
_DELETE_ITEMS_OF_QUEUE: Final = """
WITH gone AS (DELETE FROM deadletter.items WHERE queue = $1 RETURNING 1)
SELECT count(*) FROM gone
"""

_SHARDS: Final = 16  # of each load, so that transactions do not wait for each other
SHARD: Final = f"pg_backend_pid() % {_SHARDS}"
ADD_TO_LOAD: Final = """
ON CONFLICT (queue, partition, shard) DO UPDATE SET load = t.load + excluded.load
"""
_LOADS: Final = """
SELECT partition, sum(load)::bigint FROM deadletter.lease_loads
WHERE queue = $1 GROUP BY partition
"""
_ADD_LOADS: Final = f"""
INSERT INTO deadletter.lease_loads AS t (queue, partition, shard, load)
SELECT queue, partition, {SHARD}, n
FROM unnest($1::int[], $2::int[], $3::bigint[]) AS g (queue, partition, n) {ADD_TO_LOAD}
"""
_NEW_NUMBERS: Final = """
SELECT nextval('deadletter.item_numbers') FROM generate_series(1, $1)
"""

_FACTS_OF: Final = f"""
SELECT {FACTS} FROM deadletter.items m
WHERE m.seq = ANY($1::bigint[]) ORDER BY m.seq FOR UPDATE
"""
_DUE: Final = f"""
SELECT {FACTS} FROM deadletter.items m WHERE due <= $1
ORDER BY due, seq LIMIT $2 FOR UPDATE SKIP LOCKED
"""
NEXT_DUE: Final = """
SELECT due FROM deadletter.items WHERE due IS NOT NULL ORDER BY due, seq LIMIT 1
"""
_REQUEUE: Final = """
UPDATE deadletter.items m
SET updated_at = $6, (seq, state, due, enqueue_at) = (
    SELECT ($2::bigint[])[at], ($3::smallint[])[at], ($4::timestamptz[])[at],
        ($5::timestamptz[])[at]
    FROM array_position($1::bigint[], m.seq) AS at)
WHERE m.seq = ANY($1::bigint[])
"""
_MOVE: Final = """
UPDATE deadletter.items m
SET (seq, source_id) = (
        SELECT ($2::bigint[])[at], ($3::text[])[at]
        FROM array_position($1::bigint[], m.seq) AS at),
    queue = $4, partition = $5, updated_at = $6,
    state = 0, attempts = 0, due = NULL, expires = NULL, enqueue_at = NULL
WHERE m.seq = ANY($1::bigint[])
"""
_REPRIEVE: Final = """
UPDATE deadletter.items SET expires = NULL, due = enqueue_at
WHERE seq = ANY($1::bigint[])
"""
_DELETE: Final = "DELETE FROM deadletter.items WHERE seq = ANY($1::bigint[])"
_REMOVE: Final = """
WITH gone AS (DELETE FROM deadletter.items WHERE {which} RETURNING partition, state)
SELECT partition, state, count(*) FROM gone GROUP BY partition, state
"""
# With the CASE, items are found by their numbers and by no other index.
_REMOVE_NAMED: Final = _REMOVE.format(
    which="seq = ANY($3::bigint[]) AND CASE WHEN partition = $2 THEN queue END = $1"
)
_REMOVE_STATES: Final = _REMOVE.format(which="queue = $1 AND state = ANY($2::smallint[])")
_INSERT: Final = """
INSERT INTO deadletter.items (queue, partition, seq, state, due, attempts,
    expires, enqueue_at, created_at, updated_at, source_id, labels, payload)
SELECT $1, $2, * FROM unnest($3::bigint[], $4::smallint[], $5::timestamptz[],
    $6::int[], $7::timestamptz[], $8::timestamptz[], $9::timestamptz[],
    $10::timestamptz[], $11::text[], $12::bytea[], $13::bytea[])
"""
_INSERTED: Final = f"SELECT {ITEM} FROM deadletter.items m WHERE seq = ANY($1::bigint[])"
_LIST: Final = f"""
SELECT {ITEM} FROM unnest($3::smallint[]) AS meant (state) CROSS JOIN LATERAL (
    SELECT * FROM deadletter.items i
    WHERE i.queue = $1 AND i.partition = $2 AND i.state = meant.state AND i.seq >= $4
    ORDER BY i.seq LIMIT $5) m
ORDER BY m.seq LIMIT $5
"""
_STATE_SUMS: Final = """
SELECT partition, state, count(*), sum($2::timestamptz - created_at),
    sum($2::timestamptz - updated_at)
FROM deadletter.items WHERE queue = $1 GROUP BY partition, state
"""

# Imports into one queue wait for each other: each sees the items of those before it.
_HOLD_IMPORTS: Final = "SELECT FROM deadletter.lease_queues WHERE id = $1 FOR NO KEY UPDATE"
_PRESENT: Final = """
SELECT DISTINCT source_id FROM deadletter.items
WHERE queue = $1 AND source_id = ANY($2::text[])
"""

_LEASES_AT_ONCE: Final = 500  # of each partition
_LEASES_AHEAD: Final = """
SELECT i.seq, i.updated_at, i.due FROM deadletter.lease_queues q
CROSS JOIN generate_series(0, q.partitions - 1) AS p (partition)
CROSS JOIN LATERAL (
    SELECT seq, updated_at, due FROM deadletter.items
    WHERE queue = q.id AND partition = p.partition AND state = 1 AND updated_at > $1
    ORDER BY seq LIMIT $2) i
"""
# A lease that was completed or renewed since is left alone.
_CHANGE_LEASES: Final = """
UPDATE deadletter.items m SET due = g.until, updated_at = $4
FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[]) AS g (seq, leased_at, until)
WHERE m.seq = g.seq AND m.seq = ANY($1::bigint[]) AND m.state = 1
AND m.updated_at = g.leased_at
RETURNING g.leased_at
"""
_NOTIFY: Final = """
SELECT pg_notify('deadletter', 'items:' || name) FROM unnest($1::text[]) AS name
"""


class PostgresqlItemOperations:
    """Operations on a connection, within the transaction that is open there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def now(self) -> datetime:
        """Return the time by the clock of the database."""
        now: datetime = await self._connection.fetchval(_CLOCK)
        return now

    async def queue(self, name: str, *, hold: bool = False) -> StoredQueue:
        """Return a queue; with `hold` nobody can delete it before the end."""
        row = await self._connection.fetchrow(_HELD_QUEUE if hold else _QUEUE_BY_NAME, name)
        if row is None:
            raise queue_not_found(name)
        return stored_queue_of(row, _as_it_is)

    async def queues(self, numbers: Collection[int]) -> dict[int, StoredQueue]:
        """Return queues by number."""
        rows = await self._connection.fetch(_QUEUES_BY_NUMBER, list(numbers))
        return {queue.number: queue for queue in (stored_queue_of(row, _as_it_is) for row in rows)}

    async def all_queues(self) -> dict[str, LeaseQueue]:
        """Return all queues by name, and let nobody else change them."""
        await self._connection.execute(_LOCK_QUEUES)
        return {
            row[0]: queue_of(row, _as_it_is) for row in await self._connection.fetch(_ALL_QUEUES)
        }

    async def queue_page(self, pivot: str, limit: int, namespace: str | None) -> list[LeaseQueue]:
        """Return queues by name."""
        values = stored(pivot), limit, stored(namespace)
        return [
            queue_of(row, _as_it_is) for row in await self._connection.fetch(_QUEUE_PAGE, *values)
        ]

    async def save_queue(self, queue: LeaseQueue, now: datetime) -> None:
        """Insert or update a queue."""
        await self._connection.execute(_SAVE_QUEUE, *values_of(queue, now))

    async def apply_limit(
        self, queue: StoredQueue, last_attempt: int | None, now: datetime
    ) -> None:
        """Make items due now that have had their last attempt, and the others in time."""
        await self._connection.execute(_SPARE, queue.number, last_attempt, now)
        await self._connection.execute(_SPEND, queue.number, last_attempt, now)

    async def delete_queue(self, name: str) -> int:
        """Delete a queue with everything in it."""
        await self._connection.execute(_DETACH_USERS, name)
        number = await self._connection.fetchval(_DELETE_QUEUE, name)
        items = int(await self._connection.fetchval(_DELETE_ITEMS_OF_QUEUE, number))
        await self._connection.execute(_DELETE_LOADS, number)
        return items

    async def loads(self, queue: StoredQueue) -> list[int]:
        """Return the number of items that nobody leases, by partition."""
        rows = await self._connection.fetch(_LOADS, queue.number)
        return loads_by_partition(rows, queue.queue.partitions)

    async def add_loads(self, changes: Loads) -> None:
        """Add to the loads of partitions, in one order for all transactions."""
        rows = sorted((*place, by) for place, by in changes.items() if by)
        if rows:
            await self._connection.execute(_ADD_LOADS, *map(list, zip(*rows, strict=True)))

    async def facts(self, queue: StoredQueue, numbers: Sequence[int]) -> dict[int, ItemFacts]:
        """Return the facts of items by number, and lock them."""
        rows = await self._connection.fetch(_FACTS_OF, numbers)
        return {row[1]: item_facts(row) for row in rows if row[0] == queue.number}

    async def due_items(self, now: datetime, limit: int) -> list[tuple[int, ItemFacts]]:
        """Return items that are due, and lock them."""
        rows = await self._connection.fetch(_DUE, now, limit)
        return [(row[0], item_facts(row)) for row in rows]

    async def next_due(self) -> datetime | None:
        """Return when the next item is due."""
        at: datetime | None = await self._connection.fetchval(NEXT_DUE)
        return at

    async def requeue_items(self, requeues: Sequence[Requeue], now: datetime) -> None:
        """Put items at the tail of their partitions."""
        await self._connection.execute(
            _REQUEUE,
            [one.facts.number for one in requeues],
            await self._new_numbers(len(requeues)),
            [int(one.state) for one in requeues],
            [one.due for one in requeues],
            [one.enqueue_at for one in requeues],
            now,
        )

    async def reprieve_items(self, numbers: Sequence[int]) -> None:
        """Remove the deadlines of items."""
        await self._connection.execute(_REPRIEVE, numbers)

    async def move_items(
        self, dead: StoredQueue, partition: int, moves: Sequence[DeadMove], now: datetime
    ) -> None:
        """Move items to a dead queue."""
        await self._connection.execute(
            _MOVE,
            [one.facts.number for one in moves],
            await self._new_numbers(len(moves)),
            [item_id(one.facts.number) for one in moves],
            dead.number,
            partition,
            now,
        )

    async def delete_items(self, numbers: Sequence[int]) -> None:
        """Delete items."""
        await self._connection.execute(_DELETE, numbers)

    async def remove_items(
        self, queue: StoredQueue, partition: int, numbers: Sequence[int]
    ) -> StateCounts:
        """Delete items of one partition."""
        values = (queue.number, partition, numbers)
        return _state_counts(await self._connection.fetch(_REMOVE_NAMED, *values))

    async def clear_items(self, queue: StoredQueue, states: Collection[ItemState]) -> StateCounts:
        """Delete all items of a queue in these states."""
        values = (queue.number, sorted(states))
        return _state_counts(await self._connection.fetch(_REMOVE_STATES, *values))

    async def insert_items(
        self, queue: StoredQueue, partition: int, items: Sequence[tuple[Item, Placement]]
    ) -> ReadItems:
        """Insert items as they are."""
        numbers = await self._new_numbers(len(items))
        await self._connection.execute(_INSERT, queue.number, partition, numbers, *_columns(items))
        rows = await self._connection.fetch(_INSERTED, numbers)
        return ReadItems(rows, queue.queue.max_attempts)

    async def list_items(
        self, queue: StoredQueue, partition: int, *, first: int, limit: int, scheduled: bool
    ) -> ReadItems:
        """Return items in order."""
        states = [ItemState.SCHEDULED] if scheduled else [ItemState.WAITING, ItemState.LEASED]
        values = (queue.number, partition, states, first, limit)
        rows = await self._connection.fetch(_LIST, *values)
        return ReadItems(rows, queue.queue.max_attempts)

    async def state_sums(
        self, queue: StoredQueue, now: datetime
    ) -> dict[tuple[int, int], StateSums]:
        """Return numbers and ages of items by partition and state."""
        rows = await self._connection.fetch(_STATE_SUMS, queue.number, now)
        return {
            (partition, state): (count, age.total_seconds(), held.total_seconds())
            for partition, state, count, age, held in rows
        }

    async def present_sources(self, queue: StoredQueue, ids: Collection[str]) -> set[str]:
        """Return which of these sources items of the queue have; other imports wait."""
        await self._connection.execute(_HOLD_IMPORTS, queue.number)
        rows = await self._connection.fetch(_PRESENT, queue.number, list(ids))
        return {row[0] for row in rows}

    async def leases_ahead(self, now: datetime) -> list[LeaseChange]:
        """Return leases that begin in the future, some of every partition."""
        values = (now + CLOCK_SLACK, _LEASES_AT_ONCE)
        rows = await self._connection.fetch(_LEASES_AHEAD, *values)
        return [LeaseChange(*row) for row in rows]

    async def change_leases(self, changes: Sequence[LeaseChange], now: datetime) -> list[datetime]:
        """Set the ends of leases."""
        rows = await self._connection.fetch(
            _CHANGE_LEASES,
            [one.number for one in changes],
            [one.leased_at for one in changes],
            [one.until for one in changes],
            now,
        )
        return [row[0] for row in rows]

    async def notify(self, queues: Collection[str]) -> None:
        """Tell other processes at commit."""
        await self._connection.execute(_NOTIFY, sorted(queues))

    async def _new_numbers(self, count: int) -> list[int]:
        return [row[0] for row in await self._connection.fetch(_NEW_NUMBERS, count)]


def loads_by_partition(rows: Iterable[Sequence[int]], partitions: int) -> list[int]:
    """Return the loads of all partitions from rows of partition and load."""
    found = {row[0]: row[1] for row in rows}
    return [found.get(partition, 0) for partition in range(partitions)]


def _as_it_is(time: datetime) -> datetime:
    return time


def _state_counts(rows: Iterable[Sequence[int]]) -> StateCounts:
    return {(partition, state): count for partition, state, count in rows}


def _columns(items: Sequence[tuple[Item, Placement]]) -> tuple[list[Any], ...]:
    return (
        [int(placement.state) for _, placement in items],
        [placement.due for _, placement in items],
        [item.attempts for item, _ in items],
        [placement.expires for _, placement in items],
        [placement.enqueue_at for _, placement in items],
        [item.created_at for item, _ in items],
        [item.updated_at for item, _ in items],
        [stored(item.source_id) for item, _ in items],
        [pack_labels(item.reference, item.encoding, item.kind) for item, _ in items],
        [item.payload for item, _ in items],
    )
