"""A clock that reads virtual time, and dice that fall as their seed says."""

import asyncio
import heapq
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar

from deadletter.core.ids import uuid7
from deadletter.ports.features import Clock

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Wall-clock time when virtual time is 0."""


class VirtualClock:
    """The time of the loop; `step` sets the wall clock apart from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._offset = 0.0

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""
        return BEGINNING + timedelta(seconds=self._loop.time() + self._offset)

    def monotonic(self) -> float:
        """Return the seconds that only ever grow, whatever is done to the wall clock."""
        return self._loop.time()

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self._offset += seconds


class SeededDice:
    """Chance that repeats itself."""

    def __init__(self, seed: str, clock: Clock) -> None:
        self._random = Random(seed)  # noqa: S311 -- must repeat, guards nothing
        self._clock = clock

    def draw(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def new_id(self) -> str:
        """Return a unique id that sorts by the virtual time of its making."""
        millis = int(self._clock.now().timestamp() * 1000)
        return uuid7(millis, self._random.getrandbits(74))

    def new_ids(self, count: int) -> list[str]:
        """Return `count` ids, as `new_id` makes them, in their order."""
        return [self.new_id() for _ in range(count)]


# A task belongs to the process in whose context it was started, and so does every
# callback and timer of it. A killed process runs nothing any more: no `finally`, no
# late callback, as under `kill -9`. A paused one goes on where it was.

_process: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """A process of the simulation; a restart is a new one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = asyncio.Event()
        self.is_alive = True
        self.is_paused = False
        self._held: list[asyncio.Handle] = []
        # Collected as garbage, a dead coroutine would run its `finally` after all.
        self._tasks: list[asyncio.Task[object]] = []
        self._loop = asyncio.get_running_loop()

    def start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Run something in this process."""
        context = copy_context()
        context.run(_process.set, self)
        self._tasks.append(self._loop.create_task(work, context=context))
        return self._tasks[-1]

    def kill(self) -> None:
        """End it as `kill -9` does: whatever it was about to do, it does not."""
        self.is_alive = False
        self.ended.set()

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP)."""
        self.is_paused = True

    def resume(self) -> None:
        """...and let it go on."""
        self.is_paused = False
        if self.is_alive:
            self.let_go()

    def hold(self, handle: asyncio.Handle) -> bool:
        """Keep back a callback that must not run now; says whether it did."""
        if self.is_alive and not self.is_paused:
            return False
        self._held.append(handle)
        return True

    def let_go(self) -> None:
        """Run what was held back, after all."""
        held, self._held = self._held, []
        for handle in held:
            self._loop._ready.append(handle)  # type: ignore[attr-defined]  # noqa: SLF001 -- the loop is ours


def process_in(context: Context) -> Process | None:
    """Return the process a context belongs to."""
    return context.get(_process)


def this_process() -> Process | None:
    """Return the process we are in; None outside of all."""
    return _process.get()


# Sleeping moves the clock and waits for nobody. What is ready at the same moment runs
# in an order drawn from the seed, because asyncio promises less order than people
# use. The same seed gives the same run, to the last callback.

T = TypeVar("T")

_PATIENCE: Final = 200_000  # callbacks at one moment: more is a loop going wild
_ROUNDS: Final = 50  # of cancelling what is left at the end


class Deadlock(Exception):
    """Everybody waits, and nobody will ever come."""


class TimeStandsStill(Exception):
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
                raise TimeStandsStill(
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
        """Do nothing: timers are the only events."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""


def run_virtual(main: Coroutine[Any, Any, T], *, seed: int | None = None, start: float = 0.0) -> T:
    """Run a coroutine in virtual time; without a seed the order is asyncio's own."""
    loop = VirtualLoop(seed=seed, start=start)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.end()
