"""The items of the queue server, in memory."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from msgspec import structs

from deadletter.core.item_arrival import arrival
from deadletter.core.item_life import Round, first_number, item_number, scheduled_for
from deadletter.core.item_plans import cleared
from deadletter.core.items import (
    Completion,
    Death,
    Denial,
    Departed,
    Item,
    Leased,
    LeaseQueue,
    NewItem,
    PartitionStats,
    Retrial,
    Wrong,
)
from deadletter.core.lease_queues import (
    check_new_queue,
    check_queue_change,
    check_queue_deletion,
    no_partition,
)
from deadletter.ports.items import Shortened, Tended
from deadletter.ports.time import Clock, Dice

from .items_shelf import LEASED, SCHEDULED, WAITING, Partition, Row, Shelf
from .items_stock import Doomed, Stock
from .mailbox import later

_START: Final = 1 << 61  # stores begin to count anywhere, so that ids are their own


class MemoryItems:
    """Lease queues of one process and one event loop."""

    def __init__(self, *, clock: Clock, dice: Dice) -> None:
        self._clock = clock
        self._stock = Stock(int(dice.draw() * _START))
        self._tell: list[Callable[[str], None]] = []

    async def create_queue(self, queue: LeaseQueue) -> None:
        """Make a queue; one of that name already there is a Conflict."""
        check_new_queue(queue, self._stock.queues)
        now = self._clock.now()
        made = structs.replace(queue, created_at=now, updated_at=now)
        self._stock.shelves[queue.name] = Shelf(made)

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change a queue's options. Its number of partitions may only grow."""
        check_queue_change(queue, self._stock.queues)
        shelf = self._stock.shelf(queue.name)
        shelf.queue = structs.replace(
            queue, created_at=shelf.queue.created_at, updated_at=self._clock.now()
        )
        shelf.grow()

    async def delete_queue(self, name: str, *, force: bool = False) -> int:
        """Delete a queue and its items; how many went with it."""
        for user in check_queue_deletion(name, self._stock.queues, force=force):
            shelf = self._stock.shelf(user)
            shelf.queue = structs.replace(shelf.queue, dead_queue=None)
        gone = self._stock.shelves.pop(name)
        return sum(len(rows) for part in gone.partitions for rows in part.rows.values())

    async def queue(self, name: str) -> LeaseQueue:
        """One queue."""
        return self._stock.shelf(name).queue

    async def queues(
        self, *, pivot: str = "", limit: int, namespace: str | None = None
    ) -> Sequence[LeaseQueue]:
        """Queues by name, from `pivot` on, itself included."""
        found = [
            queue
            for name, queue in sorted(self._stock.queues.items())
            if name >= pivot and namespace in {None, queue.namespace}
        ]
        return found[:limit]

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """Add items; each batch goes wholly to the least loaded partition."""
        shelf, now = self._stock.shelf(queue), self._clock.now()
        mortal = self._stock.is_mortal(shelf)
        life = later(shelf.queue.expire_timeout)
        for batch in batches:
            partition = shelf.least_loaded()
            for content in batch:
                at = scheduled_for(content.enqueue_at, now)
                row = Row(
                    content=content,
                    created_at=now,
                    updated_at=now,
                    max_attempts=shelf.queue.max_attempts,
                    expires=(at or now) + life if mortal else None,
                    enqueue_at=at,
                    partition=partition,
                )
                if at is None:
                    self._stock.put(shelf, row, WAITING, row.expires)
                else:
                    self._stock.put(shelf, row, SCHEDULED, at)
        self._told([queue])

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[Leased]:
        """Lend up to so many items to each, counting the attempt."""
        shelf, now = self._stock.shelf(queue), self._clock.now()
        mortal = self._stock.is_mortal(shelf)
        handing: Round[Item] = Round(wants, shelf.by_head())
        until = now + later(shelf.queue.lease_timeout)
        while asked := handing.ask():
            for number, limit in asked.items():
                rows = shelf.partitions[number].next(limit, now, mortal=mortal)
                for row in rows:
                    self._stock.take(shelf, row)
                    row.attempts += 1
                    row.updated_at = now
                    self._stock.stand(shelf, row, LEASED, until)
                handing.give(number, [row.item() for row in rows])
        return [Leased(number, tuple(items)) for number, items in handing.shares()]

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Denial | None]:
        """Forget leased items for good."""
        shelf = self._stock.shelf(queue)
        return [self._complete(shelf, request) for request in requests]

    async def retry(
        self, queue: str, requests: Sequence[Retrial]
    ) -> Sequence[Denial | Sequence[Departed]]:
        """Give leased items back: to the tail of their partition, or dead."""
        shelf, now = self._stock.shelf(queue), self._clock.now()
        into: dict[str, int] = {}
        answers = [self._retry(shelf, one, now, into) for one in requests]
        self._told([queue, *into])
        return answers

    async def tend(self, *, limit: int = 1000) -> Tended:
        """Take back what was leased for too long, and move what is dead."""
        now = self._clock.now()
        found = self._stock.due(now, limit)
        doomed: list[Doomed] = []
        ready: set[str] = set()
        for shelf, row in found:
            became = self._stock.look(shelf, row, now)
            if isinstance(became, Death):
                doomed.append((shelf, row, became))
            elif became:
                ready.add(shelf.queue.name)
        into: dict[str, int] = {}
        departed = self._stock.bury(doomed, now, into)
        ready |= into.keys()
        self._told(ready)
        return Tended(
            tuple(departed),
            frozenset(ready),
            self._stock.next_at(),
            more=len(found) == limit,
        )

    async def shorten_leases(self) -> Shortened:
        """Shorten leases that began in the future."""
        found = self._stock.shorten_leases(self._clock.now())
        return Shortened(len(found), max(found, default=0.0))

    async def forget(self, *, limit: int = 1000) -> bool:
        """Forget where items came from that have been gone for long."""
        now, looked = self._clock.now(), 0
        for shelf in self._stock.shelves.values():
            looked += shelf.forget(now, limit - looked)
        return looked == limit

    async def stats(self, queue: str) -> Sequence[PartitionStats]:
        """What is in each partition."""
        now = self._clock.now()
        partitions = self._stock.shelf(queue).partitions
        return [one.stats(number, now) for number, one in enumerate(partitions)]

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
        first = first_number(pivot)
        rows = self._partition(queue, partition).listed(scheduled=scheduled)
        found = (row.item() for row in rows if row.number >= first)
        return list(islice(found, limit))

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """Add items as they are, with ids of their own; those that were added."""
        self._partition(queue, partition)
        shelf, now = self._stock.shelf(queue), self._clock.now()
        rows = []
        for item in items:
            if item.source_id is not None:
                is_known = item.source_id in shelf.had
                shelf.remember(item.source_id, now)
                if is_known:
                    continue
            rows.append(self._import(shelf, partition, item, now))
        self._told([queue])
        return [row.item() for row in rows]

    async def delete_items(self, queue: str, partition: int, ids: Sequence[str]) -> int:
        """Delete items, leased or not; how many were there."""
        place = self._partition(queue, partition)
        found = [place.find(number) for number in map(item_number, set(ids)) if number]
        return self._removed(queue, (row for row in found if row is not None))

    async def clear(
        self, queue: str, *, waiting: bool, scheduled: bool, destructive: bool
    ) -> int:
        """Delete what waits or is scheduled; what is leased only if `destructive`."""
        states = cleared(waiting=waiting, scheduled=scheduled, destructive=destructive)
        return self._removed(
            queue,
            [
                row
                for partition in self._stock.shelf(queue).partitions
                for state in states
                for row in partition.rows[state].values()
            ],
        )

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with a queue's name when it may have something."""
        self._tell.append(tell)

    def _complete(self, shelf: Shelf, request: Completion) -> Denial | None:
        found = _leased(shelf, request.partition, request.ids)
        if isinstance(found, Denial):
            return found
        for row in found.values():
            self._stock.take(shelf, row)
        return None

    def _retry(
        self, shelf: Shelf, request: Retrial, now: datetime, into: dict[str, int]
    ) -> Denial | Sequence[Departed]:
        asked = {one.id: one for one in reversed(request.items)}
        found = _leased(shelf, request.partition, [one.id for one in request.items])
        if isinstance(found, Denial):
            return found
        mortal = self._stock.is_mortal(shelf)
        doomed: list[Doomed] = []
        for id_, row in found.items():
            death = row.death(now, mortal=mortal, asked=asked[id_].dead)
            if death is None:
                self._stock.put_back(shelf, row, now, asked[id_].retry_at)
            else:
                doomed.append((shelf, row, death))
        return self._stock.bury(doomed, now, into)

    def _import(self, shelf: Shelf, partition: int, item: Item, now: datetime) -> Row:
        mortal = self._stock.is_mortal(shelf)
        came = arrival(shelf.queue, item, now, mortal=mortal)
        row = Row(
            content=NewItem(item.payload, item.reference, item.encoding, item.kind),
            created_at=item.created_at,
            updated_at=item.updated_at,
            max_attempts=shelf.queue.max_attempts,
            attempts=item.attempts,
            expires=came.expires,
            source_id=item.source_id,
            enqueue_at=came.enqueue_at,
            partition=partition,
        )
        self._stock.put(shelf, row, came.state, came.due)
        return row

    def _removed(self, queue: str, rows: Iterable[Row]) -> int:
        shelf = self._stock.shelf(queue)
        gone = list(rows)
        for row in gone:
            self._stock.take(shelf, row)
        return len(gone)

    def _partition(self, queue: str, number: int) -> Partition:
        shelf = self._stock.shelf(queue)
        if not 0 <= number < len(shelf.partitions):
            raise no_partition(shelf.queue, number)
        return shelf.partitions[number]

    def _told(self, queues: Iterable[str]) -> None:
        for queue in queues:
            for tell in self._tell:
                tell(queue)


def _leased(
    shelf: Shelf, partition: int, ids: Sequence[str]
) -> dict[str, Row] | Denial:
    """The leased items of a request by id, or why it is not applied."""
    if not 0 <= partition < len(shelf.partitions):
        return Denial(Wrong.PARTITION)
    found: dict[str, Row] = {}
    for id_ in ids:
        number = item_number(id_)
        row = None if number is None else shelf.partitions[partition].find(number)
        if row is None:
            return Denial(Wrong.UNKNOWN, id_)
        if row.state is not LEASED:
            return Denial(Wrong.NOT_LEASED, id_)
        found[id_] = row
    return found
