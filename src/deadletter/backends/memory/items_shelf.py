"""One lease queue, as plain objects: its items, by partition and by how they stand."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from msgspec import Struct

from deadletter.core.item_life import death_of, dies_at, item_id, least_loaded
from deadletter.core.item_origins import REMEMBERED, is_forgotten
from deadletter.core.item_plans import ItemState
from deadletter.core.items import Death, Item, LeaseQueue, NewItem, PartitionStats

WAITING, LEASED, SCHEDULED = ItemState
_REMEMBERED = timedelta(seconds=REMEMBERED)


class Row(Struct, kw_only=True):
    """An item that is there."""

    content: NewItem
    created_at: datetime
    updated_at: datetime
    max_attempts: int
    expires: datetime | None
    attempts: int = 0
    source_id: str | None = None
    enqueue_at: datetime | None = None
    partition: int = 0
    number: int = 0  # its place in the order of its partition
    state: ItemState = WAITING
    due: datetime | None = None  # when something becomes of it by itself

    def item(self) -> Item:
        """As others see it."""
        leased = self.state is LEASED
        return Item(
            id=item_id(self.number),
            payload=self.content.payload,
            reference=self.content.reference,
            encoding=self.content.encoding,
            kind=self.content.kind,
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            source_id=self.source_id,
            is_leased=leased,
            lease_deadline=self.due if leased else None,
            expire_deadline=self.expires,
            enqueue_at=self.enqueue_at,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )

    def death(self, now: datetime, *, mortal: bool, asked: bool) -> Death | None:
        """Why it is dead, if it is."""
        return death_of(
            self.attempts,
            self.max_attempts,
            self.expires,
            now,
            mortal=mortal,
            asked=asked,
        )

    def dies_at(self, now: datetime, *, mortal: bool) -> datetime | None:
        """When it will be dead if nobody leases it."""
        return dies_at(
            self.attempts, self.max_attempts, self.expires, now, mortal=mortal
        )


class Partition:
    """Items in order, those of each state by themselves."""

    def __init__(self) -> None:
        self.rows: dict[ItemState, dict[int, Row]] = {each: {} for each in ItemState}

    @property
    def load(self) -> int:
        """How much is there that nobody has."""
        return len(self.rows[WAITING]) + len(self.rows[SCHEDULED])

    @property
    def head(self) -> int | None:
        """The number of the first that waits."""
        return next(iter(self.rows[WAITING]), None)

    def find(self, number: int) -> Row | None:
        """The item of that number."""
        for rows in self.rows.values():
            if number in rows:
                return rows[number]
        return None

    def listed(self, *, scheduled: bool) -> Iterator[Row]:
        """What is in the queue, or what is scheduled for it, in order."""
        if scheduled:
            yield from self.rows[SCHEDULED].values()
        else:
            both = self.rows[WAITING] | self.rows[LEASED]
            yield from (both[number] for number in sorted(both))

    def next(self, limit: int, now: datetime, *, mortal: bool) -> list[Row]:
        """The first that may be leased."""
        rows = self.rows[WAITING].values()
        alive = (r for r in rows if not mortal or r.due is None or r.due > now)
        return list(islice(alive, limit))

    def stats(self, number: int, now: datetime) -> PartitionStats:
        """What is in it."""
        leased = self.rows[LEASED].values()
        present = [*self.rows[WAITING].values(), *leased]
        return PartitionStats(
            partition=number,
            total=len(present),
            leased=len(leased),
            scheduled=len(self.rows[SCHEDULED]),
            average_age=_average([now - row.created_at for row in present]),
            average_leased_age=_average([now - row.updated_at for row in leased]),
        )


class Origin(Struct):
    """Where an item came from."""

    look_at: datetime  # whether it is still there
    was_missed: bool = False  # at the last look


class Shelf:
    """One queue."""

    def __init__(self, queue: LeaseQueue) -> None:
        self.queue = queue
        self.partitions: list[Partition] = []
        # By the ids that items had where they came from, the first to look at first.
        self.had: dict[str, Origin] = {}
        self.grow()

    def grow(self) -> None:
        """Have as many partitions as its options say."""
        missing = self.queue.partitions - len(self.partitions)
        self.partitions += [Partition() for _ in range(missing)]

    def remember(self, source_id: str, now: datetime) -> None:
        """Note where an item came from, or that somebody still asks."""
        known = self.had.pop(source_id, None)
        was_missed = known is not None and known.was_missed
        self.had[source_id] = Origin(now + _REMEMBERED, was_missed)

    def forget(self, now: datetime, limit: int) -> int:
        """Look at origins whose time has come, and forget; how many there were."""
        due = [
            (source_id, origin)
            for source_id, origin in islice(self.had.items(), limit)
            if origin.look_at <= now
        ]
        present = self._sources() if due else set()
        for source_id, origin in due:
            del self.had[source_id]
            is_there = source_id in present
            if not is_forgotten(is_there=is_there, was_missed=origin.was_missed):
                self.had[source_id] = Origin(now + _REMEMBERED, not is_there)
        return len(due)

    def _sources(self) -> set[str | None]:
        return {
            row.source_id
            for partition in self.partitions
            for rows in partition.rows.values()
            for row in rows.values()
        }

    def least_loaded(self) -> int:
        """The partition that gets the next batch."""
        return least_loaded([partition.load for partition in self.partitions])

    def by_head(self) -> list[int]:
        """The partitions with something that waits, the oldest first."""
        heads = [(p.head, n) for n, p in enumerate(self.partitions)]
        return [n for head, n in sorted((h, n) for h, n in heads if h is not None)]


def _average(ages: list[timedelta]) -> float:
    if not ages:
        return 0.0
    return sum(age.total_seconds() for age in ages) / len(ages)
