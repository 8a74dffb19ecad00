"""
Items of the queue server in the database.

Producing, leasing and completing are one statement each; everything else runs the
transactions of the queue server.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from deadletter.core.errors import Refused
from deadletter.queue_server.item_store import Transaction, TransactionalItems
from deadletter.queue_server.model import (
    MAX_PARTITIONS,
    SCHEDULE_SLACK,
    Completion,
    Item,
    LeasedItems,
    NewItem,
    Rejection,
    queue_not_found,
)
from deadletter.queue_server.partition_health import WriteAttempt
from deadletter.queue_server.plans import LeaseRound, item_numbers
from deadletter.queue_server.transactions import DeadQueueDeleted

from .database import Connection, Database, SerializationFailure, Waking
from .items_operations import (
    ADD_TO_LOAD,
    IS_DEAD_QUEUE,
    ITEM,
    SHARD,
    PostgresqlItemOperations,
    columns_of,
    loads_by_partition,
    read_items,
)

# ruff: noqa: S608 -- all SQL here is made of constants

T = TypeVar("T")

# The queue may have more partitions than this process knows of. Then nothing is inserted,
# and the answer says how many there are.
_PRODUCE: Final = f"""
WITH q AS MATERIALIZED (
    SELECT id, partitions, CASE WHEN NOT {IS_DEAD_QUEUE}
        THEN make_interval(secs => expire_timeout) END AS life
    FROM deadletter.lease_queues q WHERE name = $1 FOR KEY SHARE
), put AS (
    INSERT INTO deadletter.items (seq, queue, partition, state, created_at,
        updated_at, enqueue_at, due, expires, labels, payload)
    SELECT nextval('deadletter.item_numbers'), q.id, coalesce(g.partition, 0),
        CASE WHEN g.at IS NULL THEN 0 ELSE 2 END, g.now, g.now, g.at,
        coalesce(g.at, g.now + q.life), coalesce(g.at, g.now) + q.life, g.labels,
        g.payload
    FROM q CROSS JOIN (
        SELECT partition, labels, payload, deadletter.clock() AS now,
            CASE WHEN at - deadletter.clock() >= make_interval(secs => {SCHEDULE_SLACK})
                THEN at END AS at
        FROM unnest($3::int[], $4::timestamptz[], $5::bytea[], $6::bytea[])
            AS given (partition, at, labels, payload)) g
    WHERE q.partitions = $2
    RETURNING queue, partition
), counted AS (
    INSERT INTO deadletter.lease_loads AS t (queue, partition, shard, load)
    SELECT queue, partition, {SHARD}, count(*) FROM put
    GROUP BY queue, partition ORDER BY partition {ADD_TO_LOAD}
)
SELECT partitions, pg_notify('deadletter', 'items:' || $1) FROM q
"""
_LOADS: Final = """
SELECT partition, sum(load)::bigint FROM deadletter.lease_loads
WHERE queue = (SELECT id FROM deadletter.lease_queues WHERE name = $1)
GROUP BY partition
"""
_WAITING_PARTITIONS: Final = """
SELECT q.partitions, array_agg(p.partition ORDER BY head.seq)
    FILTER (WHERE head.seq IS NOT NULL)
FROM deadletter.lease_queues q CROSS JOIN generate_series(0, q.partitions - 1)
    AS p (partition)
LEFT JOIN LATERAL (
    SELECT seq FROM deadletter.items
    WHERE queue = q.id AND partition = p.partition AND state = 0
    ORDER BY seq LIMIT 1) head ON true
