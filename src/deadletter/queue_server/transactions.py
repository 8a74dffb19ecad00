"""
Transactions of the queue server, written once for all stores.

Each is a coroutine that decides in Python and changes a store by a few batch operations.
A store runs it inside one transaction of its own: PostgreSQL awaits it, SQLite and the
memory store run it at once, since their operations never wait (`run_now`).
A transaction checks everything before it changes anything, so that a store without
rollback can run it as well.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from msgspec import Struct

from deadletter.core.errors import NotFound
from deadletter.core.text import stored
from deadletter.ports.engine import ShortenedLeases, SweepResult

from .model import (
    Completion,
    DeadItem,
    Item,
    LeasedItems,
    LeaseQueue,
    NewItem,
    PartitionStats,
    Rejection,
    RetryBatch,
    check_new_queue,
    check_queue_change,
    check_queue_deletion,
    partition_not_found,
    scheduled_for,
    shortened_lease,
)
from .partition_health import WriteAttempt
from .plans import (
    DeadMove,
    ItemFacts,
    ItemPlan,
    ItemState,
    LeaseRound,
    Loads,
    Placement,
    Requeue,
    StateSums,
    StoredQueue,
    item_numbers,
    partition_stats,
    place_import,
    plan_retries,
    rejection_of,
)

PlacedItem: TypeAlias = tuple[int, datetime | None, NewItem]
"""The partition of a new item, when it is scheduled for, and the item."""

StateCounts: TypeAlias = Mapping[tuple[int, int], int]
"""Numbers of items by partition and state."""


class LeaseChange(Struct, frozen=True):
    """A lease that begins in the future, and its corrected end."""

    number: int  # of the item
    leased_at: datetime
    until: datetime


class DeadQueueDeleted(Exception):
    """A dead queue was deleted while items were being moved to it: run again."""


class ItemBatch(Protocol):
    """Items as a store has read them; made into values outside of the transaction."""

    @property
    def count(self) -> int:
        """Return the number of items."""

    def items(self) -> list[Item]:
        """Return the items in order."""


class ItemOperations(Protocol):
    """Batch operations that a store runs inside one transaction."""

    async def now(self) -> datetime:
        """Return the time by the clock of the store."""

    async def queue(self, name: str, *, hold: bool = False) -> StoredQueue:
        """
        Return a queue; raises NotFound.

        With `hold` nobody can delete it before the end of the transaction.
        """

    async def queues(self, numbers: Collection[int]) -> Mapping[int, StoredQueue]:
        """Return queues by number."""

    async def all_queues(self) -> Mapping[str, LeaseQueue]:
        """Return all queues by name, for a change that nobody else makes at the same time."""

    async def queue_page(
        self, pivot: str, limit: int, namespace: str | None
    ) -> Sequence[LeaseQueue]:
        """Return queues by name, from `pivot` on, itself included."""

    async def save_queue(self, queue: LeaseQueue, now: datetime) -> None:
        """Insert a queue, or update one of that name; partitions only become more."""

    async def apply_limit(
        self, queue: StoredQueue, last_attempt: int | None, now: datetime
    ) -> None:
        """
        Make items due now that nobody leases and that have had their last attempt.

        The others are due when their schedule or their life is over.
        """

    async def delete_queue(self, name: str) -> int:
        """Delete a queue with everything in it and detach its users; return the items."""

    async def loads(self, queue: StoredQueue) -> list[int]:
        """Return the number of items that nobody leases, by partition."""

    async def add_loads(self, changes: Loads) -> None:
        """Add to the numbers that `loads` returns."""

    async def facts(self, queue: StoredQueue, numbers: Sequence[int]) -> dict[int, ItemFacts]:
        """Return the facts of items of this queue by number, for a change."""

    async def due_items(self, now: datetime, limit: int) -> Sequence[tuple[int, ItemFacts]]:
        """Return items that are due with the numbers of their queues, for a change."""

    async def next_due(self) -> datetime | None:
        """Return when the next item is due."""

    async def requeue_items(self, requeues: Sequence[Requeue], now: datetime) -> None:
        """Give items new numbers, at the tail of their partitions."""

    async def reprieve_items(self, numbers: Sequence[int]) -> None:
        """Remove the deadlines of items that can no longer die."""

    async def move_items(
        self, dead: StoredQueue, partition: int, moves: Sequence[DeadMove], now: datetime
    ) -> None:
        """Move items to a dead queue, with new numbers and no attempts."""

    async def delete_items(self, numbers: Sequence[int]) -> None:
        """Delete items."""

    async def remove_items(
        self, queue: StoredQueue, partition: int, numbers: Sequence[int]
    ) -> StateCounts:
        """Delete those of these items that are in this partition; return their numbers."""

    async def clear_items(self, queue: StoredQueue, states: Collection[ItemState]) -> StateCounts:
        """Delete all items of a queue in these states; return their numbers."""

    async def insert_items(
        self, queue: StoredQueue, partition: int, items: Sequence[tuple[Item, Placement]]
    ) -> ItemBatch:
        """Insert items as they are, with new numbers; return them as they are stored."""

    async def list_items(
        self, queue: StoredQueue, partition: int, *, first: int, limit: int, scheduled: bool
    ) -> ItemBatch:
        """Return items in order, from the number `first` on; or scheduled ones."""

    async def state_sums(
        self, queue: StoredQueue, now: datetime
    ) -> Mapping[tuple[int, int], StateSums]:
        """Return numbers and ages of items by partition and state."""

    async def present_sources(self, queue: StoredQueue, ids: Collection[str]) -> set[str]:
        """
        Return which of these sources items of the queue have.

        Nobody else imports into the queue before the end of the transaction.
        """

    async def leases_ahead(self, now: datetime) -> Sequence[LeaseChange]:
        """Return leases that may begin after `now`; a part of them if they are many."""

    async def change_leases(self, changes: Sequence[LeaseChange], now: datetime) -> list[datetime]:
        """Set the ends of leases that are unchanged since; return when those began."""

    async def notify(self, queues: Collection[str]) -> None:
        """Tell other processes, at commit, that queues may have items to lease."""


class LeaseOperations(ItemOperations, Protocol):
    """Operations of stores that produce and lease step by step."""

    async def add_items(
        self, queue: StoredQueue, items: Sequence[PlacedItem], now: datetime
    ) -> None:
        """Insert new items."""

    async def waiting_partitions(self, queue: StoredQueue) -> Sequence[int]:
        """Return partitions that may have waiting items, the oldest items first."""

    async def lease_items(
        self, queue: StoredQueue, partition: int, limit: int, *, until: datetime, now: datetime
    ) -> ItemBatch:
        """Lease the first waiting items that are alive, counting the attempt."""


class Leases(Struct, frozen=True):
    """Items that several clients have leased."""

    queue: StoredQueue
    batches: list[ItemBatch]
    shares: list[tuple[int, Sequence[int]]]  # partition, and places in the batches

    def by_client(self) -> list[LeasedItems]:
        """Return the items of each client."""
        items = [item for batch in self.batches for item in batch.items()]
        return [LeasedItems(n, tuple([items[at] for at in places])) for n, places in self.shares]


async def create_queue(operations: ItemOperations, queue: LeaseQueue) -> None:
    """Create a queue; raises Conflict if it exists."""
    check_new_queue(queue, await operations.all_queues())
    await operations.save_queue(queue, await operations.now())


async def update_queue(operations: ItemOperations, queue: LeaseQueue) -> None:
    """Change the options of a queue, also for the items that are in it."""
    existing = await operations.all_queues()
    check_queue_change(queue, existing)
    now = await operations.now()
    await operations.save_queue(queue, now)
    if queue.last_attempt != existing[queue.name].last_attempt:
        changed = await operations.queue(queue.name)
        last_attempt = None if changed.is_dead_queue else queue.last_attempt
        await operations.apply_limit(changed, last_attempt, now)
        await operations.notify([queue.name])


async def delete_queue(operations: ItemOperations, name: str, *, force: bool) -> int:
    """Delete a queue and its items; return the number of items."""
    check_queue_deletion(name, await operations.all_queues(), force=force)
    return await operations.delete_queue(name)


async def produce(
    operations: LeaseOperations,
    name: str,
    batches: Sequence[Sequence[NewItem]],
    attempt: WriteAttempt,
) -> None:
    """Add items, each batch to the healthy partition that is least loaded by then."""
    queue = await operations.queue(name, hold=True)
    now = await operations.now()
    loads = await operations.loads(queue)
    changes: Loads = Loads()
    placed: list[PlacedItem] = []
    for batch in batches:
        partition = attempt.choose(name, loads)
        loads[partition] += len(batch)
        changes[queue.number, partition] += len(batch)
        placed += [(partition, scheduled_for(item.enqueue_at, now), item) for item in batch]
    await operations.add_items(queue, placed, now)
    await operations.add_loads(changes)


async def lease(operations: LeaseOperations, name: str, wants: Sequence[int]) -> Leases:
    """Lease up to `wants` items to each client, each from one partition."""
    queue = await operations.queue(name)
    now = await operations.now()
    until = now + timedelta(seconds=queue.queue.lease_timeout)
    distribution: LeaseRound[int] = LeaseRound(wants, await operations.waiting_partitions(queue))
    batches: list[ItemBatch] = []
    count = 0
    changes: Loads = Loads()
    while requests := distribution.next_requests():
        for partition, limit in requests.items():
            batch = await operations.lease_items(queue, partition, limit, until=until, now=now)
            distribution.assign(partition, range(count, count + batch.count))
            batches.append(batch)
            count += batch.count
            changes[queue.number, partition] -= batch.count
    await operations.add_loads(changes)
    return Leases(queue, batches, distribution.shares())


async def complete(
    operations: ItemOperations, name: str, completions: Sequence[Completion]
) -> list[Rejection | None]:
    """Delete the items of the requests that are valid, and reject the others."""
    queue = await operations.queue(name)
    ids = [id_ for one in completions for id_ in one.ids]
    facts = await operations.facts(queue, item_numbers(ids))
    answers: list[Rejection | None] = []
    completed: list[int] = []
    for one in completions:
        rejection = rejection_of(queue, one.partition, one.ids, facts)
        answers.append(rejection)
        if rejection is None:
            numbers = item_numbers(one.ids)
            completed += numbers
            for number in numbers:
                del facts[number]
    if completed:
        await operations.delete_items(completed)
    return answers


async def retry(
    operations: ItemOperations, name: str, batches: Sequence[RetryBatch], attempt: WriteAttempt
) -> tuple[list[Rejection | Sequence[DeadItem]], set[str]]:
    """Return leased items; also the names of the queues with items to lease after that."""
    queue = await operations.queue(name)
    now = await operations.now()
    ids = [item.id for batch in batches for item in batch.items]
    facts = await operations.facts(queue, item_numbers(ids))
    plan = ItemPlan()
    answers = plan_retries(plan, queue, batches, facts, now)
    await _carry_out(operations, plan, now, attempt)
    return answers, plan.ready_queues()


async def next_due(operations: ItemOperations) -> tuple[datetime | None, bool]:
    """Return when the next item is due, and whether that is now."""
    at = await operations.next_due()
    return at, at is not None and at <= await operations.now()


async def sweep(operations: ItemOperations, limit: int, attempt: WriteAttempt) -> SweepResult:
    """Requeue or move up to `limit` items that are due."""
    # One time for finding and deciding: items that fall due in between are for the next sweep.
    now = await operations.now()
    due = await operations.due_items(now, limit)
    queues = await operations.queues({number for number, _ in due})
    plan = ItemPlan()
    for number, facts in due:
        plan.add_due(queues[number], facts, now)
    await _carry_out(operations, plan, now, attempt)
    return SweepResult(
        tuple(plan.dead_items()),
        frozenset(plan.ready_queues()),
        await operations.next_due(),
        more=len(due) == limit,
    )


async def change_leases(
    operations: ItemOperations, leases: Sequence[LeaseChange]
) -> ShortenedLeases:
    """Shorten those of these leases that begin in the future."""
    now = await operations.now()
    changes = [
        LeaseChange(one.number, one.leased_at, until)
        for one in leases
        if (until := shortened_lease(one.leased_at, one.until, now)) is not None
    ]
    changed = await operations.change_leases(changes, now) if changes else []
    furthest = max(changed, default=now)
    return ShortenedLeases(len(changed), (furthest - now).total_seconds())


async def stats(
    operations: ItemOperations, name: str, failures: Mapping[int, int]
) -> list[PartitionStats]:
    """Return the statistics of each partition; `failures` are those of this process."""
    queue = await operations.queue(name)
    sums = await operations.state_sums(queue, await operations.now())
    return [
        partition_stats(number, sums, failures=failures.get(number, 0))
        for number in range(queue.queue.partitions)
    ]


async def list_items(
    operations: ItemOperations,
    name: str,
    partition: int,
    *,
    first: int,
    limit: int,
    scheduled: bool,
) -> ItemBatch:
    """Return items in order, from the number `first` on; or scheduled ones."""
    queue = await _queue_with(operations, name, partition)
    return await operations.list_items(
        queue, partition, first=first, limit=limit, scheduled=scheduled
    )


async def import_items(
    operations: ItemOperations, name: str, partition: int, items: Sequence[Item]
) -> ItemBatch:
    """Insert items as they are, except those whose source an item of the queue has."""
    queue = await _queue_with(operations, name, partition, hold=True)
    now = await operations.now()
    new = await _with_new_sources(operations, queue, items)
    placed = [(item, place_import(queue, item, now)) for item in new]
    added = await operations.insert_items(queue, partition, placed)
    free = sum(placement.state is not ItemState.LEASED for _, placement in placed)
    await operations.add_loads(Loads({(queue.number, partition): free}))
    await operations.notify([name])
    return added


async def delete_items(
    operations: ItemOperations, name: str, partition: int, ids: Iterable[str]
) -> int:
    """Delete items, leased or not; return how many there were."""
    queue = await _queue_with(operations, name, partition)
    removed = await operations.remove_items(queue, partition, item_numbers(ids))
    return await _count_removed(operations, queue, removed)


async def clear(operations: ItemOperations, name: str, states: Collection[ItemState]) -> int:
    """Delete all items in these states; return how many there were."""
    queue = await operations.queue(name)
    removed = await operations.clear_items(queue, states)
    return await _count_removed(operations, queue, removed)


async def _queue_with(
    operations: ItemOperations, name: str, partition: int, *, hold: bool = False
) -> StoredQueue:
    queue = await operations.queue(name, hold=hold)
    if not 0 <= partition < queue.queue.partitions:
        raise partition_not_found(queue.queue, partition)
    return queue


async def _carry_out(
    operations: ItemOperations, plan: ItemPlan, now: datetime, attempt: WriteAttempt
) -> None:
    if plan.requeues:
        await operations.requeue_items(plan.requeues, now)
    if plan.reprieves:
        await operations.reprieve_items(plan.reprieves)
    await operations.add_loads(plan.loads_of_requeues())  # dead queues are chosen by loads
    for target, moves in plan.moves_by_dead_queue().items():
        attempt.dead_queues.add(target)
        await _move_to_dead_queue(operations, target, moves, now, attempt)
    if deletions := plan.deletions():
        await operations.delete_items(deletions)
    await operations.add_loads(plan.loads_of_moves())
    if ready := plan.ready_queues():
        await operations.notify(ready)


async def _move_to_dead_queue(
    operations: ItemOperations,
    name: str,
    moves: Sequence[DeadMove],
    now: datetime,
    attempt: WriteAttempt,
) -> None:
    try:
        dead = await operations.queue(name, hold=True)
    except NotFound as error:
        raise DeadQueueDeleted from error
    partition = attempt.choose(name, await operations.loads(dead))
    await operations.move_items(dead, partition, moves, now)
    await operations.add_loads(Loads({(dead.number, partition): len(moves)}))


async def _with_new_sources(
    operations: ItemOperations, queue: StoredQueue, items: Sequence[Item]
) -> list[Item]:
    """Return the items whose source no item of the queue has."""
    sources = {stored(item.source_id) for item in items if item.source_id is not None}
    taken = await operations.present_sources(queue, sources) if sources else set()
    new: list[Item] = []
    for item in items:
        source = stored(item.source_id)
        if source is None or source not in taken:
            new.append(item)
        if source is not None:
            taken.add(source)  # of two items with one source, the first counts
    return new


async def _count_removed(
    operations: ItemOperations, queue: StoredQueue, removed: StateCounts
) -> int:
    changes: Loads = Loads()
    for (partition, state), count in removed.items():
        if state != ItemState.LEASED:
            changes[queue.number, partition] -= count
    await operations.add_loads(changes)
    return sum(removed.values())
