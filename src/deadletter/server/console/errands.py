"""
Errands: long acts that go on in the server when the page that began them is closed.

An errand goes in steps, each of them done for good. It ends when it is through, when
somebody stops it, when its author loses access, or with the server. Then it says how far
it got.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.errors import Conflict, DeadLetterError, NotFound
from deadletter.ports import Clock

from .notices import Notice

LASTS: Final = 3_600.0  # seconds that an errand is shown after its end
_MOST: Final = 8  # at once, of one server
_MOST_OF_ONE: Final = 2  # at once, of one person
_MOST_KEPT: Final = 100
_ENDING: Final = 5.0  # seconds for the last steps when the server ends

log = logging.getLogger("deadletter.server")


class Progress(Struct, frozen=True):
    """How far an errand is: letters that were looked at, and those that were changed."""

    seen: int
    changed: int


Steps: TypeAlias = AsyncIterator[Progress]
Finish: TypeAlias = Callable[[str], Awaitable[Notice]]
"""Says what was done; it is given why the errand ended early, or nothing."""
Allowed: TypeAlias = Callable[[], Awaitable[str]]
"""Returns why an errand may not go on; nothing if it may."""


class Errand:
    """One long act and how far it is."""

    def __init__(self, key: str, who: Identity, title: str, total: int, began: datetime) -> None:
        self.key = key
        self.who = who
        self.title = title
        self.total = total
        self.began = began
        self.ended: datetime | None = None
        self.ended_early = ""  # why
        self.progress = Progress(0, 0)
        self.notice: Notice | None = None  # what it did, once it has ended
        self.forgotten_at = float("inf")
        self.stop = ""  # why it has to stop after this step

    @property
    def path(self) -> str:
        """The page that shows it."""
        return f"/errands/{self.key}"


class Errands:
    """The errands of one server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, Errand] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(
        self,
        who: Identity,
        title: str,
        total: int,
        *,
        steps: Steps,
        finish: Finish,
        allowed: Allowed,
        tell: Callable[[Notice], None],
    ) -> Errand:
        """
        Begin an errand and return it. Raises Conflict if too many are under way.

        Args:
            who: The person whose errand it is.
            title: What it does, such as `Discard 12,000 letters`.
            total: The number of letters that it looks at.
            steps: The work; each step reports how far it is.
            finish: Called at the end, whatever it is.
            allowed: Called before each step.
            tell: Called with the notice when it has ended.
        """
        self._forget_old()
        running = [self._kept[key] for key in self._tasks]
        mine = sum(one.who.principal == who.principal for one in running)
        if len(running) >= _MOST or mine >= _MOST_OF_ONE:
            raise Conflict(
                f"{len(running)} long acts are under way, {mine} of them yours: wait until one"
                " has ended"
            )
        errand = Errand(secrets.token_hex(8), who, title, total, self._clock.now())
        self._kept[errand.key] = errand
        running_it = self._run(errand, steps, finish, allowed, tell)
        task = asyncio.create_task(running_it, name=f"errand {errand.key}")
        self._tasks[errand.key] = task
        task.add_done_callback(lambda _: self._tasks.pop(errand.key, None))
        return errand

    def find(self, who: Identity, key: str) -> Errand:
        """Return an errand of this person. Raises NotFound if there is none."""
        self._forget_old()
        found = self._kept.get(key)
        if found is None or not who.owns(found.who.principal):
            raise NotFound(
                "there is no such act under way: it ended more than an hour ago, or the server"
                " was started again since. The audit says what was done"
            )
        return found

    def running(self, who: Identity) -> list[Errand]:
        """Return the errands of this person that are under way."""
        return [
            self._kept[key] for key in self._tasks if self._kept[key].who.principal == who.principal
        ]

    async def close(self) -> None:
        """Stop all errands after their current step."""
        for key in self._tasks:
            self._kept[key].stop = "the server was stopped"
        if not self._tasks:
            return
        _, late = await asyncio.wait(list(self._tasks.values()), timeout=_ENDING)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _run(
        self,
        errand: Errand,
        steps: Steps,
        finish: Finish,
        allowed: Allowed,
        tell: Callable[[Notice], None],
    ) -> None:
        try:
            errand.ended_early = await self._go(errand, steps, allowed)
        except asyncio.CancelledError:
            errand.ended_early = "the server was stopped"
        except DeadLetterError as error:
            errand.ended_early = str(error)
        except Exception:
            log.exception("errand %s failed", errand.key)
            errand.ended_early = "of an unexpected error: see the log"
        if errand.ended_early:
            log.warning(
                "%s ended after %d of %d letters: %s",
                errand.title,
                errand.progress.seen,
                errand.total,
                errand.ended_early,
            )
        with suppress(DeadLetterError):  # the store may be what has failed
            errand.notice = await finish(errand.ended_early)
            tell(errand.notice)
        errand.ended = self._clock.now()
        errand.forgotten_at = self._clock.monotonic() + LASTS

    @staticmethod
    async def _go(errand: Errand, steps: Steps, allowed: Allowed) -> str:
        """Go on to the end; return why if it is not reached."""
        if why := await allowed():
            return why
        async for progress in steps:
            errand.progress = progress
            if errand.stop:
                return errand.stop
            if why := await allowed():
                return why
            await asyncio.sleep(0)  # requests take turns with it
        return ""

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        over = [key for key, one in self._kept.items() if one.forgotten_at <= now]
        ended = [key for key in self._kept if key not in self._tasks]
        over += ended[: max(0, len(self._kept) - _MOST_KEPT)]
        for key in over:
            self._kept.pop(key, None)
