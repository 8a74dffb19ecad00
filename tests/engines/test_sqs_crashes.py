"""Workers die and connections break; no message is lost, no letter is doubled."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.brokers.sqs.engine import SqsEngine
from deadletter.core.errors import Unavailable
from deadletter.core.failure import Reason
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message
from engines import sqs_worker
from engines.patience import insist
from engines.proxy import fault_proxy
from engines.sqs_rig import opened, url_of
from servers import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def url(sqs_server: Server) -> str:
    return url_of(sqs_server)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[SqsEngine]:
    engine = await opened(url, SystemClock())
    yield engine
    await engine.close()


def work_for(number: int, kind: str = "") -> Message:
    """A message; every fifth is bad."""
    kind = kind or ("bad" if number % 5 == 0 else "good")
    body = b'{"number": "%d", "kind": "%s"}' % (number, kind.encode())
    return a_message(body, id=f"w-{number}")


async def is_empty(engine: SqsEngine) -> bool:
    """Whether nothing is left; asked twice, for messages move while we count."""
    for _ in range(2):
        queues = await engine.broker.queues()
        if any(q.ready + q.delayed + q.claimed + q.suspects for q in queues):
            return False
    return True


async def letters_in(place: Path) -> list[DeadLetter]:
    async with App(f"sqlite:///{place}/office.db") as app:
        store = await app.letters()
        heads = (await store.find(limit=1000)).heads
        assert await store.verify() == []
        found = await store.get([head.id for head in heads])
    return sorted(found, key=lambda letter: int(letter.message.id[2:]))


def ids(letters: list[DeadLetter]) -> list[str]:
    return [letter.message.id for letter in letters]


def done(place: Path) -> set[int]:
    return {int(line) for line in (place / "effects").read_text().split()}


@asynccontextmanager
async def working(
    url: str, place: Path, how: str = "well"
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, sqs_worker.__file__, url, str(place), how
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_worker_killed_between_keep_and_ack_doubles_no_letter(
    engine: SqsEngine, url: str, tmp_path: Path
) -> None:
    await engine.broker.sink("work").send([work_for(n) for n in range(30)])

    async with working(url, tmp_path, "dying") as process:
        assert await asyncio.wait_for(process.wait(), 30) == 9
    kept_before = await letters_in(tmp_path)
    async with working(url, tmp_path):
        await eventually(lambda: is_empty(engine), within=40)

    assert kept_before, "a letter was kept before it died"
    assert ids(await letters_in(tmp_path)) == [f"w-{n}" for n in range(0, 30, 5)]
    assert done(tmp_path) == {n for n in range(30) if n % 5}


async def test_poison_is_buried_and_its_neighbours_are_not_charged(
    engine: SqsEngine, url: str, tmp_path: Path
) -> None:
    work = [work_for(n, "poison" if n == 7 else "good") for n in range(20)]
    await engine.broker.sink("work").send(work)

    deaths = 0
    while not await is_empty(engine):
        async with working(url, tmp_path) as process:
            ended = asyncio.create_task(process.wait())
            emptied = asyncio.create_task(eventually(lambda: is_empty(engine), within=40))
            await asyncio.wait({ended, emptied}, return_when=asyncio.FIRST_COMPLETED)
            deaths += ended.done()
            emptied.cancel()

    (letter,) = await letters_in(tmp_path)
    assert (letter.message.id, letter.head.reason) == ("w-7", Reason.WORKER_LOST)
    assert done(tmp_path) == {n for n in range(20) if n != 7}
    assert deaths == 3  # once in company, which is not charged, and twice alone


async def test_connections_that_break_under_load_lose_and_double_nothing(
    sqs_server: Server, engine: SqsEngine, url: str, tmp_path: Path
) -> None:
    total = 300
    await engine.broker.sink("work").send([work_for(n) for n in range(100)])
    async with fault_proxy(sqs_server.port) as proxy:
        app = await sqs_worker.make_app(proxy.through(url), tmp_path)
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))
        await eventually((tmp_path / "effects").read_text, within=20)
        for start in range(100, total, 10):
            sending = [work_for(n) for n in range(start, start + 10)]
            await engine.broker.sink("work").send(sending)
            proxy.reset()
            await asyncio.sleep(0.1)
        proxy.refuse = True
        proxy.reset()
        await asyncio.sleep(5.0)
        proxy.refuse = False
        await eventually(lambda: is_empty(engine), within=60)
        stop.set()
        assert await work == 0
        await app.close()

    assert ids(await letters_in(tmp_path)) == [f"w-{n}" for n in range(0, total, 5)]
    assert done(tmp_path) == {n for n in range(total) if n % 5}


async def test_a_server_restarted_under_load_loses_and_doubles_nothing(
    sqs_server: Server, engine: SqsEngine, url: str, tmp_path: Path
) -> None:
    """Asked to end, for this server keeps nothing when it is killed."""
    total = 300
    app = await sqs_worker.make_app(url, tmp_path)
    stop = asyncio.Event()
    work = asyncio.create_task(app.work(stop))

    async def produce() -> None:
        sink = engine.broker.sink("work")
        for start in range(0, total, 3):
            batch = [work_for(n) for n in range(start, start + 3)]
            await insist(lambda b=batch: sink.send(b))

    producing = asyncio.create_task(produce())
    await eventually(lambda: len(done(tmp_path)) > 50, within=20)
    await asyncio.to_thread(sqs_server.stop)
    assert not producing.done()
    await asyncio.sleep(5.0)
    await asyncio.to_thread(sqs_server.start)
    await producing
    await eventually(lambda: is_empty(engine), within=60)
    stop.set()
    assert await work == 0
    await app.close()

    assert ids(await letters_in(tmp_path)) == [f"w-{n}" for n in range(0, total, 5)]
    assert done(tmp_path) == {n for n in range(total) if n % 5}


async def test_a_queue_server_that_is_away_is_said_so(sqs_server: Server) -> None:
    async with fault_proxy(sqs_server.port) as proxy:
        engine = await opened(proxy.through(url_of(sqs_server)), SystemClock())
        source = engine.broker.source("work")
        await source.receive(limit=1, wait=0, lease=5.0)
        proxy.refuse = True
        proxy.reset()

        with pytest.raises(Unavailable, match="SQS cannot be reached"):
            await source.receive(limit=1, wait=0, lease=5.0)

        await engine.close()
