"""
An event loop whose time is virtual: a year passes as fast as it has nothing to do.

Sleeping moves the clock and waits for nobody. What is ready at the same moment runs
in an order drawn from the seed, because asyncio promises less order than people
use. The same seed gives the same run, to the last callback.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Coroutine
from random import Random
from typing import Any, Final, TypeVar

from .process import Process, process_in

T = TypeVar("T")

_PATIENCE: Final = 200_000  # callbacks at one moment: more is a loop going wild
_ROUNDS: Final = 50  # of cancelling what is left at the end


class Deadlock(Exception):
    """Everybody waits, and nobody will ever come."""


class Spinning(Exception):
    """Something runs on and on without ever letting time pass."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in virtual time; no I/O, no threads."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, *, seed: int | None = None, start: float = 0.0) -> None:
        super().__init__()
        self.is_over = False
        self._now = start
        self._spins = 0
        self._random = None if seed is None else Random(f"order {seed}")  # noqa: S311 -- must repeat
        self._processes: dict[Process, None] = {}

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def end(self) -> None:
        """Cancel all that is left, the dead included, so that nothing lingers."""
        self.is_over = True
        self.set_exception_handler(lambda _loop, _context: None)
        for _ in range(_ROUNDS):
            for process in self._processes:
                process.is_alive, process.is_paused = True, False
                process.let_go()
            left = asyncio.all_tasks(self)
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.sleep(60.0))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def _run_once(self) -> None:
        self._move_clock()
        while self._scheduled and self._scheduled[0].when() <= self._now:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 -- as asyncio does
            self._ready.append(timer)
        turn = list(self._ready)
        self._ready.clear()
        if self._random is not None and len(turn) > 1:
            self._random.shuffle(turn)
        for handle in turn:
            if not handle.cancelled() and not self._holds(handle):
                handle._run()  # noqa: SLF001 -- running handles is what a loop does

    def _move_clock(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 -- as asyncio does
        self._spins += len(self._ready)
        if self._ready or self._stopping:  # type: ignore[attr-defined]
            if self._spins > _PATIENCE:
                self._spins = 0
                raise Spinning(
                    f"{_PATIENCE:,} callbacks ran at {self._now:.3f} s and time stands "
                    "still: look for a loop that never sleeps"
                )
            return
        self._spins = 0
        if not self._scheduled:
            raise Deadlock(
                f"nothing is left to happen at {self._now:.3f} s, but somebody still "
                "waits: look for an event that is never set"
            )
        self._now = max(self._now, self._scheduled[0].when())

    def _holds(self, handle: asyncio.Handle) -> bool:
        process = process_in(handle._context)  # type: ignore[attr-defined]  # noqa: SLF001 -- a handle does not tell
        if process is None:
            return False
        self._processes[process] = None
        return process.hold(handle)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no events but timers."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""


def run_virtual(
    main: Coroutine[Any, Any, T], *, seed: int | None = None, start: float = 0.0
) -> T:
    """Run a coroutine in virtual time; without a seed the order is asyncio's own."""
    loop = VirtualLoop(seed=seed, start=start)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.end()
