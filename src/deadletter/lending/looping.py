"""A loop of the queue server that is started again when it dies."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from deadletter.core.backoff import Exponential
from deadletter.core.events import LoopDied, Observer
from deadletter.ports import Clock, Dice

AGAIN: Final = Exponential(0.2, factor=2.0, cap=30.0, jitter=0.5)
STEADY: Final = 10.0  # seconds after which a loop has got over its troubles


class Loop:
    """
    Runs something that should never end, again and again until cancelled.

    Each death is told, and the pauses grow until it has held out for a while.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        dice: Dice,
        observe: Observer,
    ) -> None:
        self._name = name
        self._run = run
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._deaths = 0
        self._last = ""
        self._began: float | None = None  # by the monotonic clock; None while down

    def trouble(self) -> str | None:
        """Why it cannot be relied on; None while it runs, or runs well again."""
        if not self._deaths or self._is_steady():
            return None
        times = "" if self._deaths == 1 else f" {self._deaths} times"
        return f"{self._name} died{times}: {self._last}"

    async def run(self) -> None:
        """Keep it running."""
        while True:
            self._began = self._clock.monotonic()
            try:
                await self._run()
            except Exception as error:  # noqa: BLE001 -- whatever it is, it must go on
                self._died(repr(error))
            else:
                self._died("it ended")
            await asyncio.sleep(AGAIN.delay(self._deaths, self._dice.draw()))

    def _died(self, why: str) -> None:
        self._deaths = 1 if self._is_steady() else self._deaths + 1
        self._last, self._began = why, None
        with suppress(Exception):  # an observer may be what it died of
            self._observe(LoopDied(mailbox="", loop=self._name, text=why))

    def _is_steady(self) -> bool:
        if self._began is None:
            return False
        return self._clock.monotonic() - self._began >= STEADY
