"""A clock that moves when told to, and dice that repeat themselves."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

from deadletter.core.ids import uuid7

START = datetime(2030, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time that stands still until it is advanced."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that only ever grow."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock, forward or back, while no time passes."""
        self._now += timedelta(seconds=seconds)


class SeededDice:
    """Chance that repeats itself, and ids that sort in the order of their making."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)  # noqa: S311 -- must repeat, guards nothing
        self._made = 0

    def draw(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def new_id(self) -> str:
        """Return a unique id, greater than the one before."""
        self._made += 1
        return uuid7(self._made, self._random.getrandbits(74))

    def new_ids(self, count: int) -> list[str]:
        """Return `count` ids, as `new_id` makes them, in their order."""
        return [self.new_id() for _ in range(count)]


_TICK = 0.005


async def eventually(condition: Callable[[], object], *, within: float = 5.0) -> None:
    """
    Wait until `condition` is true, asking again and again.

    It may be a coroutine function. After `within` seconds an AssertionError says
    what it was, and what it answered last.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if loop.time() >= deadline:
            raise AssertionError(
                f"not within {within} seconds: {condition!r} still says {answer!r}"
            )
        await asyncio.sleep(_TICK)
