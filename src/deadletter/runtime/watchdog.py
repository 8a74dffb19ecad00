"""
The last resort: a process that is stuck ends itself, so that somebody restarts it.

Its deliveries come back when their leases run out. Stuck code cannot be asked
nicely, so this is a SIGKILL, from a thread of its own.
"""

import faulthandler
import os
import signal
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final

from msgspec import Struct

from deadletter.core.events import Observer, Stalled
from deadletter.output.bounded_output import unblocked_twin
from deadletter.ports import Clock

_LAST_WORDS: Final = 2.0  # seconds an observer may take before we go
_STDERR: Final = 2


class Pulse(Struct, frozen=True):
    """How long ago a loop gave its last sign of life."""

    loop: str
    seconds: float


def end_this_process() -> None:
    """Kill ourselves, whatever state we are in."""
    os.kill(os.getpid(), signal.SIGKILL)


class Watchdog:
    """
    Kills the process when a loop's heart has not beaten for `threshold` seconds.

    Looks every `interval` seconds, and at least three times in a threshold. Code
    that holds the interpreter lock stops this thread too; then the interpreter's
    own fault handler ends the process, after twice the threshold, and writes the
    stacks to stderr.
    """

    def __init__(
        self,
        pulses: Callable[[], Sequence[Pulse]],
        *,
        threshold: float,
        interval: float,
        clock: Clock,
        observe: Observer,
        kill: Callable[[], None] = end_this_process,
    ) -> None:
        self._pulses = pulses
        self._threshold = threshold
        self._interval = min(interval, threshold / 3)
        self._clock = clock
        self._observe = observe
        self._kill = kill
        self._stop = Event()
        self._stacks = _STDERR  # where the interpreter writes them
        self._thread = Thread(target=self._watch, name="dlq-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch, from a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Look once; kill if a loop is stuck."""
        stuck = [p for p in self._pulses() if p.seconds > self._threshold]
        if not stuck:
            return
        # The observer may need a lock that the stuck code holds: it gets a
        # moment on a thread that may hang, and then we go all the same.
        telling = Thread(target=self._tell, args=(stuck,), daemon=True)
        telling.start()
        telling.join(_LAST_WORDS)
        self._kill()

    def _tell(self, stuck: Sequence[Pulse]) -> None:
        for pulse in stuck:
            self._observe(Stalled(mailbox="", loop=pulse.loop, seconds=pulse.seconds))

    def _watch(self) -> None:
        # Written to without waiting: a log that nobody reads must not save us.
        twin = unblocked_twin(_STDERR)
        self._stacks = _STDERR if twin is None else twin
        try:
            looked = self._clock.monotonic()
            self._arm()
            while not self._stop.wait(self._interval):
                now = self._clock.monotonic()
                # When we overslept ourselves the whole process was paused, and
                # the loops have had no chance to beat yet.
                if now - looked < self._threshold:
                    self.check()
                looked = now
                self._arm()
        finally:
            self._disarm()
            if twin is not None:
                os.close(twin)

    def _arm(self) -> None:
        if self._kill is end_this_process:
            faulthandler.dump_traceback_later(
                2 * self._threshold, exit=True, file=self._stacks
            )

    def _disarm(self) -> None:
        if self._kill is end_this_process:
            faulthandler.cancel_dump_traceback_later()
