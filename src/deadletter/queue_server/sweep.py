"""
A loop that sweeps the store when something falls due: leases, schedules, dead items.

The store says when the next item is due, and the loop sleeps until then. While any item
is due later, the loop also sweeps at intervals, since another server of the same store
may have died with leases of its own.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

from deadletter.core.backoff import Exponential
from deadletter.core.errors import BackendError
from deadletter.core.events import BackInReach, ClockJumped, LoopDied, Observer, OutOfReach
from deadletter.ports import Clock, Dice, ItemStore, SweepResult

from .model import DeadItem

NAME: Final = "items"  # of the store, in events about its availability
UNKNOWN_DEADLINE: Final = 1.0  # seconds until a sweep after a change of unknown deadlines
INTERVAL: Final = 10.0  # seconds between sweeps for items of other servers
RETRIES: Final = Exponential(0.1, factor=2.0, cap=5.0, jitter=0.5)
# The clock of the store may be behind ours: then a sweep comes too early.
TOO_EARLY: Final = Exponential(0.005, factor=2.0, cap=1.0)


class ItemSweep:
    """A loop that sweeps the store when something falls due."""

    def __init__(
        self,
        store: ItemStore,
        *,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        on_ready: Callable[[str], None],
        on_dead: Callable[[DeadItem], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._on_ready = on_ready
        self._on_dead = on_dead
        self._next_at: datetime | None = None
        self._sweep_at: float | None = None  # by the monotonic clock
        self._changed = asyncio.Event()
        self._too_early = 0  # sweeps in a row that found nothing to do
        self._shorten_at = -math.inf  # when to look for misdated leases, monotonic

    def sweep_at(self, at: datetime) -> None:
        """Sweep at this time, when something falls due."""
        if self._next_at is None or at < self._next_at:
            self._next_at = at
            self._changed.set()

    def sweep_soon(self, within: float = UNKNOWN_DEADLINE) -> None:
        """Sweep within some seconds: only the store knows the deadlines of a change."""
        at = self._clock.monotonic() + within
        if self._sweep_at is None or at < self._sweep_at:
            self._sweep_at = at
            self._changed.set()

    async def run(self) -> None:
        """Sweep and sleep until cancelled; errors of the store do not end the loop."""
        while True:
            self._next_at = self._sweep_at = None
            self._report(await self._sweep())
            await self._sleep()

    def _report(self, swept: SweepResult) -> None:
        for dead in swept.dead:
            self._on_dead(dead)
        for queue in swept.ready:
            self._on_ready(queue)
        if swept.more:
            self.sweep_soon(0.0)
        if swept.next_at is not None:
            self.sweep_at(swept.next_at)
            self.sweep_soon(INTERVAL)
        is_due = swept.next_at is not None and swept.next_at <= self._clock.now()
        has_changed = bool(swept.dead or swept.ready or swept.more)
        self._too_early = self._too_early + 1 if is_due and not has_changed else 0

    async def _sleep(self) -> None:
        if self._too_early:
            await asyncio.sleep(TOO_EARLY.delay(self._too_early, self._dice.draw()))
        while (delay := self._delay()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if math.isinf(delay) else delay):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _delay(self) -> float:
        delays = [math.inf]
        if self._next_at is not None:
            delays.append((self._next_at - self._clock.now()).total_seconds())
        if self._sweep_at is not None:
            delays.append(self._sweep_at - self._clock.monotonic())
        return min(delays)

    async def _shorten_leases(self) -> None:
        """Shorten misdated leases, but not more often than at each interval."""
        if self._clock.monotonic() < self._shorten_at:
            return
        found = await self._store.shorten_leases()
        self._shorten_at = self._clock.monotonic() + INTERVAL
        if found.leases:
            self._observe(
                ClockJumped(mailbox="", seconds=0.0, shortened=found.leases, ahead=found.ahead)
            )

    async def _sweep(self) -> SweepResult:
        tries = 0
        since = self._clock.monotonic()
        while True:
            try:
                await self._shorten_leases()
                swept = await self._store.sweep()
            except BackendError as error:
                tries += 1
                self._observe(OutOfReach(mailbox="", what=NAME, text=str(error), tries=tries))
            except Exception as error:  # noqa: BLE001 -- a bug must not stop the loop
                tries += 1
                self._observe(LoopDied(mailbox="", loop=NAME, text=repr(error)))
            else:
                break
            await asyncio.sleep(RETRIES.delay(tries, self._dice.draw()))
        if tries:
            seconds = self._clock.monotonic() - since
            self._observe(BackInReach(mailbox="", what=NAME, seconds=seconds))
        return swept
