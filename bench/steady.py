"""
What must not grow, and what must be quick: depth, memory, start, latency.

    python bench/steady.py [--messages 1000000] [--rounds 3] [--json FILE]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from contest import BENCH, workplace
from prompt import across, on_servers, rss, starting, syncing, within
from report import Row, screen, show, write
from workload import Measured

TAKEN = 10_000  # messages drained from a queue of each depth


def depth(folder: Path, deepest: int, rounds: int) -> list[Row]:
    """What a message costs when few or many are queued, round by round."""
    depths = [size for size in (TAKEN, 10 * TAKEN, 100 * TAKEN) if size <= deepest]
    taken: dict[int, list[Measured]] = {size: [] for size in depths}
    for size in depths:
        _worker("fill", folder / f"{size}.db", size)
    for _ in range(rounds):
        for size in depths:
            file = folder / f"{size}.db"
            taken[size].append(_worker("drain", file, TAKEN))
            _worker("fill", file, TAKEN)  # as deep as before
    first = median(one.cpu_us for one in taken[TAKEN])
    return [_depth_row(size, taken[size], first) for size in depths]


def _depth_row(size: int, taken: list[Measured], first: float) -> Row:
    wall = median(one.seconds for one in taken)
    cpu = median(one.cpu_us for one in taken)
    return Row(
        workload=f"drain with {size:,} queued: CPU for each, against {TAKEN:,}",
        per_s=round(TAKEN / wall, 1),
        n=TAKEN,
        seconds=round(wall, 4),
        cpu_us=round(cpu, 2),
        value=round(cpu / first, 3),
        unit="x",
        target=1.2,
    )


def memory(file: Path, n: int) -> list[Row]:
    """What a worker occupies while it drains everything that is queued."""
    worker = _started("drain", file, n)
    seen: list[float] = []
    while worker.poll() is None:
        seen.append(rss(worker.pid))
        time.sleep(0.1)
    measured = _told(worker)
    settled = [size for size in seen[len(seen) // 10 :] if size]
    if not settled:
        return []
    return [
        Row(
            workload=f"drain of {n:,}: largest RSS against the median",
            per_s=round(measured.per_s, 1),
            n=n,
            seconds=round(measured.seconds, 2),
            cpu_us=round(measured.cpu_us, 2),
            value=round(max(settled) / median(settled), 3),
            unit="x",
            target=1.2,
        ),
        Row(
            workload=f"drain of {n:,}: largest RSS",
            value=round(max(settled), 1),
            unit="MB",
            target=80,
        ),
    ]


def _worker(what: str, file: Path, n: int) -> Measured:
    return _told(_started(what, file, n))


def _started(what: str, file: Path, n: int) -> "subprocess.Popen[str]":
    words = [sys.executable, "steady_worker.py", what, str(file), str(n)]
    return subprocess.Popen(words, cwd=BENCH, stdout=subprocess.PIPE, text=True)


def _told(worker: "subprocess.Popen[str]") -> Measured:
    out, _ = worker.communicate()
    if worker.returncode != 0:
        raise SystemExit(f"a worker of the benchmark ended with {worker.returncode}")
    return Measured(*json.loads(out))


def figures(deepest: int, rounds: int) -> Iterator[list[Row]]:
    """All of it, bit by bit."""
    with workplace() as folder:
        yield syncing(folder)
        yield asyncio.run(starting(folder, rounds))
        yield asyncio.run(within(folder))
        yield asyncio.run(across(folder))
        yield on_servers(folder)
        yield depth(folder, deepest, rounds)
        # Stopping takes a few more than asked for, so not all of them are left.
        yield memory(folder / f"{deepest}.db", deepest * 99 // 100)


def main() -> int:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description="what must not grow, or must be quick")
    parser.add_argument("--messages", type=int, default=100 * TAKEN)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.messages not in {TAKEN, 10 * TAKEN, 100 * TAKEN}:
        parser.error(f"--messages is {TAKEN}, {10 * TAKEN} or {100 * TAKEN}")
    console = screen()
    rows: list[Row] = []
    with console.status("starts, sends, and queues of growing depth: minutes"):
        for some in figures(asked.messages, asked.rounds):
            rows += some
    show(console, "Steady and prompt", rows)
    if asked.json is not None:
        write(asked.json, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
