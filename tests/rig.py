"""A worker on the memory engine, for tests of the runtime."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from deadletter.app import App
from deadletter.core.events import Event
from deadletter.core.letter import DeadLetter
from deadletter.ports import LetterStore, QueueInfo
from deadletter.testing.fakes import eventually


class Rig:
    """An App on the memory engine that remembers every event."""

    def __init__(self, url: str = "memory://", **options: Any) -> None:
        self.events: list[Event] = []
        self.app = App(url, observe=self.events.append, **options)

    @asynccontextmanager
    async def working(self) -> AsyncIterator["Rig"]:
        """Run the handlers meanwhile."""
        stop = asyncio.Event()
        async with self.app:
            work = asyncio.create_task(self.app.work(stop))
            try:
                yield self
            finally:
                stop.set()
                await asyncio.wait_for(work, 30)

    async def drained(self, mailbox: str, *, within: float = 10.0) -> None:
        """Wait until nothing is left in a mailbox."""

        async def is_empty() -> bool:
            queue = await self.queue(mailbox)
            return not (queue.ready or queue.claimed or queue.delayed or queue.suspects)

        await eventually(is_empty, within=within)

    async def queue(self, mailbox: str) -> QueueInfo:
        engine = await self.app.engine()
        return next(q for q in await engine.broker.queues() if q.options.name == mailbox)

    async def letters(self) -> list[DeadLetter]:
        """All letters, newest first."""
        store: LetterStore = await self.app.letters()
        page = await store.find(limit=1000)
        return list(await store.get([head.id for head in page.heads]))

    def seen(self, kind: type[Event]) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def fails(times: int, error: Callable[[], BaseException]) -> Callable[[], None]:
    """A step that raises the first `times` times it is taken."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken <= times:
            raise error()

    return step
