"""Several processes on one file, and processes that are killed."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deadletter.core.errors import Unavailable
from deadletter.ports import Fate
from deadletter.stores.sqlite import SqliteEngine, open_engine
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.queue_bench import a_message, info

LOAD = Path(__file__).with_name("sqlite_load.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def go(path: Path) -> None:
    """Let processes begin."""
    Path(f"{path}.go").touch()


@contextmanager
def running(role: str, path: Path, seconds: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """A process of that role, gone at the end whatever happens."""
    process = subprocess.Popen(
        [sys.executable, str(LOAD), role, str(path), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def told_by(count: int, role: str, path: Path, seconds: float = 0.0) -> Counter[str]:
    """What so many processes say that ran at the same time; none may fail."""
    total: Counter[str] = Counter()
    with ExitStack() as stack:
        processes = [stack.enter_context(running(role, path, seconds)) for _ in range(count)]
        go(path)
        for process in processes:
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            total.update(json.loads(out))
    return total


async def opened(path: Path) -> SqliteEngine:
    return await open_engine(f"sqlite:///{path}", clock=SystemClock(), dice=SystemDice())


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return str(verdict)


async def test_ten_processes_may_make_the_file_at_once(path: Path) -> None:
    told_by(10, "opens", path)

    engine = await opened(path)
    counts = await info(engine.broker)
    await engine.close()

    assert counts.ready == 10
    assert integrity(path) == "ok"


@pytest.mark.slow
async def test_eight_processes_share_a_file_without_an_error(path: Path) -> None:
    seen = told_by(8, "mixed", path, 3.0)

    engine = await opened(path)
    counts = await info(engine.broker)
    await engine.close()

    present = counts.ready + counts.delayed + counts.claimed + counts.suspects
    assert seen["sent"] > 0
    assert seen["handled"] > 0
    assert seen["fenced"] == 0
    assert counts.tally == {"sent": seen["sent"], Fate.HANDLED: seen["handled"]}
    assert counts.tally["sent"] == counts.tally[Fate.HANDLED] + present
    assert integrity(path) == "ok"


def killed_while_writing(path: Path) -> None:
    """Have a process write until it has confirmed some, and kill it then and there."""
    log = Path(f"{path}.log")
    before = log.stat().st_size if log.exists() else 0
    with running("writer", path) as process:
        deadline = time.monotonic() + 30
        while not log.exists() or log.stat().st_size < before + 20_000:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "it writes nothing"
            time.sleep(0.001)


def confirmed(path: Path) -> dict[str, set[str]]:
    """Ids by what the killed processes had begun, or been told was done."""
    found: dict[str, set[str]] = {"sent": set(), "acking": set(), "acked": set()}
    for line in Path(f"{path}.log").read_text().splitlines():
        word, _, message_id = line.partition(" ")
        found[word].add(message_id)
    return found


def ids_in(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    present = {id_ for (id_,) in connection.execute("SELECT id FROM messages")}
    connection.close()
    return present


async def test_nothing_confirmed_is_lost_with_a_killed_process(path: Path) -> None:
    go(path)
    for _ in range(3):
        killed_while_writing(path)

    told, present = confirmed(path), ids_in(path)

    assert integrity(path) == "ok"
    assert told["sent"] - told["acking"] <= present  # nothing is lost
    assert not told["acked"] & present  # nothing comes back
    engine = await opened(path)
    counts = await info(engine.broker)
    await engine.close()
    there = counts.ready + counts.delayed + counts.claimed + counts.suspects
    assert counts.tally["sent"] == counts.tally[Fate.HANDLED] + there


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def occupy(path: Path) -> None:
    path.write_bytes(b"x" * 300_000)


def vacate(path: Path) -> None:
    path.unlink()


async def test_a_disk_that_fills_up_loses_nothing_and_goes_on(tiny: Path) -> None:
    engine = await opened(tiny / "q.db")
    sink = engine.broker.sink("orders")
    occupy(tiny / "ballast")
    sent = 0

    with pytest.raises(Unavailable, match="disk is full"):  # noqa: PT012 -- until it is
        while sent < 1000:
            await sink.send([a_message(b"x" * 4000)])
            sent += 1
    vacate(tiny / "ballast")
    await sink.send([a_message(b"x" * 4000)])

    counts = await info(engine.broker)
    await engine.close()
    assert 10 < sent < 1000
    assert (counts.ready, counts.tally["sent"]) == (sent + 1, sent + 1)
    assert integrity(tiny / "q.db") == "ok"
