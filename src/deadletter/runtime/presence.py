"""
Presence: the loop that tells the office, every few seconds, that this process works.

People see who works a mailbox, which version runs, and which brake is open. Nothing else
depends on it: a sign that cannot be written is reported once, and the work goes on.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol, runtime_checkable

from deadletter.core.events import BackInReach, Observer, OutOfReach
from deadletter.core.failure.clues import plain_name, text_of
from deadletter.core.presence import EVERY, LONGEST, WorkedMailbox, WorkerSign
from deadletter.ports import Clock, Dice, LetterStore, Presence

from .deliveries import Heartbeat
from .loop_group import Loop

_PATIENCE: Final = 5.0  # seconds for one sign; the next is soon
_LAST_WORD: Final = 1.0  # seconds to say that this process ends
_WHAT: Final = "presence"


@runtime_checkable
class WorksMailbox(Protocol):
    """A loop that works a mailbox, and can say how it does."""

    def presence(self) -> WorkedMailbox:
        """Return what it works at the moment. It must be cheap."""


class PresenceLoop:
    """Writes the signs of one process; it is always ready, whatever becomes of them."""

    def __init__(
        self,
        store: Presence,
        loops: Sequence[WorksMailbox],
        *,
        name: str,
        version: str,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        every: float = EVERY,
    ) -> None:
        self.name = _WHAT
        self._process = name
        self.heartbeat = Heartbeat(clock)
        self._store = store
        self._loops = loops
        self._version = version
        self._clock = clock
        self._observe = observe
        self._every = every
        self._id = dice.new_id()
        self._failing_since: float | None = None

    def ready(self) -> str | None:
        """Return None: a process can work without being seen."""
        return None

    async def run(self, stop: asyncio.Event) -> None:
        """Write a sign now and then until `stop` is set, and take it back in the end."""
        try:
            while not stop.is_set():
                self.heartbeat.beat()
                await self._write()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._every)
        finally:
            with suppress(Exception):  # it is shown as silent, and forgotten
                async with asyncio.timeout(_LAST_WORD):
                    await self._store.workers_left([self._id])

    async def _write(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._store.note_workers([self._sign()])
        except Exception as error:  # noqa: BLE001 -- whatever it is, it may not stop the work
            if self._failing_since is None:
                self._failing_since = self._clock.monotonic()
                text = f"{plain_name(type(error))}: {text_of(error, LONGEST)}"
                self._observe(OutOfReach(mailbox="*", what=_WHAT, text=text, tries=1))
            return
        if self._failing_since is not None:
            seconds = self._clock.monotonic() - self._failing_since
            self._failing_since = None
            self._observe(BackInReach(mailbox="*", what=_WHAT, seconds=seconds))

    def _sign(self) -> WorkerSign:
        return WorkerSign(
            id=self._id,
            name=self._process,
            host=self._process.rpartition(":")[0],
            version=self._version,
            mailboxes=tuple(loop.presence() for loop in self._loops),
        )


def presence_loops(
    letters: LetterStore,
    loops: Iterable[Loop],
    *,
    name: str,
    version: str,
    clock: Clock,
    dice: Dice,
    observe: Observer,
) -> list[Loop]:
    """Return the loop of a process that works mailboxes, if its office keeps presence."""
    working = [loop for loop in loops if isinstance(loop, WorksMailbox)]
    if not working or not isinstance(letters, Presence):
        return []
    return [
        PresenceLoop(
            letters, working, name=name, version=version, clock=clock, dice=dice, observe=observe
        )
    ]
