"""Notice when a wall clock jumps, by comparing it with the monotonic one."""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from deadletter.core.durations import format_duration
from deadletter.ports import Clock

TOLERANCE: Final = 2.0  # seconds; clocks that are only being corrected drift by less
_RENEWED: Final = 600.0  # seconds after which slow drift is forgotten
_SHOWN: Final = 900.0  # seconds for which a jump is mentioned in health


class _Mark(Struct, frozen=True):
    """A wall-clock time, and between which monotonic times it was read."""

    at: datetime
    began: float
    ended: float


class ClockWatch:
    """
    Compares the clock that due times are judged by with the time that really passed.

    That clock is the store's where the store has one, and this machine's elsewhere.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: _Mark | None = None
        self._last: tuple[float, datetime, float] | None = None  # when, at, by

    def began(self) -> float:
        """Return the moment to hand to `note`, before the clock is read."""
        return self._clock.monotonic()

    def note(self, at: datetime | None, began: float) -> float:
        """
        Take note of a time read since `began`; None is this machine's own.

        Returns the seconds by which the clock jumped since the last notes, 0 if it
        did not.
        """
        ended = self._clock.monotonic()
        mark = _Mark(self._clock.now() if at is None else at, began, ended)
        before = self._since
        if before is None:
            self._since = mark
            return 0.0
        passed = (mark.at - before.at).total_seconds()
        # The time was read at some moment between two others, so this is a range.
        least, most = mark.began - before.ended, mark.ended - before.began
        jump = passed - most if passed > most else min(0.0, passed - least)
        if abs(jump) <= TOLERANCE:
            if most > _RENEWED:
                self._since = mark
            return 0.0
        self._since = mark
        self._last = mark.ended, mark.at, jump
        return jump

    def sentence(self) -> str | None:
        """Describe the last jump while it is recent."""
        if self._last is None:
            return None
        when, at, by = self._last
        if self._clock.monotonic() - when > _SHOWN:
            return None
        return f"the clock jumped by {signed(by)}, to {at:%Y-%m-%d %H:%M:%S} UTC"


def signed(seconds: float) -> str:
    """Return a duration with its sign, to the second."""
    whole = timedelta(seconds=round(seconds)).total_seconds()
    return f"{'+' if whole > 0 else ''}{format_duration(whole)}"
