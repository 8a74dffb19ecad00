"""A loop's sign of life."""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from deadletter.ports import Clock


class Heartbeat:
    """
    When a loop last gave a sign of life; any thread may beat and ask.

    Callbacks are called after every beat, in the order they were added, by
    whoever beats. An error in one of them is its own and stops nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last = clock.monotonic()
        self._callbacks: list[Callable[[], object]] = []

    def beat(self) -> None:
        """Say that we are alive and getting on."""
        with self._lock:
            self._last = self._clock.monotonic()
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            with suppress(Exception):
                callback()

    def elapsed(self) -> float:
        """Seconds since the last beat, or since the beginning."""
        with self._lock:
            return self._clock.monotonic() - self._last

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call this after every beat from now on."""
        with self._lock:
            self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Call it no longer; a ValueError when it was never added."""
        with self._lock:
            self._callbacks.remove(callback)
