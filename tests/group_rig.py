"""Loops that do what a test says, and a group that runs them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from deadletter.core.events import Event
from deadletter.runtime.deliveries import Heartbeat
from deadletter.runtime.loop_group import LoopGroup
from deadletter.testing.fakes import FakeClock

Body = Callable[[asyncio.Event], Awaitable[None]]


async def until_stopped(stop: asyncio.Event) -> None:
    await stop.wait()


class Turning:
    """A loop that does what the test says, each time it is run."""

    def __init__(self, *bodies: Body, name: str = "orders", clock: Any = None) -> None:
        self.name = name
        self.heartbeat = Heartbeat(clock or FakeClock())
        self.runs = 0
        self.complaint: str | None = None
        self._bodies = bodies or (until_stopped,)

    async def run(self, stop: asyncio.Event) -> None:
        self.runs += 1
        await self._bodies[min(self.runs, len(self._bodies)) - 1](stop)

    def ready(self) -> str | None:
        return self.complaint


@asynccontextmanager
async def running(
    *loops: Turning, **options: Any
) -> AsyncIterator[tuple[LoopGroup, list[Event], asyncio.Task[int]]]:
    events: list[Event] = []
    given = {"clock": FakeClock(), "install_signals": False, **options}
    group = LoopGroup(loops, observe=events.append, **given)
    task = asyncio.create_task(group.run())
    try:
        yield group, events, task
    finally:
        group.hurry()
        await asyncio.wait({task})
