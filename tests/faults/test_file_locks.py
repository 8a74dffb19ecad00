"""
Handlers that open, copy and lock the database file of their own worker.

Beside them other processes open and close the same file, and the worker is killed.
`make faults` runs the long form with 200 kills.
"""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import closing, suppress
from pathlib import Path

import pytest

from deadletter.app import App

SCRIPT = Path(__file__).parent / "file_handlers.py"
SEED = 20261117
WEIGHTS = {  # how often each kind of handler runs
    "open": 30,
    "copy": 30,
    "connect": 30,
    "vacuum": 3,
    "exclusive": 1,
    "fork-exit": 3,
    "fork-stay": 3,
}

# Another process that uses SQLite without us: each time it may be the last user.
VISITOR = """
import sqlite3, sys, time
while True:
    connection = sqlite3.connect(sys.argv[1], timeout=30)
    connection.execute("SELECT count(*) FROM messages").fetchone()
    connection.close()
    time.sleep(0.005)
"""


class Scene:
    """A worker that is killed, and others who visit its file."""

    def __init__(self, place: Path, hold: float) -> None:
        self.file = place / "touched.db"
        self.killed: set[int] = set()
        self.visits = 0
        self.exit_code: int | None = None
        self._place = place
        self._hold = hold
        self._workers: list[subprocess.Popen[bytes]] = []
        self._visitor: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()
        self._looking = threading.Thread(target=self._look)

    def start(self) -> None:
        command = [sys.executable, "-c", VISITOR, str(self.file)]
        self._visitor = subprocess.Popen(command, stderr=self._log())
        self._looking.start()
        self.start_worker()

    def start_worker(self) -> None:
        command = [sys.executable, str(SCRIPT), str(self._place), str(self._hold)]
        # A session of its own, so that children that outlive it can be ended.
        worker = subprocess.Popen(command, stderr=self._log(), start_new_session=True)
        self._workers.append(worker)

    def kill_worker(self) -> None:
        worker = self._workers[-1]
        assert worker.poll() is None, (self._place / "stderr").read_text()[-2000:]
        worker.kill()
        worker.wait()
        self.killed.add(worker.pid)

    def runs(self) -> int:
        return len(lines(self._place, "run"))

    def end(self) -> None:
        self._is_over.set()
        self._looking.join()
        if self._visitor is not None:
            self._visitor.kill()
            self._visitor.wait()
        self._workers[-1].terminate()
        with suppress(subprocess.TimeoutExpired):
            self.exit_code = self._workers[-1].wait(20)
        for worker in self._workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)

    def _log(self) -> int:
        return os.open(self._place / "stderr", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _look(self) -> None:
        """Run `dlq stats` again and again."""
        command = [sys.executable, "-m", "deadletter.cli", "--url"]
        while not self._is_over.is_set():
            subprocess.run(
                [*command, f"sqlite:///{self.file}", "stats"], stdout=subprocess.DEVNULL, check=True
            )
            self.visits += 1


def lines(place: Path, kind: str) -> list[list[str]]:
    file = place / "effects"
    text = file.read_text() if file.exists() else ""
    return [words[1:] for line in text.splitlines() if (words := line.split())[0] == kind]


@pytest.mark.faults
@pytest.mark.slow
def test_handlers_that_touch_the_database_file_lose_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    kills, hold = (200, 4.0) if is_long else (4, 0.3)
    draw = random.Random(SEED)
    weights = list(WEIGHTS.values())
    kinds = [*WEIGHTS, *draw.choices(list(WEIGHTS), weights, k=30 * kills)]
    asyncio.run(_send(tmp_path, kinds))
    scene = Scene(tmp_path, hold)
    try:
        scene.start()
        for _ in range(kills):
            _wait_for_runs(scene, scene.runs() + 1)
            time.sleep(draw.uniform(0.0, 1.0))
            scene.kill_worker()
            scene.start_worker()
        # One more for the last worker: it must be at work before it is told to stop.
        asyncio.run(_send(tmp_path, ["open"], start=len(kinds)))
        kinds.append("open")
        asyncio.run(_drained(tmp_path, scene, within=60 + 2 * kills))
    finally:
        scene.end()

    _judge(tmp_path, scene, kinds)


async def _send(place: Path, kinds: list[str], start: int = 0) -> None:
    bodies = [{"number": str(n), "kind": kind} for n, kind in enumerate(kinds, start)]
    async with App(f"sqlite:///{place}/touched.db") as app:
        await app.send_many("work", bodies)


def _wait_for_runs(scene: Scene, count: int) -> None:
    deadline = time.monotonic() + 60
    while scene.runs() < count:
        if not _left(scene.file):  # all was handled before the last kill
            return
        assert time.monotonic() < deadline, "STUCK: the worker runs nothing"
        time.sleep(0.02)


def _left(file: Path) -> int:
    """Count what is still to be handled."""
    with closing(sqlite3.connect(file, timeout=30)) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM messages JOIN mailboxes ON mailboxes.id = mailbox"
            " WHERE mailboxes.name = 'work'"
        ).fetchone()
    return int(count)


async def _drained(place: Path, scene: Scene, *, within: float) -> None:
    deadline = time.monotonic() + within
    while left := _left(scene.file):
        assert time.monotonic() < deadline, f"STUCK: {left} messages"
        await asyncio.sleep(0.1)


def _judge(place: Path, scene: Scene, kinds: list[str]) -> None:
    with closing(sqlite3.connect(scene.file)) as connection:
        health = connection.execute("PRAGMA integrity_check").fetchall()
        stored = {id_ for (id_,) in connection.execute("SELECT id FROM messages")}
        (letters,) = connection.execute("SELECT count(*) FROM letters").fetchone()
    sent = {id_ for (id_,) in lines(place, "sent")}
    runs = defaultdict(list)
    for number, pid, at in lines(place, "run"):
        runs[number].append((int(pid), float(at)))
    again = {
        number: (kinds[int(number)], times)
        for number, times in runs.items()
        if not {pid for pid, _ in times[:-1]} <= scene.killed
    }
    print(
        f"{len(scene.killed)} kills, {len(kinds)} messages,"
        f" {len(sent)} acknowledged copies, {len(sent - stored)} lost,"
        f" {len(again)} run twice without a kill, {scene.visits} x dlq stats,"
        f" integrity {health[0][0]}"
    )

    assert health == [("ok",)]
    assert sent - stored == set(), "LOST"
    assert set(runs) == {str(n) for n in range(len(kinds))}, "LOST before it ran"
    assert again == {}, "RUN TWICE without a kill"
    assert letters == 0
    assert lines(place, "failed") == []
    assert scene.exit_code == 0
