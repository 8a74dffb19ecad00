"""Workers, members and brokers come and go: nothing is lost, no letter doubled."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.brokers.kafka.engine import KafkaEngine
from deadletter.core.backoff import Fixed
from deadletter.core.failure import Reason
from deadletter.core.letter import DeadLetter
from deadletter.core.policy import DLQPolicy
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import info
from engines.kafka_rig import fresh, opened
from servers import Server

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("kafka_worker.py")
ODD = 7  # one in so many fails for good


class Place:
    """A mailbox on the broker, an office in a file, and what handlers did."""

    def __init__(self, engine: KafkaEngine, url: str, directory: Path) -> None:
        self.engine = engine  # looks on, and is no member
        self.url = url
        self.office = f"sqlite:///{directory}/office.db"
        self.effects = directory / "effects"
        self.done: Counter[str] = Counter()

    def app(self, **handler: object) -> App:
        """Somebody who works the mailbox in this process."""
        app = App(self.url, office=self.office)
        policy = DLQPolicy(max_attempts=3, backoff=Fixed(0.05))

        async def handle(body: dict[str, str]) -> None:
            await asyncio.sleep(0.005)
            if body["kind"] == "bad":
                raise ValueError("no good")
            self.done[body["number"]] += 1

        app.handler("work", policy=policy, slots=20, **handler)(handle)  # type: ignore[arg-type]
        return app

    def start(self, *how: str) -> "subprocess.Popen[bytes]":
        """Somebody who works it in a process of his own."""
        what = [sys.executable, SCRIPT, self.url, self.office, self.effects, *how]
        return subprocess.Popen([str(part) for part in what])

    async def send(self, *kinds: str, start: int = 0) -> None:
        """Messages of these kinds, numbered."""
        async with App(self.url, office=self.office) as app:
            for number, kind in enumerate(kinds, start):
                await app.send("work", {"number": str(number), "kind": kind}, id=f"m-{number}")

    async def letters(self) -> list[DeadLetter]:
        async with App(self.office) as app:
            store = await app.letters()
            page = await store.find(limit=1000)
            return list(await store.get([head.id for head in page.heads]))

    async def empty(self) -> bool:
        there = await info(self.engine.broker, "work")
        return not (there.ready or there.claimed or there.delayed or there.suspects)


@pytest.fixture
async def place(kafka_server: Server, tmp_path: Path) -> AsyncIterator[Place]:
    soon_missed = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 500}
    url = fresh(kafka_server.url, partitions=4, **soon_missed)
    engine = await opened(url, SystemClock())
    yield Place(engine, url, tmp_path)
    await engine.close()


@asynccontextmanager
async def working(app: App) -> AsyncIterator[App]:
    stop = asyncio.Event()
    async with app:
        work = asyncio.create_task(app.work(stop))
        try:
            yield app
        finally:
            stop.set()
            await asyncio.wait_for(work, 40)


def ids(letters: list[DeadLetter]) -> list[str]:
    return sorted(letter.message.id for letter in letters)


async def test_a_worker_that_dies_between_keep_and_ack_doubles_no_letter(place: Place) -> None:
    await place.send("ok", "bad", "ok", "bad")
    dying = place.start("burying")
    assert await asyncio.to_thread(dying.wait, 60) == 9

    async with working(place.app()):
        await eventually(place.empty, within=60)

    assert ids(await place.letters()) == ["m-1", "m-3"]


async def test_poison_is_buried_as_worker_lost_and_innocents_are_not_charged(place: Place) -> None:
    await place.send(*["ok"] * 5, "poison", *["ok"] * 5)

    deaths = 0
    worker = place.start()

    async def emptied() -> bool:
        nonlocal deaths, worker
        if worker.poll() is not None:
            deaths += 1
            worker = place.start()
        return await place.empty()

    await eventually(emptied, within=90)
    worker.terminate()
    await asyncio.to_thread(worker.wait, 60)

    (letter,) = await place.letters()
    assert letter.message.id == "m-5"
    assert letter.head.reason is Reason.WORKER_LOST
    lines = [line.split() for line in place.effects.read_text().splitlines()]
    ran = Counter(kind for _, kind, _ in lines)
    # Once in company, which is not charged, and its three attempts alone.
    assert deaths == ran["poison"] == 4
    assert {number for number, kind, _ in lines if kind == "ok"} == {
        str(n) for n in range(11) if n != 5
    }
    assert await place.empty()


async def test_members_that_come_and_go_under_load_lose_and_double_nothing(place: Place) -> None:
    kinds = ["ok" if n % ODD else "bad" for n in range(1500)]

    async with working(place.app()):
        sending = asyncio.create_task(place.send(*kinds))
        for _ in range(4):
            async with working(place.app()):
                await asyncio.sleep(1.0)
        await sending
        await eventually(place.empty, within=60)

    expected = [f"m-{n}" for n, kind in enumerate(kinds) if kind == "bad"]
    assert ids(await place.letters()) == sorted(expected)
    assert set(place.done) == {str(n) for n, kind in enumerate(kinds) if kind == "ok"}
    assert max(place.done.values()) == 1


async def test_a_broker_that_is_killed_under_load_costs_nothing(
    place: Place, kafka_server: Server
) -> None:
    kinds = ["ok" if n % ODD else "bad" for n in range(600)]
    await place.send(*kinds)

    async with working(place.app()):
        await eventually(lambda: len(place.done) > 50, within=30)
        await asyncio.to_thread(kafka_server.kill)
        await asyncio.sleep(5)
        await asyncio.to_thread(kafka_server.start)
        await eventually(place.empty, within=90)

    expected = [f"m-{n}" for n, kind in enumerate(kinds) if kind == "bad"]
    assert ids(await place.letters()) == sorted(expected)
    assert set(place.done) == {str(n) for n, kind in enumerate(kinds) if kind == "ok"}
