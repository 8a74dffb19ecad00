"""
The pipe by which a child process notices the end of its parent.

Nothing of ours may go on working unsupervised: two generations of workers would
run side by side, and nobody would know.
"""

import ctypes
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Final

from deadletter.core.events import Buried, Event, LetterHandled, Observer, Received

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
