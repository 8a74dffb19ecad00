"""
What a child process has from its parent, and how it notices that one is gone.

Nothing of ours may go on working unsupervised: two generations of workers would
run side by side, and nobody would know.
"""

import ctypes
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Final

SUPERVISOR_FD: Final = "DLQ_SUPERVISOR_FD"
PLACE: Final = "DLQ_PLACE"
LISTENER_FD: Final = "DLQ_LISTENER_FD"
_PR_SET_PDEATHSIG: Final = 1


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
    Thread(
        target=_watch, args=(lifeline, stop, grace), name="dlq-lifeline", daemon=True
    ).start()
    return True


def signal_when_orphaned(number: signal.Signals) -> None:
    """Have the kernel send us this when our parent dies, where it can (Linux)."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # another libc: the pipe is enough
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number.value)


def inherited_listener() -> socket.socket | None:
    """The socket on which our supervisor asks us how we are, if it does."""
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
    Event().wait(grace)
    os.kill(os.getpid(), signal.SIGKILL)
