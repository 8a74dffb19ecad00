"""Workers and servers die; no job is lost, no letter is doubled."""

import asyncio
from pathlib import Path

import pytest

from deadletter.brokers.bullmq.engine import BullEngine, connect
from deadletter.core.errors import Unavailable
from deadletter.testing.fakes import eventually
from engines import redis_worker
from engines.bullmq_rig import fresh
from engines.patience import insist
from engines.redis_rig import tuned
from engines.test_redis_crashes import letters_in, work_for, working
from servers import Server

pytestmark = pytest.mark.slow


async def is_empty(engine: BullEngine) -> bool:
    """Whether every job has left the queue, one way or the other."""
    try:
        (queue,) = await engine.broker.queues()
    except Unavailable:
        return False
    return not queue.ready + queue.delayed + queue.claimed + queue.suspects


def handled(place: Path) -> set[int]:
    """The numbers of those whose handler has gone through."""
    effects = place / "effects"
    return {int(line) for line in effects.read_text().split()}


async def test_a_worker_killed_between_keep_and_ack_doubles_no_letter(
    redis_server: Server, tmp_path: Path
) -> None:
    url = fresh(redis_server.url)
    engine = await connect(url)
    await engine.broker.sink("work").send([work_for(n) for n in range(30)])

    async with working(url, tmp_path, "dying") as process:
        assert await asyncio.wait_for(process.wait(), 30) == 9
    kept_before = await letters_in(tmp_path)
    async with working(url, tmp_path, "well"):
        await eventually(lambda: is_empty(engine), within=30)

    assert kept_before, "a letter was kept before it died"
    assert await letters_in(tmp_path) == sorted(f"w-{n}" for n in range(0, 30, 5))
    assert handled(tmp_path) == {n for n in range(30) if n % 5}
    await engine.close()


async def test_a_server_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    total = 400
    with tuned() as server:
        url = server.url.replace("redis", "bullmq", 1)
        engine = await connect(url)
        app = await redis_worker.make_app(url, tmp_path)
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))

        async def produce() -> None:
            sink = engine.broker.sink("work")
            for start in range(0, total, 4):
                messages = [work_for(n) for n in range(start, start + 4)]
                await insist(lambda m=messages: sink.send(m))
                await asyncio.sleep(0.003)

        producing = asyncio.create_task(produce())
        await eventually(lambda: len(handled(tmp_path)) > 60, within=20)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await producing
        await eventually(lambda: is_empty(engine), within=60)

        counter = await engine._runner.command("GET", "bull:work:id")
        stop.set()
        assert await work == 0
        await app.close()
        await engine.close()

    assert int(counter) == total, "no job was added twice"
    assert await letters_in(tmp_path) == sorted(f"w-{n}" for n in range(0, total, 5))
    assert handled(tmp_path) == {n for n in range(total) if n % 5}
