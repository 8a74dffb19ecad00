"""
Claimed deliveries, their leases and time limits, and the heartbeat of a loop.

Leases depend on signs of life: a process whose event loop is stuck extends nothing, and
a handler registered with a heartbeat must beat itself. Time limits are checked here too,
so that no attempt needs its own timer.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum
from threading import Lock

from msgspec import Struct

from deadletter.core.message import Delivery
from deadletter.ports import Clock, Source

from .availability import Calls


class InterruptReason(Enum):
    """Why a running handler was interrupted."""

    TIMED_OUT = 1  # it overstayed its time limit
    STOPPED = 2  # we are shutting down
    LOST = 3  # the lease is gone: whatever it does no longer counts


class HandlerNote(Struct, frozen=True, tag="noted"):
    """Progress or a log line that a running handler reports."""

    progress: bytes | None = None  # JSON
    line: str | None = None


class Held:
    """
    One claimed delivery.

    It is `running` until its handler has ended, and held until it is settled;
    its lease is kept alive all that time.
    """

    __slots__ = (
        *("beaten", "begun", "delivery", "interrupted", "running", "started", "stoppable"),
        *("on_note", "task"),
    )

    def __init__(self, delivery: Delivery, now: float, *, stoppable: bool = True) -> None:
        self.delivery = delivery
        self.started = now
        self.beaten = now
        self.begun = False
        self.running = True
        self.interrupted: InterruptReason | None = None
        self.stoppable = stoppable  # a thread is not: it runs on, and has its slot
        self.task: asyncio.Task[None] | None = None
        self.on_note: Callable[[Held, HandlerNote], None] | None = None

    def note(self, noted: HandlerNote) -> None:
        """Pass on a note of the handler; may be called from any thread."""
        if self.on_note is not None:
            self.on_note(self, noted)

    def begin(self, now: float) -> None:
        """Start the time of the handler; waiting for its key does not count."""
        self.begun = True
        self.started = self.beaten = now

    def beat(self, now: float) -> None:
        """Record a sign of life of the handler."""
        self.beaten = now

    def interrupt(self, reason: InterruptReason) -> None:
        """Cancel the handler, once, and remember the reason."""
        if self.interrupted is None and self.running:
            self.interrupted = reason
            # A task that is cancelled before its first step never takes it, and
            # nobody would notice its end; it checks `interrupted` by itself.
            if self.task is not None and self.begun and self.stoppable:
                self.task.cancel()


class LeaseKeeper:
    """Extends leases, and interrupts handlers that exceed a limit or lost their lease."""

    def __init__(
        self,
        source: Source,
        held: Collection[Held],
        *,
        calls: Calls,
        clock: Clock,
        lease: float,
        time_limit: float | None,
        heartbeat: float | None,
        on_overdue: Callable[[Held], None],
    ) -> None:
        self._source = source
        self._held = held
        self._calls = calls
        self._clock = clock
        self._lease = lease
        self._time_limit = time_limit
        self._heartbeat = heartbeat
        self._on_overdue = on_overdue
        self._extended = clock.monotonic()

    async def run(self) -> None:
        """Extend leases and check time limits until cancelled."""
        while True:
            await asyncio.sleep(self._pause())
            now = self._clock.monotonic()
            if self._time_limit is not None:
                for held in list(self._held):
                    at_work = held.begun and held.running
                    if at_work and now - held.started >= self._time_limit:
                        self._on_overdue(held)
            if now - self._extended >= self._lease / 3:
                await self._extend(now)

    def _pause(self) -> float:
        pause = self._lease / 6
        if self._time_limit is not None:
            pause = min(pause, self._time_limit / 5)
        return max(pause, 0.01)

    async def _extend(self, now: float) -> None:
        alive = [held for held in self._held if self._is_alive(held, now)]
        self._extended = now
        if not alive:
            return
        try:
            deliveries = [held.delivery for held in alive]
            extending = self._source.extend(deliveries, lease=self._lease)
            ours = await self._calls.limited("broker", extending)
        except Exception:  # noqa: BLE001 -- any error means that leases may not be extended
            # The broker is unavailable. Leases may be lost by now, which settling
            # finds out. Try again sooner.
            self._extended = now - self._lease / 6
            return
        for held, mine in zip(alive, ours, strict=True):
            if not mine:
                held.interrupt(InterruptReason.LOST)

    def _is_alive(self, held: Held, now: float) -> bool:
        if not held.begun or not held.running:  # waiting to start, or to be settled
            return True
        if held.interrupted in (InterruptReason.TIMED_OUT, InterruptReason.LOST):
            return False
        return self._heartbeat is None or now - held.beaten < self._heartbeat


class Heartbeat:
    """
    The last sign of life of a loop, for use from any thread.

    Callbacks run after every beat, in the order they were added, on the thread that
    beats. Their errors are ignored.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last = clock.monotonic()
        self._callbacks: list[Callable[[], object]] = []

    def beat(self) -> None:
        """Record a sign of life."""
        with self._lock:
            self._last = self._clock.monotonic()
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            with suppress(Exception):
                callback()

    def elapsed(self) -> float:
        """Return the seconds since the last beat, or since the beginning."""
        with self._lock:
            return self._clock.monotonic() - self._last

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call this after every beat from now on."""
        with self._lock:
            self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Remove a callback; raise ValueError if it was never added."""
        with self._lock:
            self._callbacks.remove(callback)
