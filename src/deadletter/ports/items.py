"""The store of the queue server's items."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from deadletter.queue_server.model import (
    Completion,
    DeadItem,
    Item,
    LeasedItems,
    LeaseQueue,
    NewItem,
    PartitionStats,
    Rejection,
    RetryBatch,
)


class SweepResult(Struct, frozen=True):
    """Changes made by a sweep, and when the next one has something to do."""

    dead: tuple[DeadItem, ...] = ()
    ready: frozenset[str] = frozenset()  # queues with something to lease again
    next_at: datetime | None = None  # the earliest deadline or schedule ahead
    more: bool = False  # the limit was reached: sweep again


class ShortenedLeases(Struct, frozen=True):
    """Leases that were shortened because a clock had been ahead."""

    leases: int = 0
    ahead: float = 0.0  # seconds by which the clock was ahead, at most


class ItemStore(Protocol):
    """
    Items in queues, leased and returned.

    Calls are batches: the requests of several clients to one queue are one call and one
    transaction, and each request is applied as a whole or not at all. Time is the clock
    of the store. Calls for an unknown queue raise NotFound, as do calls for an unknown
    partition unless they answer with a Rejection. Invalid values raise ConfigError. An
    expired lease stays in force until the next `sweep`.
    """

    async def create_queue(self, queue: LeaseQueue) -> None:
        """Create a queue; raises Conflict if it exists."""

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change the options of a queue; it cannot get fewer partitions."""

    async def delete_queue(self, name: str, *, force: bool = False) -> int:
        """
        Delete a queue and its items; return the number of items.

        The dead queue of another one is deleted only with `force`.
        """

    async def queue(self, name: str) -> LeaseQueue:
        """Return one queue."""

    async def queues(
        self, *, pivot: str = "", limit: int, namespace: str | None = None
    ) -> Sequence[LeaseQueue]:
        """Return queues by name, from `pivot` on, itself included."""

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """
        Add items; each batch goes as a whole to the least loaded partition.

        That is the partition with the fewest items that nobody leases.
        """

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[LeasedItems]:
        """
        Lease up to `wants` items to each client, counting the attempt.

        Each client gets items of one partition; partitions with the oldest items come
        first. Clients for which nothing is left get no items.
        """

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Rejection | None]:
        """Delete leased items for good."""

    async def retry(
        self, queue: str, requests: Sequence[RetryBatch]
    ) -> Sequence[Rejection | Sequence[DeadItem]]:
        """
        Return leased items to the tail of their partition, or move them to the dead queue.

        Items without attempts or time left are dead as well. In a dead queue nothing
        dies again: an item that is declared dead there goes to the tail.
        """

    async def sweep(self, *, limit: int = 1000) -> SweepResult:
        """
        Requeue items whose lease expired or whose schedule is due, and move dead ones.

        Nothing else does this: call it at `next_at`, and after every change that may
        have made `next_at` earlier.

        The move to a dead queue is one transaction with the removal, gives a new id, and
        happens once, even if the dead item has been consumed since. An item whose lease
        is still valid is left alone. Items of dead queues never expire and never run out
        of attempts.
        """

    async def shorten_leases(self) -> ShortenedLeases:
        """
        Shorten leases that begin in the future: a clock was ahead and has been corrected.

        Each lasts as long as its queue leases items, from now on. One call looks at a
        part of many leases; call it regularly.
        """

    async def forget(self, *, limit: int = 1000) -> bool:
        """
        Forget the sources of items that have been gone for long.

        A source is remembered while its item is in the queue, and for at least
        `SOURCE_MEMORY` seconds after that and after the last request with it. Return
        whether the limit was reached.
        """

    async def stats(self, queue: str) -> Sequence[PartitionStats]:
        """Return the statistics of each partition."""

    async def items(
        self, queue: str, partition: int, *, pivot: str = "", limit: int, scheduled: bool = False
    ) -> Sequence[Item]:
        """Return items in order, from `pivot` on, itself included; or scheduled ones."""

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """
        Add items as they are, with new ids; return those that were added.

        An item is skipped if the queue remembers its `source_id`, even if that item is
        gone. Missing deadlines come from the queue, as does the limit of attempts.
        """

    async def delete_items(self, queue: str, partition: int, ids: Sequence[str]) -> int:
        """Delete items, leased or not; return how many there were."""

    async def clear(self, queue: str, *, waiting: bool, scheduled: bool, destructive: bool) -> int:
        """Delete waiting or scheduled items; leased ones only if `destructive`."""

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """
        Call `tell` with the name of a queue that may have something to lease.

        Also if another process put it there. The callback runs on the event loop, and
        may come although there is nothing to lease.
        """
