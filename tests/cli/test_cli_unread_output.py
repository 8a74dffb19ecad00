"""Workers and servers with unread output: they work, and stop on a signal."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cli.conftest import Command
from deadletter.core.letter import State

pytestmark = pytest.mark.slow

SHOP = """
import os, sys
from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy

app = App()
policy = DLQPolicy(max_attempts=1, backoff=NoBackoff())

@app.handler("orders", policy=policy, brake=None)
async def charge(order: bytes) -> None:
    raise ValueError("no such account " * 30)

@app.handler("chatty", policy=policy, brake=None)
async def chat(order: bytes) -> None:
    for stream in (sys.stdout, sys.stderr):
        print("x" * 100_000, file=stream)
    raise ValueError("no such account " * 30)

@app.handler("isolated", policy=policy, brake=None, isolation="process", slots=1)
def alone(order: bytes) -> None:
    for _ in range(50):
        print("x" * 100_000, file=sys.stderr)
"""
COUNT = 60  # messages: of each kind of line, ten a second are logged
SMALL = 4096  # bytes of a pipe
Start = Callable[..., subprocess.Popen[bytes]]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(0.05)


@pytest.fixture
def start(dlq: Command, tmp_path: Path) -> Iterator[Start]:
    """Start `dlq` with small pipes that are not read."""
    (tmp_path / "shop.py").write_text(SHOP)
    started: list[subprocess.Popen[bytes]] = []

    def starting(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "deadletter.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, SMALL)
        started.append(process)
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


def pending(dlq: Command) -> int:
    counts = dlq.do(lambda engine: engine.letters.counts())
    return sum(states.get(State.PENDING, 0) for states in counts.values())


def stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(10.0)


@pytest.mark.parametrize("words", [["--verbose"], ["--json", "--verbose"], ["--processes", "2"]])
def test_a_worker_goes_on_and_stops_though_nobody_reads_its_log(
    dlq: Command, start: Start, words: list[str]
) -> None:
    worker = start("work", "shop:app", *words)

    for round_ in range(2):  # the log is full by the second at the latest
        dlq.send("orders", *(f"m-{round_}-{number}" for number in range(COUNT)))
        until(lambda: pending(dlq) == (round_ + 1) * COUNT)  # noqa: B023

    assert stopped(worker) == 0


def test_unread_handler_output_does_not_block_and_its_loss_is_reported(
    dlq: Command, start: Start
) -> None:
    worker = start("work", "shop:app", "--json", "--health-port", str(port := _port()))
    dlq.send("chatty", *(f"m-{number}" for number in range(COUNT)))
    until(lambda: pending(dlq) == COUNT)
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        metrics = answer.read().decode()

    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=10.0)  # the readers are back

    assert worker.returncode == 0
    (dropped,) = (
        float(line.split()[1])
        for line in metrics.splitlines()
        if line.startswith("dlq_output_lines_dropped ")
    )
    assert dropped > 2 * (COUNT - 15)
    said = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
    (missing,) = (one for one in said if one["event"] == "lines-dropped")
    assert missing["level"] == "warning"
    assert missing["lines"] > COUNT - 15
    assert b"lines were dropped here because nobody read this output" in err


def test_isolated_handlers_may_print_what_nobody_reads(dlq: Command, start: Start) -> None:
    worker = start("work", "shop:app", "--quiet")
    dlq.send("isolated", "m-1", "m-2")

    until(lambda: _is_empty(dlq, "isolated"))
    assert pending(dlq) == 0

    assert stopped(worker) == 0


def test_a_worker_goes_on_when_its_readers_are_gone(dlq: Command, start: Start) -> None:
    worker = start("work", "shop:app", "--json")
    for pipe in (worker.stdout, worker.stderr):
        assert pipe is not None
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), pipe.fileno())

    dlq.send("chatty", *(f"m-{number}" for number in range(COUNT)))
    until(lambda: pending(dlq) == COUNT)

    assert worker.poll() is None
    assert stopped(worker) == 0


def test_a_server_answers_and_stops_though_nobody_reads_its_log(dlq: Command, start: Start) -> None:
    port = _port()
    server = start("serve", "--port", str(port), "--access", "off")
    assert server.stdout is not None
    server.stdout.readline()

    for _ in range(100):
        with urlopen(f"http://127.0.0.1:{port}/api/v1/stats", timeout=10.0) as answer:
            assert answer.status == 200

    assert stopped(server) == 0


def _is_empty(dlq: Command, mailbox: str) -> bool:
    queues = dlq.do(lambda engine: engine.broker.queues())
    (queue,) = (one for one in queues if one.options.name == mailbox)
    return not (queue.ready + queue.delayed + queue.claimed + queue.suspects)


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
