"""The items of the queue server, in the file."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from deadletter.core.item_life import first_number
from deadletter.core.item_plans import cleared
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
from deadletter.ports.items import Shortened, Tended

from . import items_keeping as keeping
from . import items_origins as origins
from . import items_queues as queues
from . import items_tending as tending
from . import items_writing as writing
from .engine import Database, is_brief
from .items_misdated import MisdatedLeases, shorten
from .items_waking import Readiness
from .rows import micros

_PAGE: Final = 1_000  # items in one answer of SQLite, which must not be too long
_ITEM: Final = 4  # rows' worth of work, with all that it is found by


class SqliteItems:
    """Lease queues in the file, for any number of processes."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._ready = Readiness(db)
        self._misdated = MisdatedLeases()

    async def create_queue(self, queue: LeaseQueue) -> None:
        """Make a queue; one of that name already there is a Conflict."""
        await self._db.write(lambda c: queues.create(c, queue, micros(self._now())))

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change a queue's options. Its number of partitions may only grow."""
        await self._db.write(lambda c: queues.update(c, queue, micros(self._now())))

    async def delete_queue(self, name: str, *, force: bool = False) -> int:
        """Delete a queue and its items; how many went with it."""
        return await self._db.write(lambda c: queues.delete(c, name, force=force))

    async def queue(self, name: str) -> LeaseQueue:
        """One queue."""
        return (await self._db.read(lambda c: queues.shelf(c, name))).queue

    async def queues(
        self, *, pivot: str = "", limit: int, namespace: str | None = None
    ) -> Sequence[LeaseQueue]:
        """Queues by name, from `pivot` on, itself included."""
        return await self._db.read(lambda c: queues.page(c, pivot, limit, namespace))

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """Add items; each batch goes wholly to the least loaded partition."""
        rows = writing.new_rows(batches)
        await self._db.write(
            lambda c: writing.produce(c, queue, rows, self._now()),
            brief=is_brief(
                _ITEM * sum(map(len, batches)),
                sum([len(item.payload) for batch in batches for item in batch]),
            ),
        )
        self._ready.tell([queue])

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[Leased]:
        """Lend up to so many items to each, counting the attempt."""
        lent = await self._db.write(
            lambda c: writing.lease(c, queue, wants, self._now()),
            brief=is_brief(_ITEM * sum(wants)),
        )
        found = [Leased(partition, items) for partition, items in lent.items()]
        if not all(leased.items for leased in found):
            self._ready.watch(queue, lent.queue)
        return found

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Denial | None]:
        """Forget leased items for good."""
        try:
            await self._db.write(
                lambda c: writing.complete(c, queue, requests),
                brief=is_brief(_ITEM * sum([len(one.ids) for one in requests])),
            )
        except writing.NotAllLeased:
            return await self._db.write(
                lambda c: writing.complete_some(c, queue, requests)
            )
        return [None] * len(requests)

    async def retry(
        self, queue: str, requests: Sequence[Retrial]
    ) -> Sequence[Denial | Sequence[Departed]]:
        """Give leased items back: to the tail of their partition, or dead."""
        answers, ready = await self._db.write(
            lambda c: writing.retry(c, queue, requests, self._now())
        )
        self._ready.tell(ready)
        return answers

    async def tend(self, *, limit: int = 1000) -> Tended:
        """Take back what was leased for too long, and move what is dead."""
        next_at = await self._db.read(tending.next_at)
        if next_at is None or next_at > self._now():
            return Tended(next_at=next_at)
        tended = await self._db.write(lambda c: tending.tend(c, self._now(), limit))
        self._ready.tell(tended.ready)
        return tended

    async def shorten_leases(self) -> Shortened:
        """Shorten leases that began in the future."""
        now = self._now()
        found = await self._db.read(lambda c: self._misdated.find(c, now))
        if not found:
            return Shortened()
        return await self._db.write(lambda c: shorten(c, found, now))

    async def forget(self, *, limit: int = 1000) -> bool:
        """Forget where items came from that have been gone for long."""
        if not await self._db.read(lambda c: origins.is_due(c, self._now())):
            return False
        return await self._db.write(lambda c: origins.forget(c, self._now(), limit))

    async def stats(self, queue: str) -> Sequence[PartitionStats]:
        """What is in each partition."""
        now = micros(self._now())
        return await self._db.read(lambda c: keeping.stats(c, queue, now))

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
        found: list[Item] = []
        first = first_number(pivot)
        while (missing := limit - len(found)) > 0:
            step = min(missing, _PAGE)
            read = partial(
                keeping.listed,
                name=queue,
                partition=partition,
                first=first,
                limit=step,
                scheduled=scheduled,
            )
            page = (await self._db.read(read)).items()
            found += page
            if len(page) < step:
                break
            first = first_number(page[-1].id) + 1
        return found

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """Add items as they are, with ids of their own; those that were added."""
        found = await self._db.write(
            lambda c: keeping.import_items(c, queue, partition, items, self._now())
        )
        self._ready.tell([queue])
        return found.items()

    async def delete_items(self, queue: str, partition: int, ids: Sequence[str]) -> int:
        """Delete items, leased or not; how many were there."""
        return await self._db.write(
            lambda c: keeping.delete_items(c, queue, partition, ids)
        )

    async def clear(
        self, queue: str, *, waiting: bool, scheduled: bool, destructive: bool
    ) -> int:
        """Delete what waits or is scheduled; what is leased only if `destructive`."""
        states = cleared(waiting=waiting, scheduled=scheduled, destructive=destructive)
        return await self._db.write(lambda c: keeping.clear(c, queue, states))

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with a queue's name when it may have something."""
        self._ready.on_ready(tell)

    def stop(self) -> None:
        """Stop watching for what other processes do. Blocks."""
        self._ready.stop()

    def _now(self) -> datetime:
        return self._db.clock.now()
