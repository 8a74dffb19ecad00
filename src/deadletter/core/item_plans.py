"""
What is to be done with items, before it is done: for stores that work in batches.

A store reads facts about many items at once, has them sorted out here, and writes
down what came of it in few statements.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct, field

from .item_life import death_of, dies_at, item_id, item_number, scheduled_for
from .items import Again, Death, Denial, Departed, LeaseQueue, Retrial, Wrong

Loads: TypeAlias = Counter[tuple[int, int]]
"""How many items more or less nobody has, by queue and partition."""


class ItemState(IntEnum):
    """Where an item is, as it is stored."""

    WAITING = 0
    LEASED = 1
    SCHEDULED = 2


def cleared(
    *, waiting: bool, scheduled: bool, destructive: bool
) -> frozenset[ItemState]:
    """Which items are to be cleared away; what is leased belongs to what waits."""
    which = {
        ItemState.WAITING: waiting,
        ItemState.LEASED: waiting and destructive,
        ItemState.SCHEDULED: scheduled,
    }
    return frozenset(state for state, is_meant in which.items() if is_meant)


class Shelf(Struct, frozen=True, kw_only=True):
    """A queue, as far as it matters to its items."""

    number: int
    queue: LeaseQueue
    mortal: bool  # no dead queue itself: its items may die


class Fact(Struct, frozen=True):
    """An item, as far as it matters for what becomes of it."""

    number: int
    partition: int
    state: int
    attempts: int
    max_attempts: int
    expires: datetime | None
    enqueue_at: datetime | None

    @property
    def is_leased(self) -> bool:
        """Whether somebody has it."""
        return self.state == ItemState.LEASED


class Back(Struct, frozen=True):
    """An item that goes back to the tail of its partition, or is scheduled."""

    shelf: Shelf
    fact: Fact
    enqueue_at: datetime | None
    due: datetime | None

    @property
    def state(self) -> ItemState:
        """Where it is then."""
        return ItemState.WAITING if self.enqueue_at is None else ItemState.SCHEDULED


class Gone(Struct, frozen=True):
    """An item that is dead."""

    shelf: Shelf
    fact: Fact
    death: Death

    @property
    def departed(self) -> Departed:
        """As others are told of it."""
        queue = self.shelf.queue
        return Departed(
            queue.name, item_id(self.fact.number), self.death, queue.dead_queue
        )


class Spared(Struct, frozen=True):
    """An item of which nothing becomes by itself any more."""

    shelf: Shelf
    fact: Fact


class Plan(Struct):
    """What is to be done with items."""

    back: list[Back] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    spared: list[Spared] = field(default_factory=list)

    def look_at(self, shelf: Shelf, fact: Fact, now: datetime) -> None:
        """Plan for an item whose time has come."""
        death = _death(shelf, fact, now)
        due = fact.enqueue_at is not None and fact.enqueue_at <= now
        if death is not None:
            self.gone.append(Gone(shelf, fact, death))
        elif fact.is_leased or due:
            self.back.append(_back(shelf, fact, now, None))
        else:  # its queue has become a dead queue
            self.spared.append(Spared(shelf, fact))

    def give_back(self, shelf: Shelf, fact: Fact, asked: Again, now: datetime) -> None:
        """Plan for a leased item that is given back."""
        death = _death(shelf, fact, now, asked=asked.dead)
        if death is not None:
            self.gone.append(Gone(shelf, fact, death))
        else:
            self.back.append(_back(shelf, fact, now, asked.retry_at))

    def ready(self) -> set[str]:
        """The queues that have something to lease then."""
        back = {one.shelf.queue.name for one in self.back if one.enqueue_at is None}
        return back.union(self.dead_queues())

    def dead_queues(self) -> dict[str, list[Gone]]:
        """What goes to which dead queue."""
        found: dict[str, list[Gone]] = {}
        for one in self.gone:
            target = one.shelf.queue.dead_queue
            if target is not None:
                found.setdefault(target, []).append(one)
        return found

    def deleted(self) -> list[Gone]:
        """What is dead and has nowhere to go."""
        return [one for one in self.gone if one.shelf.queue.dead_queue is None]

    def freed(self) -> Loads:
        """How many items nobody has any more that somebody had."""
        changed: Loads = Counter()
        for one in self.back:
            changed[one.shelf.number, one.fact.partition] += one.fact.is_leased
        return changed

    def left(self) -> Loads:
        """How many fewer items there are that nobody has."""
        changed: Loads = Counter()
        for one in self.gone:
            changed[one.shelf.number, one.fact.partition] -= not one.fact.is_leased
        return changed

    def departed(self) -> list[Departed]:
        """What is dead."""
        return [one.departed for one in self.gone]


def numbers_of(ids: Iterable[str]) -> list[int]:
    """The numbers of items, each once, without what cannot be an id."""
    numbers = map(item_number, dict.fromkeys(ids))
    return [number for number in numbers if number is not None]


def denial(
    shelf: Shelf, partition: int, ids: Sequence[str], facts: Mapping[int, Fact]
) -> Denial | None:
    """Why a request for leased items cannot be; None if it can."""
    if not 0 <= partition < shelf.queue.partitions:
        return Denial(Wrong.PARTITION)
    for id_ in ids:
        fact = facts.get(item_number(id_) or 0)
        if fact is None or fact.partition != partition:
            return Denial(Wrong.UNKNOWN, id_)
        if not fact.is_leased:
            return Denial(Wrong.NOT_LEASED, id_)
    return None


def sort_retrials(
    plan: Plan,
    shelf: Shelf,
    requests: Sequence[Retrial],
    facts: dict[int, Fact],
    now: datetime,
) -> list[Denial | Sequence[Departed]]:
    """Plan for requests, each whole or not at all, and what to answer."""
    answers: list[Denial | Sequence[Departed]] = []
    for request in requests:
        ids = [one.id for one in request.items]
        wrong = denial(shelf, request.partition, ids, facts)
        if wrong is not None:
            answers.append(wrong)
            continue
        before = len(plan.gone)
        for one in request.items:
            fact = facts.pop(item_number(one.id) or 0, None)
            if fact is not None:  # of one named twice, only the first
                plan.give_back(shelf, fact, one, now)
        answers.append([one.departed for one in plan.gone[before:]])
    return answers


def _death(
    shelf: Shelf, fact: Fact, now: datetime, *, asked: bool = False
) -> Death | None:
    return death_of(
        fact.attempts,
        fact.max_attempts,
        fact.expires,
        now,
        mortal=shelf.mortal,
        asked=asked,
    )


def _back(shelf: Shelf, fact: Fact, now: datetime, wish: datetime | None) -> Back:
    at = scheduled_for(wish, now)
    dies = dies_at(
        fact.attempts, fact.max_attempts, fact.expires, now, mortal=shelf.mortal
    )
    due = dies if at is None else min(at, dies or at)
    return Back(shelf, fact, at, due)
