"""The port `ItemStore` over the transactions and operations of a store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from deadletter.ports.engine import ShortenedLeases, SweepResult

from . import transactions
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
    first_number,
)
from .partition_health import PartitionHealth
from .plans import StoredQueue, states_to_clear
from .transactions import ItemOperations, LeaseOperations

T = TypeVar("T")
Operations = TypeVar("Operations", bound=ItemOperations)
Transaction: TypeAlias = Callable[[Operations], Coroutine[Any, Any, T]]


class TransactionalItems(ABC, Generic[Operations]):
    """
    Items of a store that runs transactions over its operations.

    A store says how it runs a transaction, and how it tells those who wait for items.
    It may override a method for speed.
    """

    def __init__(self) -> None:
        self._health = PartitionHealth()

    @abstractmethod
    async def _write(
        self, transaction: Transaction[Operations, T], *, items: int | None = None, size: int = 0
    ) -> T:
        """
        Run a transaction that changes the store; return once it is durable.

        `items` and `size` are the number of items and bytes it concerns, if that is known.
        """

    @abstractmethod
    async def _read(self, transaction: Transaction[Operations, T]) -> T:
        """Run a transaction that changes nothing."""

    @abstractmethod
    def _announce(self, queues: Iterable[str]) -> None:
        """Tell those who wait in this process that queues may have items to lease."""

    @abstractmethod
    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """Add items; each batch goes as a whole to the least loaded healthy partition."""

    @abstractmethod
    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[LeasedItems]:
        """Lease up to `wants` items to each client, counting the attempt."""

    async def create_queue(self, queue: LeaseQueue) -> None:
        """Create a queue; raises Conflict if it exists."""
        await self._write(lambda found: transactions.create_queue(found, queue))

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change the options of a queue; it cannot get fewer partitions."""
        await self._write(lambda found: transactions.update_queue(found, queue))
        self._announce([queue.name])

    async def delete_queue(self, name: str, *, force: bool = False) -> int:
        """Delete a queue and its items; return the number of items."""
        return await self._write(lambda found: transactions.delete_queue(found, name, force=force))

    async def queue(self, name: str) -> LeaseQueue:
        """Return one queue."""
        return (await self._read(lambda found: found.queue(name))).queue

    async def queues(
        self, *, pivot: str = "", limit: int, namespace: str | None = None
    ) -> Sequence[LeaseQueue]:
        """Return queues by name, from `pivot` on, itself included."""
        return await self._read(lambda found: found.queue_page(pivot, limit, namespace))

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Rejection | None]:
        """Delete leased items for good."""
        return await self._write(lambda found: transactions.complete(found, queue, requests))

    async def retry(
        self, queue: str, requests: Sequence[RetryBatch]
    ) -> Sequence[Rejection | Sequence[DeadItem]]:
        """Return leased items to their partition, or move them to the dead queue."""
        with self._health.attempt() as attempt:
            answers, ready = await self._write(
                lambda found: transactions.retry(found, queue, requests, attempt)
            )
        self._announce(ready)
        return answers

    async def sweep(self, *, limit: int = 1000) -> SweepResult:
        """Requeue items whose lease expired or whose schedule is due, and move dead ones."""
        next_at, is_due = await self._read(transactions.next_due)
        if not is_due:
            return SweepResult(next_at=next_at)
        with self._health.attempt() as attempt:
            swept = await self._write(lambda found: transactions.sweep(found, limit, attempt))
        self._announce(swept.ready)
        return swept

    async def shorten_leases(self) -> ShortenedLeases:
        """Shorten leases that begin in the future."""

        async def ahead(operations: Operations) -> Sequence[transactions.LeaseChange]:
            return await operations.leases_ahead(await operations.now())

        leases = await self._read(ahead)
        if not leases:
            return ShortenedLeases()
        return await self._write(lambda found: transactions.change_leases(found, leases))

    async def stats(self, queue: str) -> Sequence[PartitionStats]:
        """Return the statistics of each partition."""
        failures = self._health.failures(queue)
        return await self._read(lambda found: transactions.stats(found, queue, failures))

    async def items(
        self, queue: str, partition: int, *, pivot: str = "", limit: int, scheduled: bool = False
    ) -> Sequence[Item]:
        """Return items in order, from `pivot` on, itself included; or scheduled ones."""
        first = first_number(pivot)
        batch = await self._read(
            lambda found: transactions.list_items(
                found, queue, partition, first=first, limit=limit, scheduled=scheduled
            )
        )
        return batch.items()

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """Add items as they are, with new ids; return those that were added."""
        added = await self._write(
            lambda found: transactions.import_items(found, queue, partition, items)
        )
        self._announce([queue])
        return added.items()

    async def delete_items(self, queue: str, partition: int, ids: Sequence[str]) -> int:
        """Delete items, leased or not; return how many there were."""
        return await self._write(
            lambda found: transactions.delete_items(found, queue, partition, ids)
        )

    async def clear(self, queue: str, *, waiting: bool, scheduled: bool, destructive: bool) -> int:
        """Delete waiting or scheduled items; leased ones only if `destructive`."""
        states = states_to_clear(waiting=waiting, scheduled=scheduled, destructive=destructive)
        return await self._write(lambda found: transactions.clear(found, queue, states))


class SteppedItems(TransactionalItems[LeaseOperations]):
    """Items of a store that produces and leases step by step, in a transaction."""

    @abstractmethod
    def _watch(self, queue: StoredQueue) -> None:
        """Watch a queue for changes by other processes: a client found nothing to lease."""

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """Add items; each batch goes as a whole to the least loaded healthy partition."""
        with self._health.attempt() as attempt:
            await self._write(
                partial(transactions.produce, name=queue, batches=batches, attempt=attempt),
                items=sum(map(len, batches)),
                size=sum([len(item.payload) for batch in batches for item in batch]),
            )
        self._announce([queue])

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[LeasedItems]:
        """Lease up to `wants` items to each client, counting the attempt."""
        leases = await self._write(
            partial(transactions.lease, name=queue, wants=wants), items=sum(wants)
        )
        found = leases.by_client()
        if not all(one.items for one in found):
            self._watch(leases.queue)
        return found
