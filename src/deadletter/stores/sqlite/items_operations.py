"""Operations of the queue server's transactions, on a connection to the file."""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from deadletter.core.text import stored
from deadletter.ports.features import Clock
from deadletter.queue_server.model import Item, LeaseQueue, item_id, pack_labels, queue_not_found
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
from deadletter.queue_server.transactions import LeaseChange, PlacedItem, StateCounts

from .items_rows import FACTS, ReadItems, read_facts, read_items
from .sql import Values, micros, packed, seconds, when, write
from .sql import numbers as as_array

# ruff: noqa: S608 -- all SQL here is made of constants

_SECOND: Final = 1_000_000  # microseconds

_QUEUE: Final = f"""
SELECT {COLUMNS}, id, EXISTS (
    SELECT 1 FROM lease_queues AS user WHERE user.dead_queue = lease_queues.name)
FROM lease_queues
"""
_QUEUE_BY_NAME: Final = f"{_QUEUE} WHERE name = ?"
_QUEUES_BY_NUMBER: Final = f"{_QUEUE} WHERE id IN (SELECT value FROM json_each(?))"
_ALL_QUEUES: Final = f"SELECT {COLUMNS} FROM lease_queues"
_QUEUE_PAGE: Final = f"""
{_ALL_QUEUES} WHERE name >= ? AND (? IS NULL OR namespace = ?) ORDER BY name LIMIT ?
"""
_SAVE_QUEUE: Final = f"""
INSERT INTO lease_queues ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET {CHANGES}
RETURNING id
"""
_ADD_PARTITIONS: Final = """
INSERT OR IGNORE INTO lease_partitions (queue, partition)
WITH RECURSIVE numbered (partition) AS (
    VALUES (0) UNION ALL SELECT partition + 1 FROM numbered WHERE partition + 1 < ?)
SELECT ?, partition FROM numbered
"""
# Of items that nobody leases: they are due when their schedule or their life is over, or
# now if they have had their last attempt. A leased item is due when its lease ends.
_SPEND: Final = """
UPDATE items SET due = :now WHERE queue = :queue AND held = 0 AND attempts >= :last_attempt
"""
_SPARE: Final = """
UPDATE items SET due = CASE WHEN enqueue_at IS NULL THEN expires
    ELSE min(enqueue_at, coalesce(expires, enqueue_at)) END
WHERE due <= :now AND +queue = :queue AND held = 0
AND (:last_attempt IS NULL OR attempts < :last_attempt)
"""
_DETACH_USERS: Final = "UPDATE lease_queues SET dead_queue = NULL WHERE dead_queue = ?"
_DELETE_QUEUE: Final = "DELETE FROM lease_queues WHERE name = ? RETURNING id"
_DELETE_CONTENTS: Final = [
    f"DELETE FROM {table} WHERE queue = ?" for table in ("items", "lease_partitions")
]

_LOADS: Final = """
SELECT json_group_array(load)
FROM (SELECT load FROM lease_partitions WHERE queue = ? ORDER BY partition)
"""
_ADD_LOAD: Final = """
UPDATE lease_partitions SET load = load + ? WHERE queue = ? AND partition = ?
"""
_NEW_NUMBERS: Final = "UPDATE item_numbers SET last = last + ? RETURNING last"

# Most columns are the same for the whole batch.
_ADD: Final = """
INSERT INTO items (queue, created_at, updated_at, state, expires, due,
    seq, partition, labels, payload)
SELECT ?, ?, ?, 0, ?, ?, column1, column2, column3, column4 FROM (VALUES
"""
_SCHEDULE: Final = """
INSERT INTO items (queue, created_at, updated_at, state, expires, due,
    enqueue_at, seq, partition, labels, payload)
SELECT ?, ?, ?, 2, column5 + ?, column5, column5, column1, column2, column3, column4
FROM (VALUES
"""
_INSERT: Final = """
INSERT INTO items (seq, queue, partition, state, held, due, attempts, expires,
    enqueue_at, created_at, updated_at, source_id, labels, payload) VALUES
"""
_INSERTED: Final = "SELECT * FROM items WHERE seq >= ?"