WHERE q.name = $1 GROUP BY q.partitions
"""
# Dead items are not leased, except in dead queues, where nothing dies.
_LEASE: Final = f"""
WITH q AS MATERIALIZED (
    SELECT id, partitions, max_attempts, {IS_DEAD_QUEUE} AS is_dead_queue,
        deadletter.clock() + make_interval(secs => lease_timeout) AS until
    FROM deadletter.lease_queues q WHERE name = $1
), next AS MATERIALIZED (
    SELECT i.seq FROM q CROSS JOIN unnest($2::int[], $3::int[]) AS w (partition, n)
    CROSS JOIN LATERAL (
        SELECT seq FROM deadletter.items
        WHERE queue = q.id AND partition = w.partition AND state = 0
        AND (due IS NULL OR due > deadletter.clock() OR q.is_dead_queue)
        ORDER BY seq LIMIT w.n FOR UPDATE SKIP LOCKED) i
), leased AS (
    UPDATE deadletter.items m
    SET state = 1, due = (SELECT until FROM q), attempts = m.attempts + 1,
        updated_at = deadletter.clock()
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM next))
    RETURNING m.queue, m.partition, {ITEM}
), counted AS (
    INSERT INTO deadletter.lease_loads AS t (queue, partition, shard, load)
    SELECT queue, partition, {SHARD}, -count(*) FROM leased
    GROUP BY queue, partition ORDER BY partition {ADD_TO_LOAD}
)
SELECT q.partitions, q.max_attempts, m.partition, {ITEM} FROM q LEFT JOIN leased m ON true
"""
# All of them or none: locking the items first would cost as much again. With the CASE,
# items are found by their numbers and by no other index, however few the planner expects.
_COMPLETE: Final = """
WITH gone AS (
    DELETE FROM deadletter.items
    WHERE seq = ANY($3::bigint[]) AND CASE WHEN partition = $2 AND state = 1 THEN queue
        END = (SELECT id FROM deadletter.lease_queues WHERE name = $1)
    RETURNING 1
)
SELECT deadletter.insist(count(*) = $4) FROM gone
"""


class Readiness:
    """
    Callbacks for queues that may have something to lease.

    Queues in which a client found nothing are listened for. A notification may get lost,
    so their callbacks are also called from time to time.
    """

    def __init__(self, waking: Waking) -> None:
        self._waking = waking
        self._callbacks: list[Callable[[str], None]] = []
        self._watched: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the names of queues."""
        self._callbacks.append(tell)

    def announce(self, names: Iterable[str]) -> None:
        """Call back for these queues."""
        for name in names:
            self._watched.discard(name)
            for tell in self._callbacks:
                tell(name)

    def watch(self, name: str) -> None:
        """Listen for a queue in which a client found nothing."""
        if not self._callbacks:
            return
        self._watched.add(name)
        self._waking.listen_for_items(self._heard)
        if self._task is None:
            self._task = asyncio.create_task(self._announce_regularly())

    async def stop(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _heard(self, name: str | None) -> None:
        # Without a name, a notification may have been missed.
        self.announce(list(self._watched) if name is None else [name])

    async def _announce_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._waking.patience)
            self.announce(list(self._watched))


