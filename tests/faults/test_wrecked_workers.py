"""
Workers that their own handlers wreck, under a supervisor.

Poison that ends its process is worked off without long waits, a process without
memory ends by itself, and nothing that an isolated handler has started outlives its
worker. `make faults` has more poison.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.core.letter import State
from deadletter.ports import QueueInfo

SHOP = """
import os, subprocess, threading, time
from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy

app = App()
policy = DLQPolicy(max_attempts=1, backoff=NoBackoff())

@app.handler("work", policy=policy, lease=1.0, slots=5)
def work(body: bytes) -> None:
    if body == b"poison":
        os._exit(9)
    if body == b"hungry":
        thread = threading.Thread(target=print)
        thread._bootstrap = lambda: None  # as when there is no memory for it
        thread.start()  # waits without end

@app.handler("alone", isolation="process", slots=1)
def alone(body: bytes) -> None:
    child = subprocess.Popen(["sleep", "60"])
    with open("pids", "w") as file:
        file.write(f"{os.getppid()} {os.getpid()} {child.pid}")
    time.sleep(60)
"""


@pytest.mark.faults
@pytest.mark.slow
def test_wrecked_workers_are_replaced_and_leave_nothing_behind(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    poison = 6 if request.config.getoption("--long") else 1
    bodies = [b"fine"] * 50 + [b"poison", b"hungry"] * poison + [b"fine"] * 50
    url = f"sqlite:///{tmp_path}/wrecked.db"
    (tmp_path / "wrecked_shop.py").write_text(SHOP)
    command = [sys.executable, "-m", "deadletter.cli", "--url", url]
    command += ["work", "wrecked_shop:app", "--processes", "2", "--quiet"]
    pids = tmp_path / "pids"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as supervisor:
        try:
            began = time.monotonic()
            queue, buried = asyncio.run(_drained(url, bodies))
            took = time.monotonic() - began
            asyncio.run(_send(url, "alone", [b"x"]))
            _until(lambda: pids.exists() and len(pids.read_text().split()) == 3, 30.0)
            worker, *orphans = (int(pid) for pid in pids.read_text().split())
            os.kill(worker, signal.SIGKILL)
            _until(lambda: not any(map(_is_alive, orphans)), 2.0)
        finally:
            supervisor.terminate()
            _, err = supervisor.communicate(timeout=60)

    print(f"\n{len(bodies)} worked in {took:.1f} s, {2 * poison} of them poison")
    print("".join(line for line in err.splitlines(True) if "another starts" in line))
    assert buried == 2 * poison
    assert queue.tally["handled"] == 100
    assert "a new one starts in 30 s" not in err


async def _send(url: str, mailbox: str, bodies: list[bytes]) -> None:
    async with App(url) as app:
        await app.send_many(mailbox, bodies)


async def _drained(url: str, bodies: list[bytes]) -> tuple[QueueInfo, int]:
    deadline = time.monotonic() + 120.0 * len(bodies) / 100
    async with App(url) as app:
        await app.send_many("work", bodies)
        engine = await app.engine()
        while True:
            queues = await engine.broker.queues()
            (queue,) = (one for one in queues if one.options.name == "work")
            if not queue.ready + queue.delayed + queue.claimed + queue.suspects:
                counts = await (await app.letters()).counts()
                return queue, counts["work"][State.PENDING]
            assert time.monotonic() < deadline, f"STUCK: {queue}"
            await asyncio.sleep(0.1)


def _until(condition: Callable[[], object], within: float) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} seconds"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