_WAITING_PARTITIONS: Final = """
SELECT json_group_array(partition) FROM (
    SELECT partition, (SELECT seq FROM items WHERE items.queue = p.queue
        AND items.partition = p.partition AND state = 0 AND held = 0
        AND seq >= p.head ORDER BY seq LIMIT 1) AS first
    FROM lease_partitions AS p WHERE queue = ? AND first IS NOT NULL ORDER BY first)
"""
# Dead items are not leased, except in dead queues, where nothing dies.
_FREE: Final = """
WHERE queue = ? AND partition = ? AND state = 0 AND held = 0
AND (items.due IS NULL OR items.due > ?)
"""
_NEXT: Final = f"""
SELECT seq, 1 AS held, ? AS due, attempts + 1 AS attempts, expires, enqueue_at, created_at,
    ? AS updated_at, source_id, labels, payload
FROM items {_FREE} AND seq >= (SELECT p.head FROM lease_partitions AS p
    WHERE p.queue = items.queue AND p.partition = items.partition)
ORDER BY seq LIMIT ?
"""
# The same items again, from the first to the last one that was read, in one pass.
_LEASE: Final = f"""
UPDATE items SET held = 1, due = ?, attempts = attempts + 1, updated_at = ?
{_FREE} AND seq BETWEEN ? AND ?
"""
# Items that return to a queue have new numbers, behind all others. Only dead items that
# were passed over can wait before those that are leased.
_ADVANCE_HEAD: Final = """
UPDATE lease_partitions SET head = ? WHERE queue = ? AND partition = ?
AND NOT EXISTS (SELECT 1 FROM items WHERE due <= ?)
"""

# With the plus, items are found by their numbers and not by looking through the queue.
COMPLETE: Final = """
DELETE FROM items WHERE seq IN (SELECT value FROM json_each(?))
AND +queue = ? AND +partition = ? AND held = 1
"""
FACTS_OF: Final = f"""
SELECT {FACTS} FROM items
WHERE seq IN (SELECT value FROM json_each(?)) AND +queue = ?
"""
DUE: Final = f"""
SELECT {FACTS} FROM (SELECT * FROM items WHERE due <= ? ORDER BY due, seq LIMIT ?)
"""
NEXT_DUE: Final = "SELECT due FROM items WHERE due IS NOT NULL ORDER BY due LIMIT 1"
_REQUEUE: Final = """
UPDATE items SET seq = given.column2, state = given.column3, held = 0,
    due = given.column4, enqueue_at = given.column5, updated_at = ?
FROM (VALUES
"""
_MOVE: Final = """
UPDATE items SET seq = given.column2, queue = ?, partition = ?, updated_at = ?,
    source_id = given.column3, state = 0, held = 0, attempts = 0,
    due = NULL, expires = NULL, enqueue_at = NULL
FROM (VALUES
"""
_GIVEN: Final = ") AS given WHERE items.seq = given.column1"
_REPRIEVE: Final = """
UPDATE items SET expires = NULL, due = enqueue_at
WHERE seq IN (SELECT value FROM json_each(?))
"""
_DELETE: Final = "DELETE FROM items WHERE seq IN (SELECT value FROM json_each(?))"
NAMED: Final = """
FROM items WHERE +queue = :queue AND +partition = :partition
AND seq IN (SELECT value FROM json_each(:numbers))
"""
_IN_STATES: Final = """
FROM items WHERE queue = :queue
AND state + held IN (SELECT value FROM json_each(:states))
"""
_COUNT: Final = "SELECT partition, state + held, count(*) {which} GROUP BY 1, 2"
_LIST: Final = """
SELECT * FROM items WHERE queue = :queue AND partition = :partition
AND state = :state AND seq >= :first ORDER BY seq LIMIT :limit
"""
_STATE_SUMS: Final = """
SELECT partition, state + held, count(*), sum(? - created_at), sum(? - updated_at)
FROM items WHERE queue = ? GROUP BY 1, 2
"""

