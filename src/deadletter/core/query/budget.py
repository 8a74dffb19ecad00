"""
The budget of one step of a search, and the meter that watches it.

A search is answered in steps, so that no search keeps a store busy for long. Every
step judges at least one letter or passes over some, so that steps lead somewhere.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct


class Budget(Struct, frozen=True, kw_only=True):
    """What one step of a search may use; the first limit reached ends it."""

    letters: int = 10_000  # looked at, most of them by an index alone
    opened: int = 500  # letters whose contents are read
    size: int = 16_000_000  # bytes of these contents
    seconds: float = 0.25


STEP: Final = Budget()


class Meter:
    """
    What one step has used so far.

    `stop` may be called from any thread: whoever asked is not waiting any more.
    """

    def __init__(self, monotonic: Callable[[], float], budget: Budget = STEP) -> None:
        self.budget = budget
        self.is_stopped = False
        self._monotonic = monotonic
        self._opened = self._size = 0
        self.start()

    @property
    def is_spent(self) -> bool:
        """Whether the step has to end."""
        return (
            self.is_stopped
            or self._opened >= self.budget.opened
            or self._size >= self.budget.size
            or self._monotonic() >= self._until
        )

    @property
    def left_to_open(self) -> int:
        """How many more letters may be opened."""
        return self.budget.opened - self._opened

    def start(self) -> None:
        """Begin to count the time here."""
        self._until = self._monotonic() + self.budget.seconds

    def opened(self, size: int) -> None:
        """The contents of a letter were read, of this many bytes."""
        self._opened += 1
        self._size += size

    def stop(self) -> None:
        """End the step as soon as possible."""
        self.is_stopped = True
