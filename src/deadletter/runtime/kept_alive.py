"""
Something that is started again whenever it dies before its time.

    beside = KeptAlive("replays", sending.run, clock=clock, observe=observe)
    async with beside:           # runs in a task of its own
        ...                      # beside.trouble: why it does not run, or None
                                 # at the end it is told to stop, and waited for
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self, TypeAlias

from deadletter.core.backoff import Exponential
from deadletter.core.events import LoopDied, Observer
from deadletter.core.raised import plain_name, text_of
from deadletter.core.redact import redact
from deadletter.ports import Clock

from .loop import was_cancelled
from .progress import Hopeless
from .wreck import end_if_wrecked

AGAIN: Final = Exponential(1.0, factor=2.0, cap=30.0, jitter=0.0)
_TEXT_LIMIT: Final = 500
_HEALTHY_AFTER: Final = 60.0  # one that ran this long has got over its troubles

Run: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]


class KeptAlive:
    """
    Runs `run` until it is told to stop, whatever it dies of meanwhile.

    Every death is told as a LoopDied, and the next start waits longer. `run` is
    handed the event that tells it to end, and ends by itself once that is set.
    """

    def __init__(self, name: str, run: Run, *, clock: Clock, observe: Observer) -> None:
        self.is_running = False
        self.trouble: str | None = "it has not been started yet"
        self._name = name
        self._run = run
        self._clock = clock
        self._observe = observe
        self._deaths = 0
        self._stop = asyncio.Event()
        self._task: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> Self:
        self.trouble = None
        self._task = asyncio.create_task(self.run(self._stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    async def run(self, stop: asyncio.Event) -> bool:
        """Run it until `stop` is set; whether it ended well then."""
        while not stop.is_set():
            started = self._clock.monotonic()
            why = await self._once(stop)
            if stop.is_set() and not why:
                break
            why = why or "it ended without having been asked to"
            if self._clock.monotonic() - started >= _HEALTHY_AFTER:
                self._deaths = 0
            self._deaths += 1
            delay = AGAIN.delay(self._deaths, 0.0)
            self.trouble = f"it died and starts again in {delay:.0f} s: {why}"
            with suppress(Exception):  # an observer's trouble is not ours
                self._observe(LoopDied(mailbox="", loop=self._name, text=why))
            if stop.is_set():
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
        return True

    async def _once(self, stop: asyncio.Event) -> str:
        """What it died of; nothing when it just ended."""
        self.is_running = True
        self.trouble = None
        try:
            await self._run(stop)
        except BaseException as error:
            if was_cancelled():
                raise asyncio.CancelledError from error
            end_if_wrecked(error)
            if isinstance(error, Hopeless):
                raise
            return _why(error)  # whatever it was: it may not end the others
        finally:
            self.is_running = False
            self.trouble = "it has ended"
        return ""


def _why(error: BaseException) -> str:
    return redact(f"{plain_name(type(error))}: {text_of(error, _TEXT_LIMIT)}")
