"""What can run in a LoopGroup: workers, DLQ consumers, the sweep."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

from deadletter.core.backoff import Exponential
from deadletter.core.events import LoopDied, Observer
from deadletter.core.failure.clues import plain_name, text_of
from deadletter.core.redact import redact
from deadletter.ports import Clock

from .lease_keeper import Heartbeat
from .lifeline import Hopeless
from .watchdog import end_if_wrecked


class Loop(Protocol):
    """Something that goes on until it is told to stop."""

    @property
    def name(self) -> str:
        """Return what people call it."""

    @property
    def heartbeat(self) -> Heartbeat:
        """Beaten at least once a turn."""

    async def run(self, stop: asyncio.Event) -> None:
        """
        Go on until `stop` is set and everything held is settled or given up.

        Ordinary trouble does not end it. Cancelled, it hands back at once what it
        can, and goes.
        """

    def ready(self) -> str | None:
        """None when all is well, otherwise a sentence that says what is not."""


@runtime_checkable
class Noting(Protocol):
    """A loop that has something to say although it is ready."""

    def note(self) -> str | None:
        """Return a sentence for people, or None."""


def was_cancelled() -> bool:
    """
    Return whether the running task has been cancelled from outside.

    A CancelledError without that comes out of somebody's own code, and is an
    error like any other.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def beside(work: Coroutine[Any, Any, None], helpers: Collection[asyncio.Task[None]]) -> None:
    """
    Do the work as long as its helpers live; raise what any of them dies of.

    Without one of them it would look well and get nothing done.
    """
    working = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({working, *helpers}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
    if working not in done:
        done.pop().result()
        raise RuntimeError("a helper of this loop ended without having been asked to")
    working.result()


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
        """Return what it died of; nothing when it just ended."""
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
