"""
The latest moment at which a process that was asked to stop is gone.

Loops, connections and threads may be in any state by then: nobody is asked any more.
What was held comes back when its lease runs out.
"""

import sys
from collections.abc import Callable
from threading import Event, Thread
from typing import Self

from .watchdog import end_this_process


class EndDeadline:
    """
    Ends the process some time after it was asked to stop, unless it is over by then.

    It is watched from a thread of its own while a `with` block lasts; the outermost
    one counts.
    """

    def __init__(self, kill: Callable[[], None] = end_this_process) -> None:
        self._kill = kill
        self._depth = 0
        self._over = Event()
        self._is_set = False

    def __enter__(self) -> Self:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._over.set()

    def set(self, seconds: float) -> None:
        """Be gone in so many seconds; only the first call counts."""
        if self._is_set or not self._depth:
            return
        self._is_set = True
        Thread(
            target=self._watch, args=(seconds,), name="dlq-end-deadline", daemon=True
        ).start()

    def _watch(self, seconds: float) -> None:
        if self._over.wait(seconds):
            return
        # Written by hand: whatever else writes may be what is stuck.
        line = f"not stopped {seconds:.0f} s after being asked to: ending now\n"
        Thread(target=sys.__stderr__.write, args=(line,), daemon=True).start()  # type: ignore[union-attr]
        Event().wait(0.2)
        self._kill()
