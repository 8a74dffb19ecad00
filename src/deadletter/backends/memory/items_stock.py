"""All lease queues in memory: what is put where, and what becomes of it by itself."""

from collections.abc import Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from deadletter.core.item_life import item_id, scheduled_for, shortened_lease
from deadletter.core.item_plans import ItemState
from deadletter.core.items import Death, Departed, LeaseQueue
from deadletter.core.lease_queues import no_queue

from .items_shelf import LEASED, SCHEDULED, WAITING, Row, Shelf
from .mailbox import sooner

Doomed: TypeAlias = tuple[Shelf, Row, Death]

_FEW: Final = 1_000


class Stock:
    """Every queue's items, and a heap of when to look at which."""

    def __init__(self, first: int) -> None:
        self.shelves: dict[str, Shelf] = {}
        self._last = first
        self._alarms: list[tuple[datetime, int, Shelf, Row]] = []
        self._most = _FEW

    @property
    def queues(self) -> dict[str, LeaseQueue]:
        """All queues as they were set up."""
        return {name: shelf.queue for name, shelf in self.shelves.items()}

    def shelf(self, name: str) -> Shelf:
        """One queue."""
        found = self.shelves.get(name)
        if found is None:
            raise no_queue(name)
        return found

    def is_mortal(self, shelf: Shelf) -> bool:
        """Whether its items can be dead: they are not in a dead queue already."""
        name = shelf.queue.name
        return all(other.queue.dead_queue != name for other in self.shelves.values())

    def put(
        self, shelf: Shelf, row: Row, state: ItemState, due: datetime | None
    ) -> None:
        """Put it at the tail of its partition."""
        self._last += 1
        row.number = self._last
        self.stand(shelf, row, state, due)

    def stand(
        self, shelf: Shelf, row: Row, state: ItemState, due: datetime | None
    ) -> None:
        """Put it where it stands, and remember when to look at it."""
        row.state, row.due = state, due
        shelf.partitions[row.partition].rows[state][row.number] = row
        if due is not None:
            heappush(self._alarms, (due, row.number, shelf, row))
            self._tidy()

    def take(self, shelf: Shelf, row: Row) -> None:
        """Take it away from where it stands."""
        del shelf.partitions[row.partition].rows[row.state][row.number]

    def put_back(
        self, shelf: Shelf, row: Row, now: datetime, wish: datetime | None = None
    ) -> bool:
        """Put it at the tail again, or schedule it; whether it waits."""
        self.take(shelf, row)
        row.updated_at = now
        row.enqueue_at = scheduled_for(wish, now)
        mortal = self.is_mortal(shelf)
        dies = row.dies_at(now, mortal=mortal)
        if row.enqueue_at is None:
            self.put(shelf, row, WAITING, dies)
        else:
            self.put(shelf, row, SCHEDULED, sooner(row.enqueue_at, dies))
        return row.enqueue_at is None

    def bury(
        self, doomed: Sequence[Doomed], now: datetime, into: dict[str, int]
    ) -> list[Departed]:
        """
        Move what is dead to its dead queue, or delete it.

        What goes to one queue goes to one partition, noted in `into`.
        """
        departed: list[Departed] = []
        for shelf, row, death in doomed:
            source, target = shelf.queue.name, shelf.queue.dead_queue
            departed.append(Departed(source, item_id(row.number), death, target))
            self.take(shelf, row)
            if target is None:
                continue
            dead = self.shelf(target)
            if target not in into:
                into[target] = dead.least_loaded()
            row.source_id = item_id(row.number)
            dead.remember(row.source_id, now)
            row.partition = into[target]
            row.attempts, row.max_attempts = 0, dead.queue.max_attempts
            row.expires, row.enqueue_at, row.updated_at = None, None, now
            self.put(dead, row, WAITING, None)
        return departed

    def due(self, now: datetime, limit: int) -> list[tuple[Shelf, Row]]:
        """What must be looked at, in order."""
        found: list[tuple[Shelf, Row]] = []
        while len(found) < limit and (at := self.next_at()) is not None and at <= now:
            _, _, shelf, row = heappop(self._alarms)
            found.append((shelf, row))
        return found

    def shorten_leases(self, now: datetime) -> list[float]:
        """Shorten leases that a clock wrote which was ahead; by how many seconds."""
        found: list[float] = []
        for shelf in self.shelves.values():
            for partition in shelf.partitions:
                for row in list(partition.rows[LEASED].values()):
                    assert row.due is not None, "a lease ends"
                    until = shortened_lease(row.updated_at, row.due, now)
                    if until is not None:
                        found.append((row.updated_at - now).total_seconds())
                        row.updated_at = now
                        self.stand(shelf, row, LEASED, until)
        return found

    def next_at(self) -> datetime | None:
        """When something must be looked at next."""
        while self._alarms and not self._rings(*self._alarms[0]):
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def look(self, shelf: Shelf, row: Row, now: datetime) -> Death | bool:
        """
        See to an item whose time has come.

        Why it is dead, if it is; otherwise whether it waits again.
        """
        mortal = self.is_mortal(shelf)
        death = row.death(now, mortal=mortal, asked=False)
        if death is not None:
            return death
        if row.state is LEASED or (
            row.enqueue_at is not None and row.enqueue_at <= now
        ):
            return self.put_back(shelf, row, now)
        # Its queue has become a dead queue: nothing becomes of it by itself.
        row.expires = None
        self.stand(shelf, row, row.state, row.enqueue_at)
        return False

    def _rings(self, due: datetime, number: int, shelf: Shelf, row: Row) -> bool:
        if row.due != due or self.shelves.get(shelf.queue.name) is not shelf:
            return False
        return shelf.partitions[row.partition].rows[row.state].get(number) is row

    def _tidy(self) -> None:
        # Most are done with long before their time has come.
        if len(self._alarms) > self._most:
            self._alarms = [alarm for alarm in self._alarms if self._rings(*alarm)]
            heapify(self._alarms)
            self._most = 2 * len(self._alarms) + _FEW
