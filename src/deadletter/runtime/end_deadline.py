"""
The latest moment at which a process that was asked to stop is gone.

Loops, connections and threads may be in any state by then: nobody is asked any more.
What was held comes back when its lease runs out.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Final, Self

from .watchdog import end_this_process

_TICK: Final = 0.25  # seconds between two looks
_LAST_WORDS: Final = 0.2


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
        self._due: float | None = None
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1:
            self._over.clear()
            Thread(target=self._watch, name="dlq-end-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._over.set()

    def set(self, seconds: float) -> None:
        """Be gone in so many seconds; only the first call counts."""
        # Called by signals, in the middle of anything: no lock may be taken here.
        if self._due is None:
            self._seconds = seconds
            self._due = monotonic() + seconds

    def _watch(self) -> None:
        while not self._over.wait(_TICK):
            if self._due is not None and monotonic() >= self._due:
                # On a thread: whatever writes to stderr may be what is stuck.
                with suppress(RuntimeError):  # no thread is left to be had
                    Thread(target=self._tell, daemon=True).start()
                self._over.wait(_LAST_WORDS)
                self._kill()
                return

    def _tell(self) -> None:
        if sys.__stderr__ is not None:
            seconds = f"{self._seconds:.0f} s"
            print(f"not stopped {seconds} after being asked to", file=sys.__stderr__)
