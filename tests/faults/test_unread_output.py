"""
A worker whose log nobody reads: it goes on, and stops when it is told to.

`make faults` has the log unread for longer, and more to say.
"""

import asyncio
import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.ports import QueueInfo

SHOP = """
import sys
from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy

app = App()

@app.handler(
    "orders", policy=DLQPolicy(max_attempts=1, backoff=NoBackoff()), brake=None
)
async def charge(order: bytes) -> None:
    print("charging", "x" * 5_000)
    print("on stderr", "y" * 5_000, file=sys.stderr)
    raise ValueError("no such account " * 30)
"""
SMALL = 4096  # bytes of a pipe


@pytest.mark.faults
@pytest.mark.slow
def test_a_worker_whose_log_nobody_reads_works_and_stops(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = 5_000 if request.config.getoption("--long") else 600
    url = f"sqlite:///{tmp_path}/unread.db"
    (tmp_path / "unread_shop.py").write_text(SHOP)
    command = [sys.executable, "-m", "deadletter.cli", "--url", url]
    command += ["work", "unread_shop:app", "--processes", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as worker:  # type: ignore[call-overload]
        try:
            for pipe in (worker.stdout, worker.stderr):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, SMALL)
            queue = asyncio.run(_worked(url, count, within=120))
            worker.send_signal(signal.SIGTERM)
            asked = time.monotonic()
            code = worker.wait(15.0)
            stopped = time.monotonic() - asked
        finally:
            worker.kill()
            said, _ = worker.communicate()

    print(f"\n{count} buried unread, stopped in {stopped:.1f} s; {len(said)} bytes said")
    assert code == 0
    assert queue.tally["buried"] == count


async def _worked(url: str, count: int, *, within: float) -> QueueInfo:
    deadline = time.monotonic() + within
    async with App(url) as app:
        await app.send_many("orders", [b"x"] * count)
        engine = await app.engine()
        while True:
            (queue,) = await engine.broker.queues()
            if not queue.ready + queue.delayed + queue.claimed + queue.suspects:
                return queue
            assert time.monotonic() < deadline, f"STUCK: {queue}"
            await asyncio.sleep(0.1)
