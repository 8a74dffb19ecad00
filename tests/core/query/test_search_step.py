"""A step of a search ends by each of its limits, and always gets somewhere."""

from collections.abc import Iterable
from typing import Any

import pytest

from deadletter.core.letter import DeadLetter
from deadletter.core.query import Budget, Meter, parse
from deadletter.core.query.search_step import (
    CUT,
    PORTION_SIZE,
    Bottom,
    Contents,
    Found,
    Heads,
    Sizes,
    search_step,
)
from deadletter.testing.fakes import FakeClock
from office.making import NOW, make_letter


class Shelf:
    """Letters in a row: the first is at place 1."""

    def __init__(self, letters: Iterable[DeadLetter], clock: FakeClock) -> None:
        self._letters = dict(enumerate(letters, 1))
        self._clock = clock
        self.read_at_once: list[int] = []

    def search(self, query: str, budget: Budget, *, limit: int = 50) -> Found[int]:
        """One step from the first letter on, in which opening takes 0.1 seconds."""
        meter = Meter(self._clock.monotonic, budget)
        step = search_step(parse(query), limit=limit, start=None, exact=False, now=NOW, meter=meter)
        try:
            wanted = next(step)
            while True:
                wanted = step.send(self._read(wanted))
        except StopIteration as end:
            found: Found[int] = end.value
            return found

    def _read(self, wanted: Any) -> Any:
        match wanted:
            case Bottom(after, depth):
                place = (after or 0) + depth
                return place if place < len(self._letters) else None
            case Heads(after, end, most):
                places = self._places(after, end, most)
                return [(place, self._letters[place]) for place in places]
            case Sizes(after, end, most):
                places = self._places(after, end, most)
                return [(p, len(self._letters[p].message.body)) for p in places]
            case Contents(places):
                self.read_at_once.append(len(places))
                self._clock.advance(0.1)
                return [(place, self._letters[place]) for place in places]

    def _places(self, after: int | None, end: int | None, most: int) -> list[int]:
        last = len(self._letters) if end is None else end
        return list(range((after or 0) + 1, last + 1))[:most]


ABSENT = "body.nothing:1 OR zzz"


@pytest.mark.parametrize(
    ("budget", "last"),
    [
        (Budget(opened=7), 7),
        (Budget(size=2_500), 3),
        (Budget(opened=10_000, seconds=0.15), 101),
        (Budget(letters=40), 40),
        (Budget(seconds=0.0), 1),
        (Budget(), None),
    ],
)
def test_the_first_limit_reached_ends_a_step(budget: Budget, last: int | None) -> None:
    letters = [make_letter(n, body=b"x" * 1_000) for n in range(200)]

    found = Shelf(letters, FakeClock()).search(ABSENT, budget)

    assert (found.hits, found.last) == ([], last)


def test_large_bodies_are_read_few_at_a_time() -> None:
    letters = [make_letter(n, body=b"x" * 1_500_000) for n in range(6)]
    shelf = Shelf(letters, FakeClock())

    found = shelf.search(ABSENT, Budget(seconds=60.0))

    assert found.last is None
    assert shelf.read_at_once == [PORTION_SIZE // CUT] * 2


def test_heads_that_cost_much_are_passed_over_in_short_stretches() -> None:
    costly = " OR ".join(f"text:*a*{n}z" for n in range(99))
    letters = [make_letter(n) for n in range(200)]

    found = Shelf(letters, FakeClock()).search(costly, Budget(seconds=0.0))

    assert found.last == 50


def test_a_page_that_is_full_goes_on_behind_its_last_letter() -> None:
    letters = [make_letter(n) for n in range(10)]

    found = Shelf(letters, FakeClock()).search("body.order:>=0", Budget(), limit=4)

    assert [place for place, _ in found.hits] == [1, 2, 3, 4]
    assert found.last == 4


def test_a_stopped_meter_is_spent() -> None:
    meter = Meter(FakeClock().monotonic)
    assert not meter.is_spent

    meter.stop()

    assert meter.is_spent
