"""Failed background tasks are visible in health."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import pytest

from deadletter.office.replay_sender import ReplaySender
from deadletter.queue_server.service import ItemSweep
from deadletter.server.listener import listen, url_of
from deadletter.server.server import Ending, Server
from deadletter.server.startup import open_context
from deadletter.settings import Serve, Settings
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually

pytestmark = pytest.mark.slow

SETTINGS = Settings(url="memory://", serve=Serve(access="off", port=0))


@pytest.fixture
def listener() -> Any:
    with closing(listen("127.0.0.1", 0)) as listener:
        yield listener


@asynccontextmanager
async def serving(listener: socket.socket) -> AsyncIterator[Server]:
    """Run a server in this process until the end of the block."""
    async with open_context(
        SETTINGS, clock=SystemClock(), dice=SystemDice(), observe=lambda event: None
    ) as context:
        server, started = Server(context, listener, None), asyncio.Event()

        async def listening() -> None:
            started.set()

        running = asyncio.create_task(server.run(listening))
        async with asyncio.timeout(30):
            await started.wait()
            yield server
            server._stop_requested.set()
            assert await running is Ending.WELL


async def ready(listener: socket.socket) -> int:
    async with httpx.AsyncClient(base_url=url_of(listener)) as client:
        return (await client.get("/health/ready")).status_code


async def test_a_server_is_ready_while_everything_runs(listener: socket.socket) -> None:
    async with serving(listener) as server:
        await eventually(lambda: not server.complaints())
        assert await ready(listener) == 200


async def broken(self: Any) -> None:
    raise ValueError("a mistake of ours")


@pytest.fixture
def break_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplaySender, "adopt", broken)


@pytest.fixture
def break_tending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ItemSweep, "run", broken)


@pytest.mark.parametrize(
    ("fault", "loop"), [("break_sending", "replays"), ("break_tending", "items")]
)
async def test_a_dead_loop_is_named_and_the_server_is_not_ready(
    request: pytest.FixtureRequest, listener: socket.socket, fault: str, loop: str
) -> None:
    request.getfixturevalue(fault)

    async with serving(listener) as server:
        await eventually(lambda: loop in {one.loop for one in server.complaints()})
        status = await ready(listener)

    assert status == 503


async def test_a_dead_loop_is_restarted(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = ReplaySender.adopt, 0

    async def once_broken(self: ReplaySender) -> None:
        nonlocal looks
        looks += 1
        await (broken if looks == 1 else real)(self)

    monkeypatch.setattr(ReplaySender, "adopt", once_broken)

    async with serving(listener) as server:
        await eventually(lambda: looks == 2)

        assert not server.complaints()
        assert await ready(listener) == 200
