"""SIGTERM and SIGINT, as a count: once is please, twice is now."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from deadletter.ports import Clock

TERMINATION: Final = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED: Final = 128 + signal.SIGINT  # the exit code of who was told twice
_SAME: Final = 0.1  # seconds: systemd signals us and our supervisor, who passes it on


def heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """
    List those of these signals that are for us.

    A shell that runs us in the background, or `nohup`, has interrupts ignored: those
    of its terminal are meant for others. SIGTERM is always for us.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return [one for one in numbers if one is not signal.SIGINT or not is_ignored]


@contextmanager
def on_termination(
    *, please: Callable[[], None], now: Callable[[], None], clock: Clock
) -> Iterator[None]:
    """
    Call `please` on the first signal and `now` on the second.

    Two that come at the same moment are one, said by two. The third ends the
    process the way the system does it, even when the event loop is blocked and
    nothing of what was asked for can happen. Must be entered in the main thread;
    the handlers of before are put back. Interrupts that whoever started us has
    ignored stay ignored (`heeded`).
    """
    came, last = 0, 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came, last
        since, last = clock.monotonic() - last, clock.monotonic()
        if came and since < _SAME:
            return
        came += 1
        if came == 1:
            please()
        elif came == 2:
            now()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, handle) for number in heeded(TERMINATION)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
