"""
Keeping deliveries ours while their handlers run.

The lease is tied to signs of life: a process whose event loop is stuck extends
nothing, and a handler registered with a heartbeat must beat for itself. Time
limits are judged here too, so that no attempt needs a timer of its own.
"""

import asyncio
from collections.abc import Callable, Collection

from deadletter.ports import Clock, Source

from .held import Hand, Held
from .reach import Calls


class LeaseKeeper:
    """Extends the leases of what is held; interrupts what overstays or is lost."""

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
        """Look after the held deliveries until cancelled."""
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
        except Exception:  # noqa: BLE001 -- whatever it says, it is no answer
            # The broker is away. What we hold may be lost by now, and settling
            # will tell; trying again is all there is to do.
            self._extended = now - self._lease / 6
            return
        for held, mine in zip(alive, ours, strict=True):
            if not mine:
                held.interrupt(Hand.LOST)

    def _is_alive(self, held: Held, now: float) -> bool:
        if not held.begun or not held.running:  # waiting to start, or to be settled
            return True
        if held.hand in (Hand.TIMED_OUT, Hand.LOST):
            return False
        return self._heartbeat is None or now - held.beaten < self._heartbeat
