"""
What a child process has from its parent, and how it notices that one is gone.

Nothing of ours may go on working unsupervised: two generations of workers would
run side by side, and nobody would know.
"""

import asyncio
import ctypes
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Thread
from typing import Final, TypeAlias

from deadletter.core.errors import BackendError
from deadletter.core.events import Buried, Event, LetterHandled, Observer, Received
from deadletter.ports import Broker, Counting, Reconnecting

from .availability import Calls

PROGRESS_FD: Final = "DLQ_PROGRESS_FD"
SUPERVISOR_FD: Final = "DLQ_SUPERVISOR_FD"
PLACE: Final = "DLQ_PLACE"
LISTENER_FD: Final = "DLQ_LISTENER_FD"
_PR_SET_PDEATHSIG: Final = 1
_PROGRESS: Final = (Received, Buried, LetterHandled)  # workers, intakes, consumers


def end_with_supervisor(stop: Callable[[], None], *, grace: float = 40.0) -> bool:
    """
    Call `stop` from a thread of its own once our supervisor is gone.

    After `grace` seconds more the process is killed. Says whether there is a
    supervisor at all; without one it does nothing.
    """
    lifeline = _inherited(SUPERVISOR_FD, stat.S_ISFIFO)
    if lifeline is None:
        return False
    signal_when_orphaned(signal.SIGTERM)
    Thread(target=_watch, args=(lifeline, stop, grace), name="dlq-lifeline", daemon=True).start()
    return True


def signal_when_orphaned(number: signal.Signals) -> None:
    """Have the kernel send us this when our parent dies, where it can (Linux)."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # another libc: the pipe is enough
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number.value)


def progress_observers() -> list[Observer]:
    """Give an observer that tells our supervisor, if any, that we take messages."""
    progress = _inherited(PROGRESS_FD, stat.S_ISFIFO)
    if progress is None:
        return []

    def observe(event: Event) -> None:
        nonlocal progress
        if progress is not None and isinstance(event, _PROGRESS):
            told, progress = progress, None
            with suppress(OSError):  # it is gone, and we end soon
                os.write(told, b".")
            os.close(told)

    return [observe]


def inherited_listener() -> socket.socket | None:
    """Return the socket on which our supervisor asks us how we are, if it does."""
    descriptor = _inherited(LISTENER_FD, stat.S_ISSOCK)
    if descriptor is None:
        return None
    listener = socket.socket(fileno=descriptor)
    if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return listener
    listener.detach()  # whatever it is, it is not ours
    return None


def _inherited(variable: str, is_kind: Callable[[int], bool]) -> int | None:
    # Taken out of the environment: our own children have another parent.
    text = os.environ.pop(variable, "")
    if not (text.isascii() and text.isdigit()):
        return None
    descriptor = int(text)
    try:
        if not is_kind(os.fstat(descriptor).st_mode):
            return None
        os.set_inheritable(descriptor, False)
    except OSError:
        return None
    return descriptor


def _watch(lifeline: int, stop: Callable[[], None], grace: float) -> None:
    with suppress(OSError):
        os.read(lifeline, 1)  # nothing is ever written: this ends with the other end
    with suppress(Exception):
        stop()
    time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)


# A worker that could take messages, and whose mailbox has some, takes them. One that
# does not for long has lost its way to the broker without noticing, or itself: first
# it says so and makes its connections anew, then it starts again, then its process
# ends. Time is counted in looks, so that a process that was paused is not blamed.

EVERY: Final = 5.0  # seconds between two looks
_ASK: Final = 3  # looks without anything taken, after which we ask what is there
_STALLED: Final = 6  # ...after which it is said, and the connections are made anew
_RESTART: Final = 12  # ...after which it starts again, and the next time ends

Count: TypeAlias = Callable[[], Awaitable[int]]


class NoProgress(Exception):
    """The loop gets nothing done, and has to start again."""


class Hopeless(Exception):
    """Starting again has not helped: the process has to end."""


class Progress:
    """What one worker has taken lately, and what it could have."""

    def __init__(
        self,
        mailbox: str,
        broker: Broker,
        *,
        calls: Calls,
        is_free: Callable[[], bool],
        unstarted: Callable[[], int],
    ) -> None:
        self._mailbox = mailbox
        self._broker = broker
        self._calls = calls
        self._is_free = is_free  # whether it may take something now
        self._unstarted = unstarted  # what it has taken, and not begun with
        self._taken = 0
        self._seen = 0
        self._looks = 0  # in which something was there, and nothing was taken
        self._waiting = 0  # looks in which something was not begun with
        self._ready = 0
        self._restarts = 0

    def taken(self, count: int) -> None:
        """Note that messages were received."""
        self._taken += count
        self._restarts = 0

    def complaint(self) -> str | None:
        """Return why nothing gets done; None when something does, or there is nothing."""
        if self._looks >= _STALLED:
            seconds = self._looks * EVERY
            return f"stalled: {self._ready} ready, nothing claimed for {seconds:.0f} s"
        if self._waiting >= _STALLED:
            seconds = self._waiting * EVERY
            return f"stalled: what was claimed has not begun for {seconds:.0f} s"
        return None

    async def run(self) -> None:
        """Look now and then until cancelled; raises when nothing helps."""
        self._looks = self._waiting = 0
        while True:
            await asyncio.sleep(EVERY)
            self._waiting = self._waiting + 1 if self._unstarted() else 0
            moved, self._seen = self._taken != self._seen, self._taken
            if moved or not self._is_free() or not await self._is_something_there():
                self._looks = 0
            else:
                self._looks += 1
            if self._looks == _STALLED and isinstance(self._broker, Reconnecting):
                await self._broker.reconnect()
            if max(self._looks, self._waiting) >= _RESTART:
                self._give_up()

    async def _is_something_there(self) -> bool:
        """Return whether the mailbox has something; not asked before it is worth it."""
        if not isinstance(self._broker, Counting):
            return False
        if self._looks < _ASK:
            return True
        try:
            counting = self._broker.ready(self._mailbox)
            self._ready = await self._calls.limited("count", counting)
        except BackendError:
            return False  # others say that it is out of reach
        return self._ready > 0

    def _give_up(self) -> None:
        why = self.complaint() or "stalled"
        self._restarts += 1
        raise Hopeless(why) if self._restarts > 1 else NoProgress(why)
