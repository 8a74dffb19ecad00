"""A clock that reads virtual time, and dice that fall as their seed says."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

from deadletter.core.ids import uuid7

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Wall-clock time when virtual time is 0."""


class VirtualClock:
    """The time of the loop; `step` sets the wall clock apart from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._offset = 0.0

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""
        return BEGINNING + timedelta(seconds=self._loop.time() + self._offset)

    def monotonic(self) -> float:
        """Seconds that only ever grow, whatever is done to the wall clock."""
        return self._loop.time()

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self._offset += seconds


class SeededDice:
    """Chance that repeats itself."""

    def __init__(self, seed: str, clock: VirtualClock) -> None:
        self._random = Random(seed)  # noqa: S311 -- must repeat, guards nothing
        self._clock = clock

    def draw(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def new_id(self) -> str:
        """A unique id that sorts by the virtual time of its making."""
        millis = int(self._clock.now().timestamp() * 1000)
        return uuid7(millis, self._random.getrandbits(74))

    def new_ids(self, count: int) -> list[str]:
        """Return `count` ids, as `new_id` makes them, in their order."""
        return [self.new_id() for _ in range(count)]
