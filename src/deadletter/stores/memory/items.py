"""Items of the queue server in memory: its transactions' operations, and the store."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, TypeVar

from msgspec import Struct, structs

from deadletter.core.text import stored
from deadletter.office.transactions.operations import run_now
from deadletter.ports.features import Clock, Dice
from deadletter.queue_server.item_store import SteppedItems, Transaction
from deadletter.queue_server.model import Item, LeaseQueue, NewItem, item_id, queue_not_found
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
from deadletter.queue_server.transactions import (
    LeaseChange,
    LeaseOperations,
    PlacedItem,
    StateCounts,
)

T = TypeVar("T")

WAITING, LEASED, SCHEDULED = ItemState
_START: Final = 1 << 61  # each store starts to count at random, so that ids differ
_FEW_ALARMS: Final = 1_000


class Row(Struct, kw_only=True):
    """A stored item."""

    content: NewItem
    created_at: datetime
    updated_at: datetime
    queue: int  # number
    partition: int
    expires: datetime | None
    number: int = 0  # the place in the order of its partition
    state: ItemState = WAITING
    attempts: int = 0
    source_id: str | None = None
    enqueue_at: datetime | None = None
    due: datetime | None = None  # when a sweep has to look at it

    def item(self, queue: StoredQueue) -> Item:
        """Return the item as a value."""
        is_leased = self.state is LEASED
        return Item(
            id=item_id(self.number),
            payload=self.content.payload,
            reference=self.content.reference,
            encoding=self.content.encoding,
            kind=self.content.kind,
            attempts=self.attempts,
            max_attempts=queue.queue.max_attempts,
            source_id=self.source_id,
            is_leased=is_leased,
            lease_deadline=self.due if is_leased else None,
            expire_deadline=self.expires,
            enqueue_at=self.enqueue_at,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )

    def facts(self) -> ItemFacts:
        """Return the facts that decide what becomes of the item."""
        return ItemFacts(
            self.number, self.partition, self.state, self.attempts, self.expires, self.enqueue_at
        )


class ReadItems(Struct, frozen=True):
    """Items as they were read."""

    found: list[Item]

    @property
    def count(self) -> int:
        """Return the number of items."""
        return len(self.found)

    def items(self) -> list[Item]:
        """Return the items in order."""
        return self.found


class _Partition:
    """Rows by number, those of each state apart and in order."""

    def __init__(self) -> None:
        self.rows: dict[ItemState, dict[int, Row]] = {state: {} for state in ItemState}


class _Queue:
    """One queue and its rows."""

    def __init__(self, number: int, options: LeaseQueue) -> None:
        self.number = number
        self.options = options
        self.partitions: list[_Partition] = []

    def all_rows(self) -> Iterator[Row]:
        for partition in self.partitions:
            for rows in partition.rows.values():
                yield from rows.values()


class MemoryItemOperations:
    """All queues of one process; every operation is done at once."""

    def __init__(self, clock: Clock, first: int) -> None:
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._by_number: dict[int, _Queue] = {}
        self._rows: dict[int, Row] = {}
        self._last = first  # number of an item or queue
        self._alarms: list[tuple[datetime, int]] = []  # when to sweep which item
        self._most_alarms = _FEW_ALARMS

    async def now(self) -> datetime:
        """Return the time by the clock of the engine."""
        return self._clock.now()

    async def queue(self, name: str, *, hold: bool = False) -> StoredQueue:
        """Return a queue."""
        found = self._queues.get(name)
        if found is None:
            raise queue_not_found(name)
        return self._stored(found)

    async def queues(self, numbers: Collection[int]) -> dict[int, StoredQueue]:
        """Return queues by number."""
        return {number: self._stored(self._by_number[number]) for number in numbers}

    async def all_queues(self) -> dict[str, LeaseQueue]:
        """Return all queues by name."""
        return {name: queue.options for name, queue in self._queues.items()}

    async def queue_page(self, pivot: str, limit: int, namespace: str | None) -> list[LeaseQueue]:
        """Return queues by name."""
        found = [
            queue.options
            for name, queue in sorted(self._queues.items())
            if name >= pivot and namespace in {None, queue.options.namespace}
        ]
        return found[:limit]

    async def save_queue(self, queue: LeaseQueue, now: datetime) -> None:
        """Insert or update a queue and its partitions."""
        found = self._queues.get(queue.name)
        created_at = now if found is None else found.options.created_at
        options = structs.replace(queue, created_at=created_at, updated_at=now)
        if found is None:
            found = _Queue(self._next_number(), options)
            self._queues[queue.name] = self._by_number[found.number] = found
        found.options = options
        missing = queue.partitions - len(found.partitions)
        found.partitions += [_Partition() for _ in range(missing)]

    async def apply_limit(
        self, queue: StoredQueue, last_attempt: int | None, now: datetime
    ) -> None:
        """Make items due now that have had their last attempt, and the others in time."""
        for row in list(self._by_number[queue.number].all_rows()):
            if row.state is LEASED:
                continue
            due = min(filter(None, (row.enqueue_at, row.expires)), default=None)
            if last_attempt is not None and row.attempts >= last_attempt:
                due = now
            if due != row.due:
                row.due = due
                self._alert(row)

    async def delete_queue(self, name: str) -> int:
        """Delete a queue with everything in it."""
        for user in self._queues.values():
            if user.options.dead_queue == name:
                user.options = structs.replace(user.options, dead_queue=None)
        gone = self._queues.pop(name)
        del self._by_number[gone.number]
        rows = list(gone.all_rows())
        for row in rows:
            del self._rows[row.number]
        return len(rows)

    async def loads(self, queue: StoredQueue) -> list[int]:
        """Return the number of items that nobody leases, by partition."""
        return [
            len(partition.rows[WAITING]) + len(partition.rows[SCHEDULED])
            for partition in self._by_number[queue.number].partitions
        ]

    async def add_loads(self, changes: Loads) -> None:
        """Do nothing: loads are counted when they are needed."""

    async def add_items(
        self, queue: StoredQueue, items: Sequence[PlacedItem], now: datetime
    ) -> None:
        """Insert new items."""
        life = timedelta(seconds=queue.queue.expire_timeout)
        for partition, at, item in items:
            expires = None if queue.is_dead_queue else (at or now) + life
            row = Row(
                content=item,
                created_at=now,
                updated_at=now,
                queue=queue.number,
                partition=partition,
                expires=expires,
                enqueue_at=at,
            )
            self._append(row, WAITING if at is None else SCHEDULED, at or expires)

    async def waiting_partitions(self, queue: StoredQueue) -> list[int]:
        """Return partitions with waiting items, the oldest items first."""
        partitions = self._by_number[queue.number].partitions
        heads = [(next(iter(p.rows[WAITING]), None), n) for n, p in enumerate(partitions)]
        return [n for _, n in sorted((head, n) for head, n in heads if head is not None)]

    async def lease_items(
        self, queue: StoredQueue, partition: int, limit: int, *, until: datetime, now: datetime
    ) -> ReadItems:
        """Lease the first items of a partition that are alive."""
        waiting = self._by_number[queue.number].partitions[partition].rows[WAITING]
        alive = (
            row
            for row in waiting.values()
            if queue.is_dead_queue or row.due is None or row.due > now
        )
        rows = list(islice(alive, limit))
        for row in rows:
            self._take(row)
            row.attempts += 1
            row.updated_at = now
            self._place(row, LEASED, until)
        return ReadItems([row.item(queue) for row in rows])

    async def facts(self, queue: StoredQueue, numbers: Sequence[int]) -> dict[int, ItemFacts]:
        """Return the facts of items by number."""
        rows = [self._rows[number] for number in numbers if number in self._rows]
        return {row.number: row.facts() for row in rows if row.queue == queue.number}

    async def due_items(self, now: datetime, limit: int) -> list[tuple[int, ItemFacts]]:
        """Return items that are due, each once: the caller changes all of them."""
        found: list[tuple[int, ItemFacts]] = []
        while len(found) < limit and (at := await self.next_due()) is not None and at <= now:
            _, number = heappop(self._alarms)
            row = self._rows[number]
            found.append((row.queue, row.facts()))
        return found

    async def next_due(self) -> datetime | None:
        """Return when the next item is due."""
        while self._alarms and not self._is_current(self._alarms[0]):
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    async def requeue_items(self, requeues: Sequence[Requeue], now: datetime) -> None:
        """Put items at the tail of their partitions."""
        for one in requeues:
            row = self._take(self._rows.pop(one.facts.number))
            row.updated_at, row.enqueue_at = now, one.enqueue_at
            self._append(row, one.state, one.due)

    async def reprieve_items(self, numbers: Sequence[int]) -> None:
        """Remove the deadlines of items."""
        for number in numbers:
            row = self._rows[number]
            row.expires = None
            self._place(row, row.state, row.enqueue_at)

    async def move_items(
        self, dead: StoredQueue, partition: int, moves: Sequence[DeadMove], now: datetime
    ) -> None:
        """Move items to a dead queue."""
        for one in moves:
            row = self._take(self._rows.pop(one.facts.number))
            row.source_id = item_id(row.number)
            row.queue, row.partition = dead.number, partition
            row.attempts, row.expires = 0, None
            row.enqueue_at, row.updated_at = None, now
            self._append(row, WAITING, None)

    async def delete_items(self, numbers: Sequence[int]) -> None:
        """Delete items."""
        for number in numbers:
            self._take(self._rows.pop(number))

    async def remove_items(
        self, queue: StoredQueue, partition: int, numbers: Sequence[int]
    ) -> StateCounts:
        """Delete items of one partition."""
        rows = [self._rows[number] for number in numbers if number in self._rows]
        place = (queue.number, partition)
        return await self._remove([row for row in rows if (row.queue, row.partition) == place])

    async def clear_items(self, queue: StoredQueue, states: Collection[ItemState]) -> StateCounts:
        """Delete all items of a queue in these states."""
        rows = self._by_number[queue.number].all_rows()
        return await self._remove([row for row in rows if row.state in states])

    async def insert_items(
        self, queue: StoredQueue, partition: int, items: Sequence[tuple[Item, Placement]]
    ) -> ReadItems:
        """Insert items as they are."""
        rows: list[Row] = []
        for item, placement in items:
            row = Row(
                content=NewItem(item.payload, item.reference, item.encoding, item.kind),
                created_at=item.created_at,
                updated_at=item.updated_at,
                queue=queue.number,
                partition=partition,
                expires=placement.expires,
                attempts=item.attempts,
                source_id=item.source_id,
                enqueue_at=placement.enqueue_at,
            )
            self._append(row, placement.state, placement.due)
            rows.append(row)
        return ReadItems([row.item(queue) for row in rows])

    async def list_items(
        self, queue: StoredQueue, partition: int, *, first: int, limit: int, scheduled: bool
    ) -> ReadItems:
        """Return items in order."""
        rows = self._by_number[queue.number].partitions[partition].rows
        listed = rows[SCHEDULED] if scheduled else rows[WAITING] | rows[LEASED]
        numbers = sorted(number for number in listed if number >= first)
        return ReadItems([listed[number].item(queue) for number in numbers[:limit]])

    async def state_sums(
        self, queue: StoredQueue, now: datetime
    ) -> dict[tuple[int, int], StateSums]:
        """Return numbers and ages of items by partition and state."""
        sums: dict[tuple[int, int], StateSums] = defaultdict(lambda: (0, 0.0, 0.0))
        for row in self._by_number[queue.number].all_rows():
            count, age, unchanged = sums[row.partition, row.state]
            sums[row.partition, row.state] = (
                count + 1,
                age + (now - row.created_at).total_seconds(),
                unchanged + (now - row.updated_at).total_seconds(),
            )
        return sums

    async def present_sources(self, queue: StoredQueue, ids: Collection[str]) -> set[str]:
        """Return which of these sources items of the queue have."""
        present = {stored(row.source_id) for row in self._by_number[queue.number].all_rows()}
        return {source for source in ids if source in present}

    async def leases_ahead(self, now: datetime) -> list[LeaseChange]:
        """Return leases that begin after `now`."""
        return [
            LeaseChange(row.number, row.updated_at, row.due)
            for row in self._rows.values()
            if row.state is LEASED and row.due is not None and row.updated_at > now
        ]

    async def change_leases(self, changes: Sequence[LeaseChange], now: datetime) -> list[datetime]:
        """Set the ends of leases."""
        for one in changes:
            row = self._rows[one.number]
            row.updated_at = now
            self._place(row, LEASED, one.until)
        return [one.leased_at for one in changes]

    async def notify(self, queues: Collection[str]) -> None:
        """Do nothing: there is one process only."""

    def _stored(self, queue: _Queue) -> StoredQueue:
        name = queue.options.name
        is_dead_queue = any(user.options.dead_queue == name for user in self._queues.values())
        return StoredQueue(number=queue.number, queue=queue.options, is_dead_queue=is_dead_queue)

    def _next_number(self) -> int:
        self._last += 1
        return self._last

    def _append(self, row: Row, state: ItemState, due: datetime | None) -> None:
        """Put a row at the tail of its partition."""
        row.number = self._next_number()
        self._rows[row.number] = row
        self._place(row, state, due)

    def _place(self, row: Row, state: ItemState, due: datetime | None) -> None:
        """Put a row among those of a state, and set the alarm for it."""
        row.state, row.due = state, due
        self._by_number[row.queue].partitions[row.partition].rows[state][row.number] = row
        self._alert(row)

    def _alert(self, row: Row) -> None:
        """Set the alarm for a row, if it is due at some time."""
        if row.due is None:
            return
        heappush(self._alarms, (row.due, row.number))
        # Most alarms are outdated long before their time.
        if len(self._alarms) > self._most_alarms:
            self._alarms = [alarm for alarm in self._alarms if self._is_current(alarm)]
            heapify(self._alarms)
            self._most_alarms = 2 * len(self._alarms) + _FEW_ALARMS

    def _take(self, row: Row) -> Row:
        """Take a row away from those of its state."""
        del self._by_number[row.queue].partitions[row.partition].rows[row.state][row.number]
        return row

    async def _remove(self, rows: Sequence[Row]) -> StateCounts:
        counts = Counter((row.partition, int(row.state)) for row in rows)
        await self.delete_items([row.number for row in rows])
        return counts

    def _is_current(self, alarm: tuple[datetime, int]) -> bool:
        due, number = alarm
        return number in self._rows and self._rows[number].due == due


class MemoryItems(SteppedItems):
    """Items of one process and one event loop."""

    def __init__(self, *, clock: Clock, dice: Dice) -> None:
        super().__init__()
        self._operations = MemoryItemOperations(clock, int(dice.draw() * _START))
        self._callbacks: list[Callable[[str], None]] = []

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of a queue that may have something to lease."""
        self._callbacks.append(tell)

    async def _write(
        self,
        transaction: Transaction[LeaseOperations, T],
        *,
        items: int | None = None,
        size: int = 0,
    ) -> T:
        return run_now(transaction(self._operations))

    async def _read(self, transaction: Transaction[LeaseOperations, T]) -> T:
        return run_now(transaction(self._operations))

    def _announce(self, queues: Iterable[str]) -> None:
        for queue in queues:
            for tell in self._callbacks:
                tell(queue)

    def _watch(self, queue: StoredQueue) -> None:
        """Do nothing: there is one process only."""