_PRESENT: Final = """
SELECT DISTINCT source_id FROM items
WHERE queue = ? AND source_id IN (SELECT value FROM json_each(?))
"""

_SCANNED: Final = 500  # items of each partition in one scan for leases
_PARTITIONS: Final = "SELECT queue, partition FROM lease_partitions"
_SCAN: Final = """
SELECT seq, held, due, updated_at FROM items
WHERE queue = ? AND partition = ? AND state = 0 AND seq > ? ORDER BY seq LIMIT ?
"""
# A lease that was completed or renewed since is left alone.
_CHANGE_LEASE: Final = """
UPDATE items SET due = ?, updated_at = ? WHERE seq = ? AND held = 1 AND updated_at = ?
"""

_integers: Final = msgspec.json.Decoder(list[int]).decode


class LeaseScan:
    """
    Position where the scan for misdated leases continues, by partition.

    Leased items are at the head of their partition: a scan ends where none is leased.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], int] = {}

    def next_leases(self, connection: sqlite3.Connection) -> Iterable[tuple[int, int, int]]:
        """Yield number, end and begin of leases, a part of every partition."""
        for place in connection.execute(_PARTITIONS).fetchall():
            values = (*place, self._places.pop(place, -1), _SCANNED)
            rows = connection.execute(_SCAN, values).fetchall()
            leases = [(seq, due, at) for seq, held, due, at in rows if held]
            if leases and len(rows) == _SCANNED:
                self._places[place] = rows[-1][0]
            yield from leases


class SqliteItemOperations:
    """Operations on a connection, within the transaction that is open there."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, scan: LeaseScan) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._clock = clock
        self._scan = scan

    async def now(self) -> datetime:
        """Return the time by the clock of the engine."""
        return self._clock.now()

    async def queue(self, name: str, *, hold: bool = False) -> StoredQueue:
        """Return a queue; whoever writes holds it anyway."""
        row = self._execute(_QUEUE_BY_NAME, (name,)).fetchone()
        if row is None:
            raise queue_not_found(name)
        return stored_queue_of(row, when)

    async def queues(self, numbers: Collection[int]) -> dict[int, StoredQueue]:
        """Return queues by number."""
        rows = self._execute(_QUEUES_BY_NUMBER, (as_array(numbers),))
        return {queue.number: queue for queue in (stored_queue_of(row, when) for row in rows)}

    async def all_queues(self) -> dict[str, LeaseQueue]:
        """Return all queues by name."""
        return {row[0]: queue_of(row, when) for row in self._execute(_ALL_QUEUES)}

    async def queue_page(self, pivot: str, limit: int, namespace: str | None) -> list[LeaseQueue]:
        """Return queues by name."""
        within = stored(namespace)
        return [
            queue_of(row, when)
            for row in self._execute(_QUEUE_PAGE, (pivot, within, within, limit))
        ]

    async def save_queue(self, queue: LeaseQueue, now: datetime) -> None:
        """Insert or update a queue and its partitions."""
        values = values_of(queue, micros(now))
        ((number,),) = self._execute(_SAVE_QUEUE, values).fetchall()
        self._execute(_ADD_PARTITIONS, (queue.partitions, number))

    async def apply_limit(
        self, queue: StoredQueue, last_attempt: int | None, now: datetime
    ) -> None:
        """Make items due now that have had their last attempt, and the others in time."""
        values = {"queue": queue.number, "last_attempt": last_attempt, "now": micros(now)}
        self._execute(_SPARE, values)
        self._execute(_SPEND, values)

    async def delete_queue(self, name: str) -> int:
        """Delete a queue with everything in it."""
        self._execute(_DETACH_USERS, (name,))
        (number,) = self._execute(_DELETE_QUEUE, (name,)).fetchone()
        items, *_ = [self._execute(sql, (number,)).rowcount for sql in _DELETE_CONTENTS]
        return items

    async def loads(self, queue: StoredQueue) -> list[int]:
        """Return the number of items that nobody leases, by partition."""
        (found,) = self._execute(_LOADS, (queue.number,)).fetchone()
        return _integers(found)

    async def add_loads(self, changes: Loads) -> None:
        """Add to the loads of partitions."""
        for (queue, partition), by in changes.items():
            if by:
                self._execute(_ADD_LOAD, (by, queue, partition))

    async def add_items(
        self, queue: StoredQueue, items: Sequence[PlacedItem], now: datetime
    ) -> None:
        """Insert new items."""
        number = self._first_of(len(items))
        rows: list[tuple[Any, ...]] = []
        later: list[tuple[Any, ...]] = []
        for partition, at, item in items:
            labels = pack_labels(item.reference, item.encoding, item.kind)
            if at is None:
                rows.append((number, partition, labels, item.payload))
            else:
                later.append((number, partition, labels, item.payload, micros(at)))
            number += 1
        time = micros(now)
        life = None if queue.is_dead_queue else seconds(queue.queue.expire_timeout)
        expires = None if life is None else time + life
        same = (queue.number, time, time)
        write(self._connection, _ADD, rows, ")", first=(*same, expires, expires))
        write(self._connection, _SCHEDULE, later, ")", first=(*same, life))

    async def waiting_partitions(self, queue: StoredQueue) -> list[int]:
        """Return partitions with waiting items, the oldest items first."""
        if queue.queue.partitions == 1:
            return [0]
        (found,) = self._execute(_WAITING_PARTITIONS, (queue.number,)).fetchone()
        return _integers(found)

    async def lease_items(
        self, queue: StoredQueue, partition: int, limit: int, *, until: datetime, now: datetime
    ) -> ReadItems:
        """Lease the first items of a partition that are alive."""
        time = micros(now)
        dead_by = -1 if queue.is_dead_queue else time
        values = (micros(until), time, queue.number, partition, dead_by)
        found = read_items(self._connection, _NEXT, (*values, limit), queue)
        if found.count:
            self._execute(_LEASE, (*values, found.first, found.last))
            self._execute(_ADVANCE_HEAD, (found.last + 1, *values[2:]))
        return found

    async def facts(self, queue: StoredQueue, numbers: Sequence[int]) -> dict[int, ItemFacts]:
        """Return the facts of items by number."""
        (found,) = self._execute(FACTS_OF, (as_array(numbers), queue.number)).fetchone()
        return {facts.number: facts for _, facts in read_facts(found)}

    async def due_items(self, now: datetime, limit: int) -> list[tuple[int, ItemFacts]]:
        """Return items that are due."""
        (found,) = self._execute(DUE, (micros(now), limit)).fetchone()
        return read_facts(found)

    async def next_due(self) -> datetime | None:
        """Return when the next item is due."""
        row = self._execute(NEXT_DUE).fetchone()
        return None if row is None else when(row[0])

    async def requeue_items(self, requeues: Sequence[Requeue], now: datetime) -> None:
        """Put items at the tail of their partitions."""
        first = self._first_of(len(requeues))
        rows = [
            (
                one.facts.number,
                first + place,
                int(one.state),
                _micros(one.due),
                _micros(one.enqueue_at),
            )
            for place, one in enumerate(requeues)
        ]
        write(self._connection, _REQUEUE, rows, _GIVEN, first=(micros(now),))

    async def reprieve_items(self, numbers: Sequence[int]) -> None:
        """Remove the deadlines of items."""
        self._execute(_REPRIEVE, (as_array(numbers),))

    async def move_items(
        self, dead: StoredQueue, partition: int, moves: Sequence[DeadMove], now: datetime
    ) -> None:
        """Move items to a dead queue."""
        first = self._first_of(len(moves))
        rows = [
            (one.facts.number, first + place, item_id(one.facts.number))
            for place, one in enumerate(moves)
        ]
        values = (dead.number, partition, micros(now))
        write(self._connection, _MOVE, rows, _GIVEN, first=values)

    async def delete_items(self, numbers: Sequence[int]) -> None:
        """Delete items."""
        self._execute(_DELETE, (as_array(numbers),))

    def delete_leased(self, queue: StoredQueue, partition: int, numbers: Sequence[int]) -> int:
        """Delete items of one partition that are leased; return how many were."""
        values = (as_array(numbers), queue.number, partition)
        return self._execute(COMPLETE, values).rowcount

    async def remove_items(
        self, queue: StoredQueue, partition: int, numbers: Sequence[int]
    ) -> StateCounts:
        """Delete items of one partition."""
        values = {"queue": queue.number, "partition": partition, "numbers": as_array(numbers)}
        return self._remove(NAMED, values)

    async def clear_items(self, queue: StoredQueue, states: Collection[ItemState]) -> StateCounts:
        """Delete all items of a queue in these states."""
        return self._remove(_IN_STATES, {"queue": queue.number, "states": as_array(states)})

    async def insert_items(
        self, queue: StoredQueue, partition: int, items: Sequence[tuple[Item, Placement]]
    ) -> ReadItems:
        """Insert items as they are."""
        first = self._first_of(len(items))
        rows = [
            _row(first + place, queue, partition, item, placement)
            for place, (item, placement) in enumerate(items)
        ]
        write(self._connection, _INSERT, rows)
        return read_items(self._connection, _INSERTED, (first,), queue)

    async def list_items(
        self, queue: StoredQueue, partition: int, *, first: int, limit: int, scheduled: bool
    ) -> ReadItems:
        """Return items in order."""
        values = {
            "queue": queue.number,
            "partition": partition,
            "state": ItemState.SCHEDULED if scheduled else ItemState.WAITING,
            "first": first,
            "limit": limit,
        }
        return read_items(self._connection, _LIST, values, queue)

    async def state_sums(
        self, queue: StoredQueue, now: datetime
    ) -> dict[tuple[int, int], StateSums]:
        """Return numbers and ages of items by partition and state."""
        time = micros(now)
        return {
            (partition, state): (count, age / _SECOND, held / _SECOND)
            for partition, state, count, age, held in self._execute(
                _STATE_SUMS, (time, time, queue.number)
            )
        }

    async def present_sources(self, queue: StoredQueue, ids: Collection[str]) -> set[str]:
        """Return which of these sources items of the queue have."""
        values = (queue.number, packed(list(ids)))
        return {id_ for (id_,) in self._execute(_PRESENT, values)}

    async def leases_ahead(self, now: datetime) -> list[LeaseChange]:
        """Return leases that begin after `now`, of the next part of every partition."""
        time = micros(now)
        return [
            LeaseChange(number, when(at), when(due))
            for number, due, at in self._scan.next_leases(self._connection)
            if at > time
        ]

    async def change_leases(self, changes: Sequence[LeaseChange], now: datetime) -> list[datetime]:
        """Set the ends of leases."""
        changed: list[datetime] = []
        for one in changes:
            values = (micros(one.until), micros(now), one.number, micros(one.leased_at))
            if self._execute(_CHANGE_LEASE, values).rowcount:
                changed.append(one.leased_at)
        return changed

    async def notify(self, queues: Collection[str]) -> None:
        """Do nothing: other processes watch the file."""

    def _first_of(self, count: int) -> int:
        """Return the first of `count` new numbers."""
        ((last,),) = self._execute(_NEW_NUMBERS, (count,)).fetchall()
        return int(last) - count + 1

    def _remove(self, which: str, values: Values) -> StateCounts:
        counts: dict[tuple[int, int], int] = defaultdict(int)
        for partition, state, count in self._execute(_COUNT.format(which=which), values):
            counts[partition, state] = count
        self._execute(f"DELETE {which}", values)
        return counts


def _row(
    number: int, queue: StoredQueue, partition: int, item: Item, placement: Placement
) -> tuple[Any, ...]:
    is_leased = placement.state is ItemState.LEASED  # it keeps its place in the queue
    return (
        number,
        queue.number,
        partition,
        int(ItemState.WAITING if is_leased else placement.state),
        int(is_leased),
        _micros(placement.due),
        item.attempts,
        _micros(placement.expires),
        _micros(placement.enqueue_at),
        micros(item.created_at),
        micros(item.updated_at),
        stored(item.source_id),
        pack_labels(item.reference, item.encoding, item.kind),
        item.payload,
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)
