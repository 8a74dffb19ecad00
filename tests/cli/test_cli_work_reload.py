"""dlq work --reload: a real worker that starts again when its code changes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.conftest import Command
from deadletter.cli.reload import MISSING, code_of, watching
from deadletter.core.errors import ConfigError

pytestmark = pytest.mark.slow

APP = """
import asyncio
from pathlib import Path
from deadletter import App, Context
from rules import VERSION

app = App(version=VERSION)

@app.handler("orders", max_attempts=1, grace=GRACE)
async def charge(order: dict, context: Context) -> None:
    with Path("ran.txt").open("a") as file:
        file.write(f"{order['id']} began in {VERSION}, attempt {context.attempt}\\n")
    if order.get("slow") and VERSION == "1":
        await asyncio.sleep(SECONDS)
    with Path("ran.txt").open("a") as file:
        file.write(f"{order['id']} done in {VERSION}\\n")
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "not within 60 seconds"
        time.sleep(0.05)


class Project:
    """A package with an App, and its worker under `dlq work --reload`."""

    def __init__(self, place: Path, log: Path) -> None:
        self.place = place
        self.log = log
        self.worker: subprocess.Popen[bytes] | None = None

    def write(self, version: str, *, grace: float = 30, seconds: float = 60) -> None:
        app = APP.replace("GRACE", str(grace)).replace("SECONDS", str(seconds))
        (self.place / "shop.py").write_text(app)
        (self.place / "rules.py").write_text(f'VERSION = "{version}"\n')

    def change(self, text: str) -> None:
        (self.place / "rules.py").write_text(text)

    def start(self) -> None:
        words = [sys.executable, "-m", "deadletter.cli", "work", "shop:app", "--reload"]
        with self.log.open("wb") as log:
            self.worker = subprocess.Popen(words, cwd=self.place, stderr=log)

    def logged(self, text: str, times: int = 1) -> bool:
        return self.log.read_text().count(text) >= times

    def ran(self) -> list[str]:
        file = self.place / "ran.txt"
        return file.read_text().splitlines() if file.exists() else []

    def stop(self) -> int:
        assert self.worker is not None
        self.worker.send_signal(signal.SIGINT)
        return self.worker.wait(60)


@pytest.fixture
def project(dlq: Command, tmp_path: Path) -> Iterator[Project]:
    place = tmp_path / "code"
    place.mkdir()
    made = Project(place, tmp_path / "log.txt")
    yield made
    if made.worker is not None and made.worker.poll() is None:
        made.worker.kill()
        made.worker.wait()


def test_messages_in_progress_finish_before_the_worker_starts_again(
    dlq: Command, project: Project
) -> None:
    project.write("1", seconds=2)
    project.start()
    dlq("send", "orders", json.dumps({"id": "a", "slow": True}))
    until(lambda: project.ran() == ["a began in 1, attempt 1"])
    project.change('VERSION = "2"\n')
    until(lambda: project.logged("worker-started", 2))
    dlq("send", "orders", json.dumps({"id": "b"}))
    until(lambda: "b done in 2" in project.ran())

    assert project.ran()[1] == "a done in 1"
    assert project.stop() == 0
    assert project.logged("rules.py changed: the worker starts again")
    assert project.log.read_text().count("ended") == 1  # of the last one


def test_messages_that_take_too_long_go_back_uncharged(dlq: Command, project: Project) -> None:
    project.write("1", grace=0.2)
    project.start()
    dlq("send", "orders", json.dumps({"id": "a", "slow": True}))
    until(lambda: project.ran() == ["a began in 1, attempt 1"])
    project.change('VERSION = "2"\n')
    until(lambda: "a done in 2" in project.ran())

    assert project.stop() == 0
    assert dlq("list", "--json").documents == []  # one attempt is all it has


def test_a_mistake_is_shown_once_and_the_next_change_is_waited_for(
    dlq: Command, project: Project
) -> None:
    project.write("1")
    project.start()
    until(lambda: project.logged("worker-started"))
    project.change("VERSION = (\n")
    until(lambda: project.logged("ended with code 2"))
    assert project.logged("rules.py, line 1: SyntaxError")
    time.sleep(1.5)  # longer than a supervisor waits that tries again by itself
    assert project.log.read_text().count("SyntaxError") == 1
    project.change('VERSION = "2"\n')
    until(lambda: project.logged("worker-started", 2))

    assert project.stop() == 0


@pytest.mark.parametrize("name", ["nowhere:app", "", ":app", "sys:app"])
def test_code_that_cannot_be_watched_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="module"):
        code_of(name)


def test_a_package_is_watched_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "one_module.py").write_text("raise SystemExit")

    assert code_of("some_package.inner:app") == tmp_path / "some_package"
    assert code_of("one_module:app") == tmp_path


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)

    with pytest.raises(ConfigError) as refused, watching(tmp_path, print):
        os.abort()

    assert str(refused.value) == MISSING
