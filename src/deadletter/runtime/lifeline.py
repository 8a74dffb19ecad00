"""
How a child process notices that its parent is gone.

Nothing of ours may go on working unsupervised: two generations of workers would
run side by side, and nobody would know.
"""

import ctypes
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Final

SUPERVISOR_FD: Final = "DLQ_SUPERVISOR_FD"
PLACE: Final = "DLQ_PLACE"
_PR_SET_PDEATHSIG: Final = 1


def end_with_supervisor(stop: Callable[[], None], *, grace: float = 40.0) -> bool:
    """
    Call `stop` from a thread of its own once our supervisor is gone.

    After `grace` seconds more the process is killed. Says whether there is a
    supervisor at all; without one it does nothing.
    """
    lifeline = _inherited()
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


def _inherited() -> int | None:
    # Taken out of the environment: our own children have another parent.
    text = os.environ.pop(SUPERVISOR_FD, "")
    if not (text.isascii() and text.isdigit()):
        return None
    lifeline = int(text)
    try:
        if not stat.S_ISFIFO(os.fstat(lifeline).st_mode):
            return None
        os.set_inheritable(lifeline, False)
    except OSError:
        return None
    return lifeline


def _watch(lifeline: int, stop: Callable[[], None], grace: float) -> None:
    with suppress(OSError):
        os.read(lifeline, 1)  # nothing is ever written: this ends with the other end
    with suppress(Exception):
        stop()
    Event().wait(grace)
    os.kill(os.getpid(), signal.SIGKILL)
