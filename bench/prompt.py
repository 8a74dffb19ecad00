"""How long it takes until a handler runs: after a start, and after a send."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from contest import BENCH
from deadletter.app import App
from grounds import GROUNDS, Missing
from report import Row
from workload import body

SENDS = 100
PAUSES = (0.01, 0.04)  # seconds between two sends: the worker is idle again
MEBI = 1024 * 1024


class DlqWork:
    """`dlq work` in a process of its own; each handler call is a line it prints."""

    def __init__(self, folder: Path, url: str) -> None:
        self._log = folder / "dlq-work.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "deadletter.cli", "work", "steady_app:app"],
                cwd=BENCH,
                env={**os.environ, "DLQ_URL": url},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def next_call(self) -> tuple[int, float]:
        """When a handler was called next, and the processor time until then."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"dlq work ended: {self._log.read_text()[-2000:]}")
        at, cpu = line.split()
        return int(at), float(cpu)

    def rss(self) -> float:
        """Megabytes it occupies."""
        return rss(self._process.pid)

    def end(self) -> None:
        """Stop it and wait for that."""
        self._process.terminate()
        self._process.communicate()


def syncing(folder: Path) -> list[Row]:
    """What the disk takes to make one page safe: the floor under every send."""
    took = []
    with (folder / "page").open("wb", buffering=0) as file:
        for _ in range(SENDS):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return latencies("the disk alone: fsync of one page", took, target=None)


async def starting(folder: Path, rounds: int) -> list[Row]:
    """From `dlq work` to the first handler call, and what an idle worker occupies."""
    starts, cpus, sizes = [], [], []
    for number in range(rounds):
        url = f"sqlite:///{folder}/start-{number}.db"
        async with App(url) as app:
            await app.send("orders", body(number))
        began = time.monotonic_ns()
        worker = DlqWork(folder, url)
        called, cpu = worker.next_call()
        starts.append((called - began) / 1e9)
        cpus.append(cpu)
        await asyncio.sleep(1.5)
        sizes.append(worker.rss())
        worker.end()
    what = "dlq work: start to first message"
    return [
        Row(workload=what, value=round(median(starts), 3), unit="s", target=1.0),
        Row(workload=f"{what}, CPU", value=round(median(cpus), 3), unit="s"),
        Row(
            workload="dlq work: RSS when idle", value=round(median(sizes), 1), unit="MB", target=80
        ),
    ]


async def within(folder: Path) -> list[Row]:
    """From `send` to the handler's first line, in one process."""
    app = App(f"sqlite:///{folder}/within.db")
    return latencies("send to handler, same process", await _sends(app), target=5.0)


def on_servers(folder: Path) -> list[Row]:
    """The same on servers that wake their workers, as far as they are here."""
    rows: list[Row] = []
    for name in ("postgresql", "redis", "nats"):
        try:
            with GROUNDS[name].opened() as emptied:
                app = App(emptied(), office=f"sqlite:///{folder}/office.db")
                took = asyncio.run(_sends(app))
        except Missing:
            continue
        rows += latencies(f"send to handler, {name}", took, target=5.0)
    return rows


async def _sends(app: App) -> list[float]:
    calls: asyncio.Queue[int] = asyncio.Queue()

    @app.handler("orders")
    async def handle(order: dict[str, Any]) -> None:
        calls.put_nowait(time.monotonic_ns())

    took = []
    async with app:
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))
        for number in range(SENDS):
            await asyncio.sleep(random.uniform(*PAUSES))
            began = time.monotonic_ns()
            await app.send("orders", body(number))
            took.append((await calls.get() - began) / 1e6)
        stop.set()
        await work
    return took


async def across(folder: Path) -> list[Row]:
    """The same with the worker in another process."""
    url = f"sqlite:///{folder}/across.db"
    took = []
    async with App(url) as app:
        await app.send("orders", body(0))
        worker = DlqWork(folder, url)
        worker.next_call()
        for number in range(SENDS):
            await asyncio.sleep(random.uniform(*PAUSES))
            began = time.monotonic_ns()
            await app.send("orders", body(number))
            took.append((worker.next_call()[0] - began) / 1e6)
        worker.end()
    return latencies("send to handler, another process", took, target=None)


def latencies(what: str, took: Sequence[float], target: float | None) -> list[Row]:
    """Half of them took no longer than this, and nearly all no longer than that."""
    cuts = quantiles(took, n=20)
    half, most = round(cuts[9], 2), round(cuts[18], 2)
    return [
        Row(workload=f"{what}, p50", value=half, unit="ms", target=target),
        Row(workload=f"{what}, p95", value=most, unit="ms"),
    ]


def rss(pid: int) -> float:
    """Megabytes of memory a process occupies; 0 where nobody tells."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / MEBI
