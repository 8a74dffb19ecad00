"""Engines on the test server, each with its own streams, on seconds that are short."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count
from uuid import uuid4

from deadletter.brokers.nats.engine import NatsEngine, connect
from deadletter.system import SystemClock
from deadletter.testing.fakes import START, FakeClock

SECOND = 0.06  # how long a second lasts where the server keeps the time

_numbers = count(1)
_run = uuid4().hex[:8]


class HastyClock(FakeClock):
    """A clock that runs like the server's, only faster."""

    def __init__(self, second: float = SECOND) -> None:
        super().__init__()
        self.second = second
        self._begun = time.monotonic()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (time.monotonic() - self._begun) / self.second

    async def pass_by(self, seconds: float) -> None:
        """Let so many of its seconds pass."""
        await asyncio.sleep(seconds * self.second)


def fresh(url: str, **more: str) -> str:
    """The URL with a prefix nobody has used."""
    parameters = {"prefix": f"t{_run}-{next(_numbers)}", **more}
    return f"{url}?{'&'.join(f'{k}={v}' for k, v in parameters.items())}"


async def hasty(url: str, clock: HastyClock) -> NatsEngine:
    """The engine, in a hurry."""
    return await connect(url, clock=clock, second=clock.second)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[NatsEngine]:
    """The engine, in its own time."""
    engine = await connect(url, clock=SystemClock())
    try:
        yield engine
    finally:
        await engine.close()


async def pass_by(seconds: float) -> None:
    """Let so many short seconds pass."""
    await asyncio.sleep(seconds * SECOND)
