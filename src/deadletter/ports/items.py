"""Where the items of the queue server are kept."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from deadletter.core.items import (
    Completion,
    Denial,
    Departed,
    Item,
    Leased,
    LeaseQueue,
    NewItem,
    PartitionStats,
    Retrial,
)


class Tended(Struct, frozen=True):
    """What tending to the queues did, and when there is something to do next."""

    departed: tuple[Departed, ...] = ()
    ready: frozenset[str] = frozenset()  # queues with something to lease again
    next_at: datetime | None = None  # the earliest deadline or schedule ahead
    more: bool = False  # there was more to do than the limit allowed


class Shortened(Struct, frozen=True):
    """Leases that would have lasted too long, since a clock was ahead."""

    leases: int = 0
    ahead: float = 0.0  # seconds by which it was, at most


class ItemStore(Protocol):
    """
    Items in queues, leased and given back.

    Everything is batch-first: what several clients ask of one queue at once is one
    call and one transaction, and each of their requests is applied whole or not at
    all. Time is the store's own clock. Unknown queues are NotFound, also their
    partitions where no Denial says so; what cannot be is a ConfigError that says what
    to do. A lease that ran out holds until `tend` has noticed.
    """

    async def create_queue(self, queue: LeaseQueue) -> None:
        """Make a queue; one of that name already there is a Conflict."""

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change a queue's options. Its number of partitions may only grow."""

    async def delete_queue(self, name: str, *, force: bool = False) -> int:
        """
        Delete a queue and its items; how many went with it.

        One in use as dead queue is deleted only by `force`.
        """

    async def queue(self, name: str) -> LeaseQueue:
        """One queue."""

    async def queues(
        self, *, pivot: str = "", limit: int, namespace: str | None = None
    ) -> Sequence[LeaseQueue]:
        """Queues by name, from `pivot` on, itself included."""

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """
        Add items; each batch goes wholly to the least loaded partition.

        That is the one with the fewest items that nobody has.
        """

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[Leased]:
        """
        Lend up to so many items to each, counting the attempt.

        One partition each, those with the oldest items first. Those for whom nothing
        is left get none.
        """

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Denial | None]:
        """Forget leased items for good."""

    async def retry(
        self, queue: str, requests: Sequence[Retrial]
    ) -> Sequence[Denial | Sequence[Departed]]:
        """
        Give leased items back: to the tail of their partition, or to the dead queue.

        Those without attempts or time left are dead as well. In a dead queue nothing
        dies again: what is called dead there goes to the tail.
        """

    async def tend(self, *, limit: int = 1000) -> Tended:
        """
        Take back what was leased for too long, and move what is dead.

        What is scheduled and due joins the tail. Nobody else does these things: call
        it at `next_at`, and after what may have made that sooner.

        A move to a dead queue is one transaction with the removal, gives a new id,
        and is done once, also if the dead item has been consumed meanwhile. A leased
        item whose lease still runs is left alone. Dead queues' own items never
        expire and never run out of attempts.
        """

    async def shorten_leases(self) -> Shortened:
        """
        Shorten leases that began in the future: a clock was ahead, and was set right.

        Each lasts as long as its queue lends, from now on. Looks at a part of what is
        leased at a time if that is much; call it again and again.
        """

    async def forget(self, *, limit: int = 1000) -> bool:
        """
        Forget where items came from that have been gone for long.

        A source is remembered as long as its item is in the queue, and for at least
        `REMEMBERED` seconds after that and after somebody asked for it last. Says
        whether there was more to look at than the limit allowed.
        """

    async def stats(self, queue: str) -> Sequence[PartitionStats]:
        """What is in each partition."""

    async def items(
        self,
        queue: str,
        partition: int,
        *,
        pivot: str = "",
        limit: int,
        scheduled: bool = False,
    ) -> Sequence[Item]:
        """Items in order, from `pivot` on, itself included; or those scheduled."""

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """
        Add items as they are, with ids of their own; those that were added.

        One with a `source_id` that this queue has had already is skipped, also if it
        is gone since, until that is forgotten. What has no deadline gets the queue's;
        the limit of attempts is the queue's, too.
        """

    async def delete_items(self, queue: str, partition: int, ids: Sequence[str]) -> int:
        """Delete items, leased or not; how many were there."""

    async def clear(
        self, queue: str, *, waiting: bool, scheduled: bool, destructive: bool
    ) -> int:
        """Delete what waits or is scheduled; what is leased only if `destructive`."""

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """
        Have `tell` called with a queue's name when it may have something to lease.

        Also when another process put it there. May be called too often, on the
        event loop.
        """
