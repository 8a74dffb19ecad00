"""Workers and servers die; no message is lost, no letter is doubled."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.brokers.redis.engine import RedisEngine, connect
from deadletter.core.errors import Unavailable
from deadletter.core.message import Message
from deadletter.ports import Fate, QueueInfo
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message, info
from engines import redis_worker
from engines.patience import insist
from engines.redis_rig import fresh, tuned
from servers import Server

pytestmark = pytest.mark.slow


def work_for(number: int) -> Message:
    """A message; every fifth is bad."""
    bad = int(number % 5 == 0)
    body = b'{"number": %d, "bad": %d}' % (number, bad)
    return a_message(body, id=f"w-{number}")


async def is_done(engine: RedisEngine, sent: int) -> bool:
    """Whether everything has left the mailbox, one way or the other."""
    try:
        queues = await engine.broker.queues()
    except Unavailable:
        return False
    tally = queues[0].tally if queues else {}
    return tally.get(Fate.HANDLED, 0) + tally.get(Fate.BURIED, 0) >= sent


async def letters_in(place: Path) -> list[str]:
    """The ids of messages that have a letter."""
    async with App(f"sqlite:///{place}/office.db") as app:
        store = await app.letters()
        heads = (await store.find(limit=1000)).heads
        letters = await store.get([head.id for head in heads])
        assert await store.verify() == []
    return sorted(letter.message.id for letter in letters)


def check(counts: QueueInfo, effects: Path, sent: int, *, bad: int) -> None:
    assert counts.tally == {"sent": sent, Fate.HANDLED: sent - bad, Fate.BURIED: bad}
    done = {int(line) for line in effects.read_text().split()}
    assert done == {number for number in range(sent) if number % 5}


@asynccontextmanager
async def working(url: str, place: Path, how: str) -> AsyncIterator[asyncio.subprocess.Process]:
    script = redis_worker.__file__
    process = await asyncio.create_subprocess_exec(sys.executable, script, url, str(place), how)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_worker_killed_between_keep_and_ack_doubles_no_letter(
    redis_server: Server, tmp_path: Path
) -> None:
    url = fresh(redis_server.url)
    engine = await connect(url)
    await engine.broker.sink("work").send([work_for(n) for n in range(30)])
    bad = sorted(f"w-{n}" for n in range(0, 30, 5))

    async with working(url, tmp_path, "dying") as process:
        assert await asyncio.wait_for(process.wait(), 30) == 9
    kept_before = await letters_in(tmp_path)
    async with working(url, tmp_path, "well"):
        await eventually(lambda: is_done(engine, 30), within=30)

    assert kept_before, "a letter was kept before it died"
    assert await letters_in(tmp_path) == bad
    check(await info(engine.broker, "work"), tmp_path / "effects", 30, bad=6)
    await engine.close()


async def test_a_server_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    total = 600
    with tuned() as server:
        engine = await connect(server.url)
        app = await redis_worker.make_app(server.url, tmp_path)
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))

        async def produce() -> None:
            sink = engine.broker.sink("work")
            for start in range(0, total, 3):
                messages = [work_for(n) for n in range(start, start + 3)]
                await insist(lambda m=messages: sink.send(m))
                await asyncio.sleep(0.003)

        producing = asyncio.create_task(produce())
        await eventually(lambda: is_done(engine, 100), within=20)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(5.0)
        await asyncio.to_thread(server.start)
        await producing
        await eventually(lambda: is_done(engine, total), within=60)

        counts = await info(engine.broker, "work")
        stop.set()
        assert await work == 0
        await app.close()
        await engine.close()

    assert await letters_in(tmp_path) == sorted(f"w-{n}" for n in range(0, total, 5))
    check(counts, tmp_path / "effects", total, bad=total // 5)