class PostgresqlItems(TransactionalItems[PostgresqlItemOperations]):
    """Items in the database, for any number of processes."""

    def __init__(self, db: Database, waking: Waking) -> None:
        super().__init__()
        self._db = db
        self._ready = Readiness(waking)
        self._partitions: dict[str, int] = {}  # by queue, as the last answer said

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """Add items; each batch goes as a whole to the least loaded healthy partition."""
        columns = columns_of([item for batch in batches for item in batch])
        while True:
            known = self._partitions.get(queue, 1)
            with self._health.attempt() as attempt:
                places = await self._places(queue, batches, known, attempt)
                rows = await self._db.fetch(_PRODUCE, queue, known, places, *columns)
            if self._read_partitions(queue, rows) == known:
                break
        self._ready.announce([queue])

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[LeasedItems]:
        """Lease up to `wants` items to each client, counting the attempt."""
        known = self._partitions.get(queue, 1)
        waiting = await self._waiting_partitions(queue, known)
        distribution: LeaseRound[Item] = LeaseRound(wants, waiting)
        while requests := distribution.next_requests():
            partitions = await self._lease(queue, requests, distribution)
            if partitions != known:  # somebody has added some
                known = partitions
                waiting = await self._waiting_partitions(queue, known)
                distribution.replace_partitions(waiting)
        found = [LeasedItems(number, tuple(items)) for number, items in distribution.shares()]
        if not all(one.items for one in found):
            self._ready.watch(queue)
        return found

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Rejection | None]:
        """Delete leased items for good: in one statement if all requests are valid."""
        if requests and await self._complete_all(queue, requests):
            return [None] * len(requests)
        return await super().complete(queue, requests)

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of a queue that may have something to lease."""
        self._ready.on_ready(tell)

    async def stop(self) -> None:
        """Stop watching for changes by other processes."""
        await self._ready.stop()

    async def _write(
        self,
        transaction: Transaction[PostgresqlItemOperations, T],
        *,
        items: int | None = None,
        size: int = 0,
    ) -> T:
        async def work(connection: Connection) -> T:
            try:
                return await transaction(PostgresqlItemOperations(connection))
            except DeadQueueDeleted as error:
                raise SerializationFailure from error

        return await self._db.write(work)

    async def _read(self, transaction: Transaction[PostgresqlItemOperations, T]) -> T:
        return await self._db.read(lambda c: transaction(PostgresqlItemOperations(c)))

    def _announce(self, queues: Iterable[str]) -> None:
        self._ready.announce(queues)

    async def _places(
        self,
        queue: str,
        batches: Sequence[Sequence[NewItem]],
        partitions: int,
        attempt: WriteAttempt,
    ) -> list[int]:
        """Return the partition of every item, or nothing if there is only one."""
        if partitions == 1:
            attempt.choose(queue, [0])
            return []
        loads = loads_by_partition(await self._db.fetch(_LOADS, queue), partitions)
        places: list[int] = []
        for batch in batches:
            partition = attempt.choose(queue, loads)
            loads[partition] += len(batch)
            places += [partition] * len(batch)
        return places

    async def _waiting_partitions(self, queue: str, partitions: int) -> Sequence[int]:
        """Return the partitions with waiting items, the oldest items first."""
        if partitions == 1:
            return [0]
        rows = await self._db.fetch(_WAITING_PARTITIONS, queue)
        self._read_partitions(queue, rows)
        return rows[0][1] or []

    async def _lease(
        self, queue: str, requests: Mapping[int, int], distribution: LeaseRound[Item]
    ) -> int:
        """Lease items of these partitions; return how many partitions there are."""
        rows = await self._db.fetch(_LEASE, queue, list(requests), list(requests.values()))
        leased: dict[int, list[Any]] = {partition: [] for partition in requests}
        max_attempts = rows[0][1] if rows else 0
        for _, _, partition, *row in rows:
            if partition is not None:  # as it is in the one row without any item
                leased[partition].append(row)
        for partition, found in leased.items():
            distribution.assign(partition, read_items(found, max_attempts))
        return self._read_partitions(queue, rows)

    async def _complete_all(self, queue: str, requests: Sequence[Completion]) -> bool:
        """Complete all requests or none; return whether they were completed."""
        (partition, *others) = {request.partition for request in requests}
        ids = [id_ for request in requests for id_ in request.ids]
        numbers = item_numbers(ids)
        if others or not numbers or len(numbers) != len(ids):
            return False
        if not 0 <= partition < MAX_PARTITIONS:
            return False
        try:
            await self._db.fetch(_COMPLETE, queue, partition, numbers, len(numbers))
        except Refused:  # one of the items does not exist, or is not leased
            return False
        return True

    def _read_partitions(self, queue: str, rows: Sequence[Any]) -> int:
        """Return the number of partitions that an answer states, and remember it."""
        if not rows:
            self._partitions.pop(queue, None)
            raise queue_not_found(queue)
        self._partitions[queue] = found = int(rows[0][0])
        return found
