"""dlq work: a real worker process on a real file."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command
from deadletter.core.letter import State

SHOP = """
from deadletter.assembly import App
from deadletter.core.backoff import Fixed
from deadletter.core.policy import DLQPolicy

app = App(version="1.8")

@app.handler("orders", policy=DLQPolicy(max_attempts=2, backoff=Fixed(0.01)))
async def charge(order: dict) -> None:
    if order["id"] % 2:
        raise TimeoutError("the bank did not answer")
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "not within 30 seconds"
        time.sleep(0.05)


@pytest.fixture
def start(
    dlq: Command, tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    (tmp_path / "shop.py").write_text(SHOP)
    started: list[subprocess.Popen[str]] = []

    def starting(*words: str, err: int = subprocess.PIPE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "deadletter.cli", "work", *words],
            env=os.environ,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
        started.append(process)
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


def letters(dlq: Command, state: State = State.PENDING) -> Any:
    query = f"is:{state}"
    return dlq("list", query, "--json").documents


def test_a_worker_buries_and_a_replay_is_confirmed(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for number in range(4):
        dlq("send", "orders", json.dumps({"id": number}))
    worker = start("shop:app")
    until(lambda: len(letters(dlq)) == 2)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "buried" in err
    assert "succeeded" not in err

    (tmp_path / "shop.py").write_text(SHOP.replace('order["id"] % 2', "False"))
    fixed = start("shop:app", "--json", "--verbose")
    ran = dlq("replay", "is:pending", "--wait", "30", "--json")
    fixed.send_signal(signal.SIGINT)
    out, _ = fixed.communicate(timeout=30)

    assert ran.document["state"] == "done"
    assert ran.document["counts"] == {"confirmed": 2}
    assert len(letters(dlq, State.REPLAYED)) == 2
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert events.count("succeeded") == 2
    assert dlq("verify").code == 0


def test_several_processes_run_under_a_supervisor(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for number in range(6):
        dlq("send", "orders", json.dumps({"id": number}))
    log = tmp_path / "err"

    with log.open("wb") as err:
        supervisor = start("shop:app", "--processes", "2", err=err.fileno())
    until(lambda: log.read_text().count("worker-started") == 2)
    until(lambda: len(letters(dlq)) == 3)
    supervisor.send_signal(signal.SIGTERM)
    supervisor.communicate(timeout=30)

    assert supervisor.returncode == 0
    assert log.read_text().count(" ended") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say which App to run"),
        (["nowhere:app"], "there is no module 'nowhere'"),
        (["shop:thing"], "has no App called 'thing'"),
        (["shop:app", "-p", "2", "--health-port", "9"], "cannot share port 9"),
    ],
)
def test_what_cannot_be_run_is_a_sentence(
    start: Callable[..., subprocess.Popen[str]], words: list[str], said: str
) -> None:
    process = start(*words)

    _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert said in err
    assert "Traceback" not in err
