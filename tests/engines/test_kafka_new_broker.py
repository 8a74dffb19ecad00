"""A broker that has just been started: nobody has asked it for a group yet."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message, info
from engines.kafka_rig import fresh, opened
from servers import Kafka, Server
from servers.fixtures import serve

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name("kafka_worker.py")
COUNTER = Path(__file__).with_name("kafka_counter.py")


@pytest.fixture
def new_broker() -> Iterator[Server]:
    """One's own, on which nothing has happened."""
    yield from serve(Kafka, [])


def started(*words: object) -> "subprocess.Popen[bytes]":
    """A worker in a process of its own."""
    return subprocess.Popen([sys.executable, str(WORKER), *map(str, words)])


async def test_counting_on_a_new_broker_does_not_crash(new_broker: Server) -> None:
    url = fresh(new_broker.url)

    counted = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(COUNTER), url],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert (counted.returncode, counted.stdout) == (0, "{3}\n"), counted.stderr


async def test_working_on_a_new_broker_does_not_crash(new_broker: Server, tmp_path: Path) -> None:
    url, effects = fresh(new_broker.url), tmp_path / "effects"
    office = f"sqlite:///{tmp_path}/office.db"

    worker = started(url, office, effects)
    try:
        engine = await opened(url, SystemClock())
        await engine.broker.sink("work").send([a_message(b'{"number": "1", "kind": "ok"}')])

        async def handled() -> bool:
            assert worker.poll() is None
            return (await info(engine.broker, "work")).ready == 0 and effects.exists()

        await eventually(handled, within=60)
        await engine.close()
    finally:
        worker.terminate()
        ended = await asyncio.to_thread(worker.wait, 60)

    assert ended == 0
    assert effects.read_text() == "1 ok 1\n"
