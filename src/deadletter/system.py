"""The clock and the random numbers of the system, and the name of this process."""

import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from threading import Lock
from weakref import ref

from deadletter.core.ids import LATE_BITS, TAIL_BITS, uuid7_end, uuid7_start


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never decrease, for durations."""
        return time.monotonic()


def process_name() -> str:
    """Return the name of this process in the story of an attempt."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _millis() -> int:
    return time.time_ns() // 1_000_000


class SystemDice:
    """
    Random numbers and ids; safe to share between threads and after a fork.

    Ids of one process are distinct and sort in the order of their creation, also within
    a millisecond and when the clock steps back.
    """

    def __init__(self, millis: Callable[[], int] = _millis) -> None:
        self._millis = millis
        self._chances = _Chances()
        # A forked child must not repeat the numbers of its parent.
        os.register_at_fork(after_in_child=_renewal(ref(self)))

    def draw(self) -> float:
        """Return a number that is uniform in [0, 1)."""
        return self._chances.random.random()

    def new_id(self) -> str:
        """Return a unique id that sorts by the time of its creation (UUID version 7)."""
        return self._chances.new_id(self._millis())

    def new_ids(self, count: int) -> list[str]:
        """Return `count` ids, as `new_id` makes them, in their order."""
        return self._chances.new_ids(self._millis(), count)

    def renew(self) -> None:
        """Seed the random numbers again, in a forked child."""
        self._chances = _Chances()


def _renewal(dice: "ref[SystemDice]") -> Callable[[], None]:
    # A weak reference, because hooks for forks are never removed.
    def renew() -> None:
        if (found := dice()) is not None:
            found.renew()

    return renew


class _Chances:
    """The random numbers and ids of one process."""

    def __init__(self) -> None:
        self.random = Random()  # noqa: S311 -- spreads retries and ids, guards nothing
        self._lock = Lock()
        self._last = 0  # the latest millisecond an id was made of
        self._tail = 0
        self._first_half = ""  # of an id, the same for all tails...
        self._until = 0  # ...up to this one

    def new_id(self, millis: int) -> str:
        with self._lock:
            return self._next(millis)

    def new_ids(self, millis: int, count: int) -> list[str]:
        with self._lock:
            return [self._next(millis) for _ in range(count)]

    def _next(self, millis: int) -> str:
        if millis > self._last:
            self._start(millis)
        else:  # the same millisecond, or a clock that stepped back
            self._tail += 1 + self.random.getrandbits(32)
            if self._tail >> TAIL_BITS:
                self._start(self._last + 1)
            elif self._tail >= self._until:
                self._go_on()
        return self._first_half + uuid7_end(self._tail)

    def _start(self, millis: int) -> None:
        # Starting in the lower half leaves room for two thousand billion more.
        self._last = millis
        self._tail = self.random.getrandbits(TAIL_BITS - 1)
        self._go_on()

    def _go_on(self) -> None:
        self._first_half = uuid7_start(self._last, self._tail)
        self._until = ((self._tail >> LATE_BITS) + 1) << LATE_BITS
