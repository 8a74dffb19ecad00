"""Workers and brokers die; no message is lost, no letter is doubled."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.brokers.rabbitmq.engine import RabbitEngine
from deadletter.core.errors import Unavailable
from deadletter.core.failure import Reason
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message
from engines import rabbitmq_worker
from engines.patience import insist
from engines.rabbitmq_rig import opened
from servers import Server

pytestmark = pytest.mark.slow

GOOD, BAD, DEADLY = 0, 1, 2


def work_for(number: int, bad: int | None = None) -> Message:
    """A message; every fifth is bad."""
    how = (BAD if number % 5 == 0 else GOOD) if bad is None else bad
    body = b'{"number": %d, "bad": %d}' % (number, how)
    return a_message(body, id=f"w-{number}")


async def letters_in(place: Path) -> list[DeadLetter]:
    """All letters of the office."""
    async with App(f"sqlite:///{place}/office.db") as app:
        store = await app.letters()
        heads = (await store.find(limit=1000)).heads
        assert await store.verify() == []
        return list(await store.get([head.id for head in heads]))


def names_of(letters: list[DeadLetter]) -> list[str]:
    return sorted(letter.message.id for letter in letters)


async def are_kept(place: Path, count: int) -> bool:
    """Whether so many letters are there."""
    await asyncio.sleep(0.1)
    return len(await letters_in(place)) >= count


def done(place: Path) -> set[int]:
    """The numbers of those that were handled, once or more often."""
    path = place / "effects"
    return {int(line) for line in path.read_text().split()} if path.exists() else set()


async def is_empty(engine: RabbitEngine) -> bool:
    """Whether nothing is left in the broker."""
    try:
        (queue,) = [q for q in await engine.broker.queues() if q.options.name == "work"]
        waiting = await engine._mailboxes._queues.count("work.suspects")
    except Unavailable:
        return False
    return not (queue.ready or queue.delayed or waiting)


@asynccontextmanager
async def working(url: str, place: Path, how: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, rabbitmq_worker.__file__, url, str(place), how
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_worker_killed_between_keep_and_ack_doubles_no_letter(
    rabbitmq_server: Server, tmp_path: Path
) -> None:
    url = rabbitmq_server.url
    bad = sorted(f"w-{n}" for n in range(0, 30, 5))
    good = {n for n in range(30) if n % 5}
    async with opened(url) as engine:
        await engine.broker.sink("work").send([work_for(n) for n in range(30)])

        async with working(url, tmp_path, "dying") as process:
            assert await asyncio.wait_for(process.wait(), 30) == 9
        before = await letters_in(tmp_path)
        async with working(url, tmp_path, "well"):
            await eventually(lambda: done(tmp_path) == good, within=30)
            await eventually(lambda: are_kept(tmp_path, 6), within=30)
            await eventually(lambda: is_empty(engine), within=30)

        assert before, "a letter was kept before it died"
        assert names_of(await letters_in(tmp_path)) == bad
        assert done(tmp_path) == good


async def test_a_message_that_kills_its_worker_is_buried_and_takes_nobody_along(
    rabbitmq_server: Server, tmp_path: Path
) -> None:
    url = rabbitmq_server.url
    good = set(range(1, 12))
    async with opened(url) as engine:
        await engine.broker.sink("work").send(
            [work_for(0, DEADLY), *(work_for(n, GOOD) for n in sorted(good))]
        )

        for _ in range(3):  # in company, and twice alone
            async with working(url, tmp_path, "well") as process:
                assert await asyncio.wait_for(process.wait(), 30) == 9
        async with working(url, tmp_path, "well"):
            await eventually(lambda: done(tmp_path) == good, within=30)
            await eventually(lambda: are_kept(tmp_path, 1), within=30)
            await eventually(lambda: is_empty(engine), within=30)

        (letter,) = await letters_in(tmp_path)
        assert letter.message.id == "w-0"
        assert letter.head.reason is Reason.WORKER_LOST


async def test_a_broker_killed_under_load_loses_and_doubles_nothing(
    rabbitmq_server: Server, tmp_path: Path
) -> None:
    total = 600
    good = {n for n in range(total) if n % 5}
    async with opened(rabbitmq_server.url) as engine:
        app = await rabbitmq_worker.make_app(rabbitmq_server.url, tmp_path)
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))

        async def produce() -> None:
            sink = engine.broker.sink("work")
            for start in range(0, total, 3):
                messages = [work_for(n) for n in range(start, start + 3)]
                await insist(lambda batch=messages: sink.send(batch))
                await asyncio.sleep(0.003)

        await engine.broker.sink("work").send([work_for(0)])
        await eventually(lambda: are_kept(tmp_path, 1), within=20)
        # RabbitMQ 3.10 forgets a queue that was made a moment before it is killed.
        await asyncio.sleep(3.0)
        producing = asyncio.create_task(produce())
        await eventually(lambda: len(done(tmp_path)) > 100, within=20)
        await asyncio.to_thread(rabbitmq_server.kill)
        await asyncio.sleep(5.0)
        await asyncio.to_thread(rabbitmq_server.start)
        await producing
        await eventually(lambda: done(tmp_path) == good, within=60)
        await eventually(lambda: are_kept(tmp_path, total // 5), within=60)
        await eventually(lambda: is_empty(engine), within=60)

        stop.set()
        assert await work == 0
        await app.close()

    letters = names_of(await letters_in(tmp_path))
    assert letters == sorted(f"w-{n}" for n in range(0, total, 5))
