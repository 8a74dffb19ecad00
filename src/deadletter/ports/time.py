"""Time and dice, handed in: nobody else asks the system for them."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The current time, as a date and as a monotonic counter."""

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, for durations."""


class Dice(Protocol):
    """Chance, and ids made of it."""

    def draw(self) -> float:
        """Uniform in [0, 1)."""

    def new_id(self) -> str:
        """A unique id that sorts by the time of its making (UUID version 7)."""

    def new_ids(self, count: int) -> list[str]:
        """Return `count` ids, as `new_id` makes them, in their order."""
