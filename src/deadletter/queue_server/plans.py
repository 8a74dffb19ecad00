"""
Decisions about many items at once.

A transaction reads facts about items, makes a plan here, and has it written in a few
statements. Everything here is pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from .model import (
    DeadItem,
    Death,
    Item,
    ItemRetry,
    LeaseQueue,
    PartitionStats,
    Rejection,
    RejectionReason,
    RetryBatch,
    cause_of_death,
    dies_at,
    item_id,
    item_number,
    scheduled_for,
)

Loads: TypeAlias = Counter[tuple[int, int]]
"""Changes of the number of items that nobody leases, by queue and partition."""

StateSums: TypeAlias = tuple[int, float, float]
"""Number of items, and the sums of seconds since they were created and updated."""


class ItemState(IntEnum):
    """Where an item is, as it is stored."""

    WAITING = 0
    LEASED = 1
    SCHEDULED = 2


class StoredQueue(Struct, frozen=True, kw_only=True):
    """A queue with the number that the store knows it by."""

    number: int
    queue: LeaseQueue
    is_dead_queue: bool  # of another queue: its items never die


class ItemFacts(Struct, frozen=True):
    """The parts of an item that decide what becomes of it."""

    number: int
    partition: int
    state: int
    attempts: int
    expires: datetime | None
    enqueue_at: datetime | None

    @property
    def is_leased(self) -> bool:
        """Return whether a client leases the item."""
        return self.state == ItemState.LEASED


class Requeue(Struct, frozen=True):
    """An item that goes to the tail of its partition, or is scheduled."""

    queue: StoredQueue
    facts: ItemFacts
    enqueue_at: datetime | None
    due: datetime | None

    @property
    def state(self) -> ItemState:
        """Return the new state of the item."""
        return ItemState.WAITING if self.enqueue_at is None else ItemState.SCHEDULED


class DeadMove(Struct, frozen=True):
    """A dead item that goes to the dead queue, or is deleted if there is none."""

    queue: StoredQueue
    facts: ItemFacts
    death: Death

    @property
    def dead_item(self) -> DeadItem:
        """Return the item as callers and events report it."""
        options = self.queue.queue
        return DeadItem(options.name, item_id(self.facts.number), self.death, options.dead_queue)


class ItemPlan(Struct):
    """Changes of items that one transaction makes."""

    requeues: list[Requeue] = field(default_factory=list)
    moves: list[DeadMove] = field(default_factory=list)
    reprieves: list[int] = field(default_factory=list)  # of items that can no longer die

    def add_due(self, queue: StoredQueue, facts: ItemFacts, now: datetime) -> None:
        """Plan for an item that is due: its lease, schedule or life is over."""
        death = _death(queue, facts, now)
        is_scheduled_now = facts.enqueue_at is not None and facts.enqueue_at <= now
        if death is not None:
            self.moves.append(DeadMove(queue, facts, death))
        elif facts.is_leased or is_scheduled_now:
            self.requeues.append(_requeue(queue, facts, now, None))
        else:  # its queue has become a dead queue since
            self.reprieves.append(facts.number)

    def add_retry(
        self, queue: StoredQueue, facts: ItemFacts, retry: ItemRetry, now: datetime
    ) -> None:
        """Plan for a leased item that its consumer returns."""
        death = _death(queue, facts, now, declared=retry.dead)
        if death is not None:
            self.moves.append(DeadMove(queue, facts, death))
        else:
            self.requeues.append(_requeue(queue, facts, now, retry.retry_at))

    def ready_queues(self) -> set[str]:
        """Return the queues that have items to lease after this."""
        requeued = {one.queue.queue.name for one in self.requeues if one.enqueue_at is None}
        return requeued.union(self.moves_by_dead_queue())

    def moves_by_dead_queue(self) -> dict[str, list[DeadMove]]:
        """Return the dead items that have a dead queue, by its name."""
        found: dict[str, list[DeadMove]] = {}
        for one in self.moves:
            target = one.queue.queue.dead_queue
            if target is not None:
                found.setdefault(target, []).append(one)
        return found

    def deletions(self) -> list[int]:
        """Return the numbers of the dead items that have no dead queue."""
        return [one.facts.number for one in self.moves if one.queue.queue.dead_queue is None]

    def loads_of_requeues(self) -> Loads:
        """Return the change of loads by leased items that return to their queue."""
        changes: Loads = Counter()
        for one in self.requeues:
            changes[one.queue.number, one.facts.partition] += one.facts.is_leased
        return changes

    def loads_of_moves(self) -> Loads:
        """Return the change of loads by dead items that leave their queue."""
        changes: Loads = Counter()
        for one in self.moves:
            changes[one.queue.number, one.facts.partition] -= not one.facts.is_leased
        return changes

    def dead_items(self) -> list[DeadItem]:
        """Return all dead items."""
        return [one.dead_item for one in self.moves]


class Placement(Struct, frozen=True):
    """Where an imported item is placed, and until when."""

    state: ItemState
    expires: datetime | None
    enqueue_at: datetime | None
    due: datetime | None


def place_import(queue: StoredQueue, item: Item, now: datetime) -> Placement:
    """
    Place an imported item; deadlines that it lacks come from its new queue.

    Only items of dead queues live for ever, and no lease lasts for ever.
    """
    options, in_dead_queue = queue.queue, queue.is_dead_queue
    life = timedelta(seconds=options.expire_timeout)
    expires = None if in_dead_queue else item.expire_deadline or now + life
    if item.is_leased:
        lease = timedelta(seconds=options.lease_timeout)
        return Placement(ItemState.LEASED, expires, None, item.lease_deadline or now + lease)
    dies = dies_at(item.attempts, options.last_attempt, expires, now, in_dead_queue=in_dead_queue)
    at = scheduled_for(item.enqueue_at, now)
    if at is None:
        return Placement(ItemState.WAITING, expires, None, dies)
    return Placement(ItemState.SCHEDULED, expires, at, min(at, dies or at))


def states_to_clear(*, waiting: bool, scheduled: bool, destructive: bool) -> frozenset[ItemState]:
    """Return the states of items to delete; leased items count as waiting ones."""
    is_meant = {
        ItemState.WAITING: waiting,
        ItemState.LEASED: waiting and destructive,
        ItemState.SCHEDULED: scheduled,
    }
    return frozenset(state for state in ItemState if is_meant[state])


def fair_shares(wants: Sequence[int], available: int) -> list[int]:
    """
    Return how many items each client gets when there may be fewer than they want.

    Nobody gets more than it wants. Those who want more than an even share get equally
    many; what cannot be divided goes to the first of them.
    """
    if sum(wants) <= available:
        return list(wants)
    shares = [0] * len(wants)
    modest_first = sorted(range(len(wants)), key=wants.__getitem__)
    left = available
    for place, client in enumerate(modest_first):
        clients = len(wants) - place
        if wants[client] * clients > left:
            for nth, other in enumerate(sorted(modest_first[place:])):
                shares[other] = left // clients + (nth < left % clients)
            break
        shares[client] = wants[client]
        left -= wants[client]
    return shares


def choose_partition(loads: Sequence[int], failures: Mapping[int, int]) -> int:
    """
    Return the partition to write to: with the fewest failures, then the fewest items.

    `loads` are the items that nobody leases, by partition; `failures` has those
    partitions that failed lately.
    """
    return min(range(len(loads)), key=lambda number: (failures.get(number, 0), loads[number]))


Leasable = TypeVar("Leasable")


class LeaseRound(Generic[Leasable]):
    """
    Distributes items to several clients, so that each gets items of one partition.

    Call `next_requests`, take that many items of each partition, and report them with
    `assign`; repeat until `next_requests` is empty. Clients of one partition share what
    it has. A client that got nothing is sent to another partition.
    """

    def __init__(self, wants: Sequence[int], partitions: Collection[int]) -> None:
        self._wants = wants
        self._partitions = list(partitions)  # with items left, in the order to be emptied
        self._clients: dict[int, list[int]] = {}  # by partition, of this turn
        self._assigned: dict[int, tuple[int, Sequence[Leasable]]] = {}  # by client

    def next_requests(self) -> dict[int, int]:
        """Return how many items to take of which partition."""
        self._clients = {}
        if not self._partitions:
            return {}
        left = [i for i, want in enumerate(self._wants) if want and i not in self._assigned]
        for place, client in enumerate(left):
            partition = self._partitions[place % len(self._partitions)]
            self._clients.setdefault(partition, []).append(client)
        return {
            partition: sum(self._wants[client] for client in clients)
            for partition, clients in self._clients.items()
        }

    def replace_partitions(self, partitions: Collection[int]) -> None:
        """Use these partitions for the clients that have nothing yet."""
        self._partitions = list(partitions)

    def assign(self, partition: int, items: Sequence[Leasable]) -> None:
        """Share the items taken of a partition; the clients get them in order of arrival."""
        clients = self._clients[partition]
        wants = [self._wants[client] for client in clients]
        start = 0
        for client, count in zip(clients, fair_shares(wants, len(items)), strict=True):
            if count:
                self._assigned[client] = partition, items[start : start + count]
            start += count
        if sum(wants) > len(items):
            self._partitions.remove(partition)

    def shares(self) -> list[tuple[int, Sequence[Leasable]]]:
        """Return partition and items by client."""
        return [self._assigned.get(i, (0, ())) for i in range(len(self._wants))]


def item_numbers(ids: Iterable[str]) -> list[int]:
    """Return the numbers of items, each once; texts that are not item ids are left out."""
    numbers = map(item_number, dict.fromkeys(ids))
    return [number for number in numbers if number is not None]


def rejection_of(
    queue: StoredQueue, partition: int, ids: Sequence[str], facts: Mapping[int, ItemFacts]
) -> Rejection | None:
    """Return why a request for leased items is rejected, or None if it is valid."""
    if not 0 <= partition < queue.queue.partitions:
        return Rejection(RejectionReason.PARTITION)
    if len(set(ids)) < len(ids):
        repeated, _ = Counter(ids).most_common(1)[0]
        return Rejection(RejectionReason.REPEATED, repeated)
    for id_ in ids:
        found = facts.get(item_number(id_) or 0)
        if found is None or found.partition != partition:
            return Rejection(RejectionReason.UNKNOWN, id_)
        if not found.is_leased:
            return Rejection(RejectionReason.NOT_LEASED, id_)
    return None


def plan_retries(
    plan: ItemPlan,
    queue: StoredQueue,
    batches: Sequence[RetryBatch],
    facts: dict[int, ItemFacts],
    now: datetime,
) -> list[Rejection | Sequence[DeadItem]]:
    """Plan for batches, each as a whole or not at all, and return their answers."""
    answers: list[Rejection | Sequence[DeadItem]] = []
    for batch in batches:
        ids = [one.id for one in batch.items]
        rejection = rejection_of(queue, batch.partition, ids, facts)
        if rejection is not None:
            answers.append(rejection)
            continue
        before = len(plan.moves)
        for one in batch.items:
            plan.add_retry(queue, facts.pop(item_number(one.id) or 0), one, now)
        answers.append([one.dead_item for one in plan.moves[before:]])
    return answers


def partition_stats(
    partition: int, sums: Mapping[tuple[int, int], StateSums], *, failures: int = 0
) -> PartitionStats:
    """Return the statistics of one partition from sums by partition and state."""
    nothing: StateSums = (0, 0.0, 0.0)
    waiting, age, _ = sums.get((partition, ItemState.WAITING), nothing)
    leased, leased_age, held = sums.get((partition, ItemState.LEASED), nothing)
    scheduled, _, _ = sums.get((partition, ItemState.SCHEDULED), nothing)
    total = waiting + leased
    return PartitionStats(
        partition=partition,
        failures=failures,
        total=total,
        leased=leased,
        scheduled=scheduled,
        # An imported item may have been created in the future.
        average_age=max(0.0, age + leased_age) / max(1, total),
        average_leased_age=max(0.0, held) / max(1, leased),
    )


def _death(
    queue: StoredQueue, facts: ItemFacts, now: datetime, *, declared: bool = False
) -> Death | None:
    return cause_of_death(
        facts.attempts,
        queue.queue.last_attempt,
        facts.expires,
        now,
        in_dead_queue=queue.is_dead_queue,
        declared=declared,
    )


def _requeue(queue: StoredQueue, facts: ItemFacts, now: datetime, wish: datetime | None) -> Requeue:
    at = scheduled_for(wish, now)
    last, in_dead_queue = queue.queue.last_attempt, queue.is_dead_queue
    dies = dies_at(facts.attempts, last, facts.expires, now, in_dead_queue=in_dead_queue)
    return Requeue(queue, facts, at, dies if at is None else min(at, dies or at))
