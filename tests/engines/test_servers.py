"""The test servers themselves: what they keep, and that they are gone when told."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deadletter.testing.fakes import eventually
from engines import keepsakes
from servers import Missing, Server, Sqs, node
from servers.common import ROOT
from servers.fixtures import do_without
from servers.scheduling import ByServer

KILLED = ["postgresql", "redis", "nats", "mongodb"]
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("rabbitmq", "kafka")]


@pytest.mark.parametrize("kind", [*KILLED, *SLOW])
async def test_acknowledged_writes_survive_a_kill(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    await getattr(keepsakes, f"put_{kind}")(server, b"a thing")

    await asyncio.to_thread(server.kill)
    gone = not server.running
    await asyncio.to_thread(server.start)

    assert gone
    assert await getattr(keepsakes, f"has_{kind}")(server, b"a thing")


async def test_the_emulator_keeps_its_queues_when_it_is_asked_to_end(sqs_server: Sqs) -> None:
    await keepsakes.put_sqs(sqs_server, b"a thing")

    await asyncio.to_thread(sqs_server.restart)

    assert await keepsakes.has_sqs(sqs_server, b"a thing")


def test_tests_without_their_server_are_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="run `make services`"):
        do_without(Missing("no redis here: run `make services`"))


def test_where_ci_is_set_nothing_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="nothing is skipped"):
        do_without(Missing("no redis here: run `make services`"))


def test_without_node_or_its_packages_it_is_said_what_to_get(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(node, "READY", tmp_path / "nothing")
    with pytest.raises(Missing, match=r"no BullMQ here|no node here"):
        node.find()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="install Node"):
        node.find()


@pytest.mark.parametrize(
    ("test", "server"),
    [
        ("tests/engines/test_kafka_queue.py::TestKafka::test_a", "kafka"),
        ("tests/intake/test_drain_sqs.py::test_a", "sqs"),
        ("tests/engines/test_bullmq_queue.py::TestBullMQ::test_a", "redis"),
        ("tests/intake/test_drain_faults.py::test_redis_is_restarted", "redis"),
        ("tests/engines/test_servers.py::test_a[mongodb]", "mongodb"),
        ("tests/engines/test_kafka_new_broker.py::test_a", None),
        ("tests/core/test_redact.py::test_a", None),
    ],
)
def test_tests_of_one_server_go_to_one_process(test: str, server: str | None) -> None:
    scheduling = ByServer.__new__(ByServer)

    assert scheduling._split_scope(test) == (server or test)


STARTED_AND_LEFT = """
import os, signal, sys, time
from servers import Redis
for by in (signal.SIGINT, signal.SIGHUP):  # ignored by who is run in the background
    signal.signal(by, signal.SIG_DFL)
server = Redis()
server.start()
if "child" in sys.argv and not os.fork():
    time.sleep(60)  # with all that its parent had open
print(server._pid, server.directory, flush=True)
time.sleep(60)
"""


@contextmanager
def started_and_left(*words: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A process that has started a server, the pid of that, and its directory."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTED_AND_LEFT, *words],
        stdout=subprocess.PIPE,
        env={**environment, "DLQ_TEST_REDIS_URL": ""},
        start_new_session=True,
        text=True,
    )
    assert starter.stdout is not None
    try:
        pid, directory = starter.stdout.readline().split()
        yield starter, int(pid), Path(directory)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
        starter.stdout.close()


async def is_gone(server: int, directory: Path) -> None:
    await eventually(lambda: not directory.exists())
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


BY = [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("by", BY)
async def test_a_server_is_gone_when_its_starter_is_killed(
    redis_server: Server, by: signal.Signals
) -> None:
    with started_and_left() as (starter, server, directory):
        starter.send_signal(by)
        starter.wait()

        await is_gone(server, directory)


@pytest.mark.parametrize("by", BY)
async def test_a_server_is_gone_when_all_around_its_starter_are_killed(
    redis_server: Server, by: signal.Signals
) -> None:
    with started_and_left() as (starter, server, directory):
        os.killpg(starter.pid, by)  # as `timeout` does, and Ctrl-C
        starter.wait()

        await is_gone(server, directory)


async def test_a_server_is_gone_although_its_starter_has_left_a_child(redis_server: Server) -> None:
    with started_and_left("child") as (starter, server, directory):
        starter.kill()
        starter.wait()

        await is_gone(server, directory)
