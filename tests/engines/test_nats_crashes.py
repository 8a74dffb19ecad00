"""Workers and servers die; no message is lost, no letter is doubled."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.brokers.nats.engine import NatsEngine
from deadletter.core.errors import Unavailable
from deadletter.core.message import Message
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message, info
from engines import nats_worker
from engines.nats_rig import fresh, opened
from engines.patience import insist
from servers import Server

pytestmark = pytest.mark.slow

EVERY = 5  # so many messages have one that is bad


def work_for(number: int) -> Message:
    body = b'{"number": %d, "bad": %d}' % (number, number % EVERY == 0)
    return a_message(body, id=f"w-{number}")


def all_bad(total: int) -> list[str]:
    return sorted(f"w-{number}" for number in range(0, total, EVERY))


async def is_empty(engine: NatsEngine) -> bool:
    try:
        there = await info(engine.broker, "work")
    except Unavailable:
        return False
    return there.ready + there.claimed + there.suspects == 0


def handled(place: Path) -> set[int]:
    effects = place / "effects"
    return set(map(int, effects.read_text().split())) if effects.exists() else set()


async def with_letters(place: Path) -> list[str]:
    """The ids of messages that have a letter, as often as they have."""
    async with App(f"sqlite:///{place}/office.db") as app:
        store = await app.letters()
        found = await store.get([h.id for h in (await store.find(limit=1000)).heads])
        assert await store.verify() == []
    return sorted(letter.message.id for letter in found)


@asynccontextmanager
async def working(url: str, place: Path, how: str) -> AsyncIterator[asyncio.subprocess.Process]:
    words = (nats_worker.__file__, url, str(place), how)
    process = await asyncio.create_subprocess_exec(sys.executable, *words)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_worker_killed_between_keep_and_ack_doubles_no_letter(
    nats_server: Server, tmp_path: Path
) -> None:
    url = fresh(nats_server.url)
    async with opened(url) as engine:
        await engine.broker.sink("work").send([work_for(n) for n in range(30)])

        async with working(url, tmp_path, "dying") as process:
            assert await asyncio.wait_for(process.wait(), 30) == 9
        kept_before = await with_letters(tmp_path)
        async with working(url, tmp_path, "well"):
            await eventually(lambda: is_empty(engine), within=40)

    assert kept_before, "it died too early: nothing was kept"
    assert await with_letters(tmp_path) == all_bad(30)
    assert handled(tmp_path) == {n for n in range(30) if n % EVERY}


async def test_a_server_killed_under_load_loses_and_doubles_nothing(
    nats_server: Server, tmp_path: Path
) -> None:
    total, url = 500, fresh(nats_server.url)
    async with opened(url) as engine:
        app = await nats_worker.make_app(url, tmp_path)
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))

        async def produce() -> None:
            sink = engine.broker.sink("work")
            for number in range(total):
                one = [work_for(number)]  # may have arrived: the same again is fine
                await insist(lambda m=one: sink.send(m))

        producing = asyncio.create_task(produce())
        await eventually(lambda: len(handled(tmp_path)) > 50, within=20)
        await asyncio.to_thread(nats_server.kill)
        await asyncio.sleep(5.0)
        await asyncio.to_thread(nats_server.start)
        await asyncio.wait_for(producing, 30)
        await eventually(lambda: is_empty(engine), within=60)

        stop.set()
        assert await work == 0
        await app.close()

    assert await with_letters(tmp_path) == all_bad(total)
    assert handled(tmp_path) == {n for n in range(total) if n % EVERY}
