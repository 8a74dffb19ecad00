"""Notes of running handlers, written where people see them before it is settled."""

import asyncio
from contextlib import suppress
from typing import Final

from deadletter.core.errors import BackendError
from deadletter.core.events import HandlerNoted, Observer
from deadletter.ports import Broker, Note, TakesNotes

from .held import Held, Noted

_MOST: Final = 10_000  # that are not written yet; more are dropped


class Notes:
    """Gathers notes from handlers in tasks, threads and processes."""

    def __init__(self, mailbox: str, broker: Broker, observe: Observer) -> None:
        self._mailbox = mailbox
        self._takes = broker if isinstance(broker, TakesNotes) else None
        self._observe = observe
        self._waiting: list[Note] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    def begin(self, wake: asyncio.Event) -> None:
        """Gather notes on the running loop; `wake` is set when there are any."""
        self._loop, self._wake = asyncio.get_running_loop(), wake

    def add(self, held: Held, noted: Noted) -> None:
        """Tell of a note, and have it written; from any thread."""
        loop = self._loop
        if loop is None:
            return
        if loop is _running_loop():
            self._add(held, noted)
            return
        with suppress(RuntimeError):  # the loop has ended, and all work with it
            loop.call_soon_threadsafe(self._add, held, noted)

    async def write(self) -> None:
        """Write them, once: they are for people, and must not hold anything up."""
        notes, self._waiting = self._waiting, []
        if notes and self._takes is not None:
            with suppress(BackendError):
                await self._takes.note(self._mailbox, notes)

    def _add(self, held: Held, noted: Noted) -> None:
        delivery = held.delivery
        self._observe(
            HandlerNoted(
                mailbox=self._mailbox,
                message_id=delivery.message.id,
                attempt=delivery.attempt,
                progress=(noted.progress or b"").decode(),
                text=noted.line or "",
            )
        )
        if self._takes is not None and len(self._waiting) < _MOST:
            self._waiting.append(Note(delivery, noted.progress, noted.line))
            self._wake.set()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
