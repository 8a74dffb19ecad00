"""Engines on the test server, each with its own keys, on a clock that stands still."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from redis import exceptions

from deadletter.brokers.redis.engine import RedisEngine, connect
from deadletter.kit import micros
from deadletter.testing.fakes import FakeClock
from servers import Missing, Redis
from servers.fixtures import do_without

_numbers = count(1)
_run = uuid4().hex[:8]


def fresh(url: str) -> str:
    """The URL with a prefix nobody has used."""
    return f"{url}?prefix=t{_run}-{next(_numbers)}"


async def on_clock(url: str, clock: FakeClock) -> RedisEngine:
    """The engine, on the test's clock instead of the server's."""
    return await connect(url, now=lambda: micros(clock.now()))


class Deaf:
    """Runs what it is told, and does not hear the next so many answers."""

    loads = True

    def __init__(self, engine: RedisEngine) -> None:
        self.misses = 0
        self._caller = engine._runner._caller
        engine._runner._caller = self

    async def drop(self) -> None:
        """Not asked for here."""

    async def execute(self, words: Sequence[Any], *, within: float = 5.0) -> Any:
        said = await self._caller.execute(words, within=within)
        if self.misses > 0:
            self.misses -= 1
            raise exceptions.ConnectionError("cut before the answer came")
        return said

    async def close(self) -> None:
        await self._caller.close()


class Tuned(Redis):
    """A server of its own, with settings of its own."""

    settings: tuple[str, ...] = ()

    def command(self) -> list[str]:
        return [*super().command(), *self.settings]


@contextmanager
def tuned(*settings: str) -> Iterator[Tuned]:
    """A server with these settings, as long as the block lasts."""
    try:
        server = Tuned()
    except Missing as missing:
        do_without(missing)
    if not server.ours:
        pytest.skip("a server that is not ours is not set up anew")
    server.settings = settings
    try:
        server.start()
        yield server
    finally:
        server.close()
