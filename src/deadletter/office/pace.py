"""How many letters may go now, and how long to wait for the next ones."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_SLICE: Final = 0.1  # seconds' worth sent at once: even for the consumer, cheap for us


class Pace:
    """
    Spreads letters evenly at `rate` a second; without one, as fast as it goes.

    Time lost is not caught up with a burst.
    """

    def __init__(self, rate: float | None, monotonic: Callable[[], float]) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._free_at = monotonic()

    def size(self, most: int) -> int:
        """How many letters to send in one go."""
        if self._rate is None:
            return most
        return max(1, min(most, int(self._rate * _SLICE)))

    def spend(self, letters: int) -> None:
        """That many have gone."""
        if self._rate is None:
            return
        # Up to one slice behind time is an ordinary hiccup; more is not owed.
        earliest = self._monotonic() - _SLICE
        self._free_at = max(self._free_at, earliest) + letters / self._rate

    def wait(self) -> float:
        """Seconds until the next letters may go."""
        return max(0.0, self._free_at - self._monotonic())


async def until(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until `stop` is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
