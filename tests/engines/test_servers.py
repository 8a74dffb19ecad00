"""The test servers themselves: what they keep, and that they are gone when told."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deadletter.testing.waiting import eventually
from engines import keepsakes
from servers import Server, Sqs
from servers.common import ROOT

KILLED = ["postgresql", "redis", "nats", "mongodb"]
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("rabbitmq", "kafka")]


@pytest.mark.parametrize("kind", [*KILLED, *SLOW])
async def test_what_was_acknowledged_outlives_a_kill(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    await getattr(keepsakes, f"put_{kind}")(server, b"a thing")

    await asyncio.to_thread(server.kill)
    gone = not server.running
    await asyncio.to_thread(server.start)

    assert gone
    assert await getattr(keepsakes, f"has_{kind}")(server, b"a thing")


async def test_the_emulator_keeps_its_queues_when_it_is_asked_to_end(
    sqs_server: Sqs,
) -> None:
    await keepsakes.put_sqs(sqs_server, b"a thing")

    await asyncio.to_thread(sqs_server.restart)

    assert await keepsakes.has_sqs(sqs_server, b"a thing")


STARTED_AND_LEFT = """
import sys, time
from servers import Redis
server = Redis()
server.start()
print(server._pid, server.directory, flush=True)
time.sleep(60)
"""


async def test_a_server_is_gone_when_its_starter_is_killed(
    redis_server: Server,
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    starter = subprocess.Popen(  # noqa: ASYNC220  one line is read from it
        [sys.executable, "-c", STARTED_AND_LEFT],
        stdout=subprocess.PIPE,
        env={**environment, "DLQ_TEST_REDIS_URL": ""},
        text=True,
    )
    assert starter.stdout is not None
    pid, directory = starter.stdout.readline().split()

    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()

    await eventually(lambda: not Path(directory).exists())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
