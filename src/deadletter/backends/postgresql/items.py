"""The items of the queue server, in the database."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from deadletter.core.errors import Refused
from deadletter.core.escaping import stored
from deadletter.core.item_life import Round, first_number, least_loaded
from deadletter.core.item_plans import cleared, numbers_of
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
from deadletter.core.lease_queues import MAX_PARTITIONS, no_queue
from deadletter.ports.items import Shortened, Tended

from . import items_keeping as keeping
from . import items_origins as origins
from . import items_queues as queues
from . import items_tending as tending
from . import items_writing as writing
from .database import Database
from .items_rows import columns_of
from .items_rows import items as items_of
from .items_waking import Readiness
from .waking import Waking


class PostgresqlItems:
    """Lease queues in the database, for any number of processes."""

    def __init__(self, db: Database, waking: Waking) -> None:
        self._db = db
        self._ready = Readiness(waking)
        self._partitions: dict[str, int] = {}  # how many, when we last looked

    async def create_queue(self, queue: LeaseQueue) -> None:
        """Make a queue; one of that name already there is a Conflict."""
        await self._db.write(partial(queues.create, queue=queue))

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change a queue's options. Its number of partitions may only grow."""
        await self._db.write(partial(queues.update, queue=queue))

    async def delete_queue(self, name: str, *, force: bool = False) -> int:
        """Delete a queue and its items; how many went with it."""
        return await self._db.write(partial(queues.delete, name=name, force=force))

    async def queue(self, name: str) -> LeaseQueue:
        """One queue."""
        return (await self._db.read(partial(queues.shelf, name=name))).queue

    async def queues(
        self, *, pivot: str = "", limit: int, namespace: str | None = None
    ) -> Sequence[LeaseQueue]:
        """Queues by name, from `pivot` on, itself included."""
        values = stored(pivot), limit, stored(namespace)
        return [queues.queue_of(r) for r in await self._db.fetch(queues.PAGE, *values)]

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """Add items; each batch goes wholly to the least loaded partition."""
        columns = columns_of([item for batch in batches for item in batch])
        while True:
            known = self._partitions.get(queue, 1)
            places = await self._places(queue, batches, known)
            rows = await self._db.fetch(writing.PRODUCE, queue, known, places, *columns)
            if self._learned(queue, rows) == known:
                break
        self._ready.tell([queue])

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[Leased]:
        """Lend up to so many items to each, counting the attempt."""
        known = self._partitions.get(queue, 1)
        handing: Round[Item] = Round(wants, await self._by_head(queue, known))
        while asked := handing.ask():
            now_known = await self._lease(queue, asked, handing)
            if now_known != known:  # somebody has added some
                known = now_known
                handing.look_into(await self._by_head(queue, known))
        found = [Leased(number, tuple(items)) for number, items in handing.shares()]
        if not all(leased.items for leased in found):
            self._ready.watch(queue)
        return found

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Denial | None]:
        """Forget leased items for good."""
        if requests and await self._completed(queue, requests):
            return [None] * len(requests)
        return await self._db.write(
            partial(writing.complete_some, name=queue, requests=requests)
        )

    async def retry(
        self, queue: str, requests: Sequence[Retrial]
    ) -> Sequence[Denial | Sequence[Departed]]:
        """Give leased items back: to the tail of their partition, or dead."""
        answers, ready = await self._db.write(
            partial(writing.retry, name=queue, requests=requests)
        )
        self._ready.tell(ready)
        return answers

    async def tend(self, *, limit: int = 1000) -> Tended:
        """Take back what was leased for too long, and move what is dead."""
        rows = await self._db.fetch(tending.NEXT)
        next_at, is_due = rows[0] if rows else (None, False)
        if not is_due:
            return Tended(next_at=next_at)
        tended = await self._db.write(partial(tending.tend, limit=limit))
        self._ready.tell(tended.ready)
        return tended

    async def shorten_leases(self) -> Shortened:
        """Shorten leases that began in the future."""
        return await self._db.write(tending.shorten_leases)

    async def forget(self, *, limit: int = 1000) -> bool:
        """Forget where items came from that have been gone for long."""
        rows = await self._db.fetch(origins.FORGET, limit)
        return bool(rows[0][0] == limit)

    async def stats(self, queue: str) -> Sequence[PartitionStats]:
        """What is in each partition."""
        return await self._db.read(partial(keeping.stats, name=queue))

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
        return await self._db.read(
            partial(
                keeping.listed,
                name=queue,
                partition=partition,
                first=first_number(pivot),
                limit=limit,
                scheduled=scheduled,
            )
        )

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """Add items as they are, with ids of their own; those that were added."""
        added = await self._db.write(
            partial(
                keeping.import_items, name=queue, partition=partition, brought=items
            )
        )
        self._ready.tell([queue])
        return added

    async def delete_items(self, queue: str, partition: int, ids: Sequence[str]) -> int:
        """Delete items, leased or not; how many were there."""
        return await self._db.write(
            partial(keeping.delete_items, name=queue, partition=partition, ids=ids)
        )

    async def clear(
        self, queue: str, *, waiting: bool, scheduled: bool, destructive: bool
    ) -> int:
        """Delete what waits or is scheduled; what is leased only if `destructive`."""
        states = cleared(waiting=waiting, scheduled=scheduled, destructive=destructive)
        return await self._db.write(
            partial(keeping.clear, name=queue, states=sorted(states))
        )

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with a queue's name when it may have something."""
        self._ready.on_ready(tell)

    async def stop(self) -> None:
        """Stop watching for what other processes do."""
        await self._ready.stop()

    async def _places(
        self, queue: str, batches: Sequence[Sequence[NewItem]], partitions: int
    ) -> list[int]:
        """The partition of every item; none when there is only one."""
        if partitions == 1:
            return []
        rows = await self._db.fetch(writing.LOADS, queue)
        loads = queues.by_partition(rows, partitions)
        places: list[int] = []
        for batch in batches:
            partition = least_loaded(loads)
            loads[partition] += len(batch)
            places += [partition] * len(batch)
        return places

    async def _by_head(self, queue: str, partitions: int) -> Sequence[int]:
        """The partitions with something that waits, the oldest first."""
        if partitions == 1:
            return [0]
        rows = await self._db.fetch(writing.HEADS, queue)
        self._learned(queue, rows)
        return rows[0][1] or []

    async def _lease(
        self, queue: str, asked: Mapping[int, int], handing: Round[Item]
    ) -> int:
        """Lend what was asked for; how many partitions there are."""
        limits = list(asked), list(asked.values())
        rows = await self._db.fetch(writing.LEASE, queue, *limits)
        lent: dict[int, list[Any]] = {partition: [] for partition in asked}
        for _, partition, *row in rows:
            if partition is not None:  # nothing was there
                lent[partition].append(row)
        for partition, found in lent.items():
            handing.give(partition, items_of(found))
        return self._learned(queue, rows)

    async def _completed(self, queue: str, requests: Sequence[Completion]) -> bool:
        """Whether all could be applied; otherwise none was."""
        places = {request.partition for request in requests}
        ids = [id_ for request in requests for id_ in request.ids]
        numbers = numbers_of(ids)
        (place, *others) = places
        if others or len(numbers) != len(ids) or not 0 <= place < MAX_PARTITIONS:
            return False
        if not numbers:
            return False
        try:
            await self._db.fetch(writing.COMPLETE, queue, place, numbers, len(numbers))
        except Refused:  # one of them is not there, or not leased
            return False
        return True

    def _learned(self, queue: str, rows: Sequence[Any]) -> int:
        """How many partitions there are, as an answer tells."""
        if not rows:
            self._partitions.pop(queue, None)
            raise no_queue(queue)
        self._partitions[queue] = found = int(rows[0][0])
        return found
