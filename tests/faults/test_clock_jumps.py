"""
The clock jumps under load and is set right again: no retry stays behind.

The clock is the server's on PostgreSQL and Redis, and the worker's on SQLite.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from deadletter.app import App
from deadletter.testing.fakes import eventually
from servers import PostgreSQL, Redis, Server
from servers.common import Missing
from servers.fixtures import do_without

SCRIPT = Path(__file__).parent / "clock_worker.py"
JUMPS = {"right": 0, "ahead": 7200, "behind": -7200, "far": 400 * 86_400}  # seconds
CASES = ["ahead", "behind", "far", "frozen"]
WITHIN = 60.0  # seconds after the clock is right again; a retry waits for one
COUNT = 20


class WorkerClock:
    """The clock of a worker, which reads from a file how far it is off."""

    def __init__(self, place: Path) -> None:
        self._file = place / "step"

    def set(self, jump: str) -> None:
        replaced(self._file, "frozen" if jump == "frozen" else str(JUMPS[jump]))


class ServerClock:
    """The clock of a server, as libfaketime shows it to that process."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            do_without(Missing("libfaketime is missing: apt-get install faketime"))
        # Not below the directory of the test: PostgreSQL runs as somebody else.
        self._place = tempfile.TemporaryDirectory()
        place = Path(self._place.name)
        place.chmod(0o755)
        self._file = place / "faketime"
        self.environment = {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        self.set("right")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    def set(self, jump: str) -> None:
        if jump == "frozen":
            replaced(self._file, time.strftime("%Y-%m-%d %H:%M:%S"))
        else:
            replaced(self._file, f"{JUMPS[jump]:+d}")


def replaced(file: Path, text: str) -> None:
    """Write a file at once: nobody reads half of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o644)
    new.replace(file)


@contextmanager
def served(kind: type[Server], clock: ServerClock) -> Iterator[Server]:
    """A server that goes by that clock."""

    class Faked(kind):  # type: ignore[misc, valid-type]
        def environment(self) -> dict[str, str]:
            return {**super().environment(), **clock.environment}

    try:
        server: Server = Faked()
    except Missing as missing:
        do_without(missing)
    if not server.ours:
        pytest.skip("the clock of a server that is not ours cannot be set")
    try:
        server.start()
        yield server
    finally:
        server.close()


class Setting(NamedTuple):
    """Where a worker works, and the clock that due times are judged by."""

    place: Path
    url: str
    office: str
    clock: WorkerClock | ServerClock


@contextmanager
def working(setting: Setting) -> Iterator[None]:
    with (setting.place / "stderr").open("ab") as stderr:
        worker = subprocess.Popen(
            [sys.executable, SCRIPT, setting.place, setting.url, setting.office], stderr=stderr
        )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(40)


class Effects:
    """What handlers noted, outside the system."""

    def __init__(self, place: Path) -> None:
        self._file = place / "effects"

    def lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def failed(self) -> int:
        return sum(line.endswith("failed") for line in self.lines())

    def done(self) -> set[str]:
        return {line.split()[0] for line in self.lines() if line.endswith("done")}


def cases(request: pytest.FixtureRequest) -> list[str]:
    is_long = request.config.getoption("--long")
    return CASES if is_long else ["ahead"]


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", "redis", "postgresql"])
async def test_retries_are_on_time_after_the_clock_jumped_and_was_set_right(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for jump in cases(request):
        place = tmp_path / jump
        place.mkdir()
        if engine == "sqlite":
            url = f"sqlite:///{place}/clock.db"
            await _jump(jump, Setting(place, url, "", WorkerClock(place)))
            continue
        kind = {"redis": Redis, "postgresql": PostgreSQL}[engine]
        with ServerClock() as clock, served(kind, clock) as server:
            office = "" if engine == "postgresql" else f"sqlite:///{place}/office.db"
            await _jump(jump, Setting(place, server.url, office, clock))


async def _jump(jump: str, setting: Setting) -> None:
    effects, clock = Effects(setting.place), setting.clock
    async with App(setting.url, office=setting.office or None) as app:
        with working(setting):
            await _send(app, 0)
            await eventually(lambda: len(effects.done()) == COUNT, within=WITHIN)
            failed = effects.failed()
            clock.set(jump)
            await _send(app, COUNT)
            # All fail by the wrong clock; with one that is behind, none is due yet.
            if jump in ("ahead", "far"):
                all_failed = failed + COUNT
                await eventually(lambda: effects.failed() >= all_failed, within=WITHIN)
                await eventually(partial(_is_idle, app), within=WITHIN)
            clock.set("right")
            await _send(app, 2 * COUNT)
            await eventually(lambda: len(effects.done()) == 3 * COUNT, within=WITHIN)
    print(f"{jump}: {3 * COUNT} sent, {len(effects.done())} done")


async def _is_idle(app: App) -> bool:
    """Whether nothing is claimed: what has failed waits for its retry."""
    queues = await (await app.engine()).broker.queues()
    return all(queue.claimed == 0 for queue in queues)


async def _send(app: App, start: int) -> None:
    for number in range(start, start + COUNT):
        await app.send("work", {"number": str(number)})
