"""
A clock that jumps, in an event loop that runs on in real time.

`VirtualLoop` is a loop of its own; this clock needs none. Tasks that run under it (`under`)
have their own time: their sleeps and timeouts wait for it, while I/O, threads and all other
tasks of the same loop go on as always.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

from .virtual_time import BEGINNING

_TURNS: Final = 12  # of the event loop, in which one timer shows its effect before the next


class _Timer(asyncio.TimerHandle):
    """A timer that no event loop knows of."""

    real: float | None = None  # real time at which it is due, if it was set while busy
    jumps: int = 0  # of the clock when it was set

    def cancel(self) -> None:
        asyncio.Handle.cancel(self)


class JumpingClock:
    """
    Time that stands still, jumps when told to, and passes while something is `busy`.

    It passes in jumps as well, from one timer to the next: whatever ends within a moment takes
    no time at all, so that due times are exact.
    """

    def __init__(self, start: datetime = BEGINNING) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = start
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = count()
        self._busy = 0
        self._since = 0.0  # real time at which the clock got where it is
        self._jumps = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._releasing = False
        self._is_open = True
        self._patch = _Patch.of(self._loop)
        self._patch.users += 1

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""
        return self._start + timedelta(seconds=self._now)

    def monotonic(self) -> float:
        """Return the seconds that passed since the beginning."""
        return self._now

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass at once; what becomes due meanwhile runs afterwards."""
        passed = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not passed >= 0:
            raise ValueError(f"time passes forwards only: seconds must be >= 0, got {seconds!r}")
        self.jump_to(self._now + passed)

    def jump_to(self, when: float) -> None:
        """Set the seconds that `monotonic` returns; they never go back."""
        self._jumps += 1
        self._pass_until(when)

    def _pass_until(self, when: float) -> None:
        self._now = max(self._now, when)
        self._since = self._patch.time()
        self._release()

    @property
    def next_timer(self) -> float | None:
        """Return when the next timer is due."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def is_moving(self) -> bool:
        """Return whether timers that are due have not been run yet."""
        return self._releasing

    async def settled(self) -> None:
        """Wait until all timers that are due have been run."""
        while self._releasing:
            released = self._loop.create_future()
            self._loop.call_soon(released.set_result, None)
            await released

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Let time pass as in reality meanwhile. May be entered several times."""
        self._busy += 1
        if self._busy == 1:
            self._since = self._patch.time()
            self._set_alarm()
        try:
            yield
        finally:
            self._busy -= 1
            self._set_alarm()

    def under(self, context: Context) -> Context:
        """Return a copy of a context whose tasks run under this clock."""
        copied = context.copy()
        copied.run(_clock.set, self)
        return copied

    def close(self) -> None:
        """Leave the event loop as it was; timers that are left run in real time."""
        self._busy = 0
        self._set_alarm()
        self._is_open = False
        self._patch.users -= 1
        if not self._patch.users:
            self._patch.remove()
        for when, _, timer in self._timers:
            if not timer.cancelled():
                self._loop.call_later(max(0.0, when - self._now), _run, timer)
        self._timers.clear()

    def runs_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether tasks of a loop can run under this clock."""
        return self._is_open and loop is self._loop

    def call_at(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Any
    ) -> asyncio.TimerHandle:
        """Add a timer."""
        timer = _Timer(when, callback, args, self._loop, context)
        if self._busy:
            timer.real, timer.jumps = self._patch.time() + when - self._now, self._jumps
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        if when <= self._now:
            self._release()
        elif self._busy and self._timers[0][2] is timer:
            self._set_alarm()
        return timer

    def _release(self) -> None:
        """Run the timers that are due, one after the other."""
        if not self._releasing:
            self._releasing = True
            self._loop.call_soon(self._release_next, 0)

    def _release_next(self, turns: int) -> None:
        # A wait that ends cancels the timeout around it, which must not run as well.
        if turns:
            self._loop.call_soon(self._release_next, turns - 1)
            return
        due = self.next_timer
        if due is None or due > self._now:
            self._releasing = False
            self._set_alarm()
            return
        _run(heapq.heappop(self._timers)[2])
        self._loop.call_soon(self._release_next, _TURNS)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self.next_timer
        if self._busy and due is not None and not self._releasing:
            first = self._timers[0][2]
            at = self._since + (due - self._now)
            if first.real is not None and first.jumps == self._jumps:
                at = first.real
            # In a context without a clock: some loops build one of these calls on another.
            self._alarm = Context().run(self._patch.call_at, at, self._pass_until, due)


def _run(timer: _Timer) -> None:
    if not timer.cancelled():
        timer._run()  # noqa: SLF001 -- running handles is what a loop does


_clock: ContextVar[JumpingClock | None] = ContextVar("deadletter_jumping_clock", default=None)


class _Patch:
    """Lets tasks under a clock see its time; `users` are the clocks of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.users = 0
        self.time = loop.time
        self.call_at = loop.call_at
        self._loop = loop
        self._call_later = loop.call_later
        for name in _PATCHED:
            setattr(loop, name, getattr(self, f"_{name}_here"))

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> "_Patch":
        """Return the patch of a loop."""
        if loop not in _patches:
            _patches[loop] = cls(loop)
        return _patches[loop]

    def remove(self) -> None:
        """Take the patch away."""
        for name in _PATCHED:
            delattr(self._loop, name)
        del _patches[self._loop]

    def _time_here(self) -> float:
        clock = self._clock()
        return self.time() if clock is None else clock.monotonic()

    def _call_at_here(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        clock = self._clock()
        if clock is None:
            return self.call_at(when, callback, *args, context=context)
        return clock.call_at(when, callback, args, context)

    def _call_later_here(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        clock = self._clock()
        if clock is None:
            return self._call_later(delay, callback, *args, context=context)
        return clock.call_at(clock.monotonic() + delay, callback, args, context)

    def _clock(self) -> JumpingClock | None:
        clock = _clock.get()
        return clock if clock is not None and clock.runs_in(self._loop) else None


_PATCHED: Final = ("time", "call_at", "call_later")
_patches: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Patch]] = WeakKeyDictionary()
