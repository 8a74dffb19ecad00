"""
Seeing to what falls due: leases that ran out, schedules, items that are dead.

The store says when there is something to do next, and nobody looks before that. The
one exception: while there is something, it is looked at now and then, since another
server of the same store may have died with leases of its own.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

from deadletter.core.backoff import Exponential
from deadletter.core.errors import BackendError
from deadletter.core.events import (
    BackInReach,
    ClockJumped,
    LoopDied,
    Observer,
    OutOfReach,
)
from deadletter.core.items import Departed
from deadletter.ports import Clock, Dice, ItemStore, Tended

NAME: Final = "items"  # what the store is called when it is out of reach
SOON: Final = 1.0  # seconds until a change whose deadline is not known is looked at
AGAIN: Final = 10.0  # seconds between looks at what another server may have left
PATIENCE: Final = Exponential(0.1, factor=2.0, cap=5.0, jitter=0.5)
# The store's clock may be behind ours: asked too early, it has nothing to do yet.
TOO_EARLY: Final = Exponential(0.005, factor=2.0, cap=1.0)


class Tending:
    """A loop that tends to the store when something falls due."""

    def __init__(
        self,
        store: ItemStore,
        *,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        on_ready: Callable[[str], None],
        on_departed: Callable[[Departed], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._on_ready = on_ready
        self._on_departed = on_departed
        self._next_at: datetime | None = None
        self._look_at: float | None = None  # by the monotonic clock
        self._changed = asyncio.Event()
        self._too_early = 0  # times in a row that nothing was to be done
        self._shorten_at = -math.inf  # when to look at leases again, monotonic

    def due(self, at: datetime) -> None:
        """Something falls due at that time."""
        if self._next_at is None or at < self._next_at:
            self._next_at = at
            self._changed.set()

    def stir(self, within: float = SOON) -> None:
        """Something changed, with a deadline that only the store knows."""
        at = self._clock.monotonic() + within
        if self._look_at is None or at < self._look_at:
            self._look_at = at
            self._changed.set()

    async def run(self) -> None:
        """Tend, rest, and so on until cancelled; trouble does not end it."""
        while True:
            self._next_at = self._look_at = None
            self._take_in(await self._tended())
            await self._rest()

    def _take_in(self, tended: Tended) -> None:
        for departed in tended.departed:
            self._on_departed(departed)
        for queue in tended.ready:
            self._on_ready(queue)
        did = bool(tended.departed or tended.ready or tended.more)
        if tended.more:
            self.stir(0.0)
        if tended.next_at is not None:
            self.due(tended.next_at)
            self.stir(AGAIN)
        is_due = tended.next_at is not None and tended.next_at <= self._clock.now()
        self._too_early = self._too_early + 1 if is_due and not did else 0

    async def _rest(self) -> None:
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
        if self._look_at is not None:
            delays.append(self._look_at - self._clock.monotonic())
        return min(delays)

    async def _shorten_leases(self) -> None:
        """Now and then shorten leases that a clock wrote which was ahead."""
        if self._clock.monotonic() < self._shorten_at:
            return
        found = await self._store.shorten_leases()
        self._shorten_at = self._clock.monotonic() + AGAIN
        if found.leases:
            self._observe(
                ClockJumped(
                    mailbox="", seconds=0.0, shortened=found.leases, ahead=found.ahead
                )
            )

    async def _tended(self) -> Tended:
        tries = 0
        since = self._clock.monotonic()
        while True:
            try:
                await self._shorten_leases()
                tended = await self._store.tend()
            except BackendError as error:
                tries += 1
                self._observe(
                    OutOfReach(mailbox="", what=NAME, text=str(error), tries=tries)
                )
            except Exception as error:  # noqa: BLE001 -- a mistake of ours must not stop it
                tries += 1
                self._observe(LoopDied(mailbox="", loop=NAME, text=repr(error)))
            else:
                break
            await asyncio.sleep(PATIENCE.delay(tries, self._dice.draw()))
        if tries:
            seconds = self._clock.monotonic() - since
            self._observe(BackInReach(mailbox="", what=NAME, seconds=seconds))
        return tended
