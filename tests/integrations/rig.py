"""Shops on task queues whose workers file what fails, in processes of their own."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deadletter.cli.app import ExitCode
from deadletter.testing.fakes import eventually
from interop.rig import KILLS, PATIENCE, SHOPS, Shop
from servers import Server

FILING = Path(__file__).parent / "shops"


class Folder:
    """A broker that is a folder, for a run without servers."""

    url = "filesystem://"


class FilingShop(Shop):
    """An application whose workers file in an office of its own."""

    def __init__(
        self, framework: str, server: "Server | Folder", folder: Path, module: str, office: str = ""
    ) -> None:
        super().__init__(framework, server, folder, module)
        self.office = office or self.office
        self._environment |= {
            "OFFICE": self.office,
            "PYTHONPATH": os.pathsep.join((str(FILING), str(SHOPS))),
        }
        if not isinstance(server, Folder):
            settings = f'[sources.shop]\nurl = "{server.url}"\n'
            (folder / "deadletter.toml").write_text(settings)

    @contextmanager
    def live_worker(self, *words: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker with a process group of its own, all of which ends with the block."""
        with (self.folder / "worker.log").open("a") as log:
            process = subprocess.Popen(
                self.command(*words),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**self._environment, **more},
                start_new_session=True,
            )
        try:
            yield process
            process.terminate()
            process.wait(PATIENCE)
        finally:
            kill(process)

    def told(self) -> str:
        """What the workers have logged so far."""
        return (self.folder / "worker.log").read_text()

    def ask(self, order: str, *words: Any, **more: Any) -> None:
        """Have the application ask for one task."""
        call = ", ".join([repr(order), *map(repr, words), *(f"{k}={v!r}" for k, v in more.items())])
        self._run(self.command()[0], "-c", f"import {self.module} as shop; shop.send({call})")

    async def until_letters(self, count: int, query: str = "") -> list[dict[str, Any]]:
        """Wait until there are as many letters; return the whole of each."""
        await eventually(lambda: len(self._letters(query)) >= count, within=PATIENCE)
        return [self.dlq("show", one["id"], "--capture")[0] for one in self._letters(query)]

    def _letters(self, query: str) -> list[dict[str, Any]]:
        words = ["list", *([query] if query else []), "--limit", "1000"]
        code, said = self._live(words)
        if code == ExitCode.NOT_FOUND:  # no worker has made the office yet
            return []
        assert code == 0, said
        found = [json.loads(line) for line in said if line.startswith("{")]
        return [one for one in found if "id" in one]

    async def replay(self, query: str, outcome: str, count: int) -> None:
        """Send letters back, and wait until the workers have reported what became of them."""
        self.dlq("replay", query, "--yes", "--presume", "never")
        [latest, *_] = self.dlq("replay", "status")

        def counts() -> Any:
            told = self.dlq("replay", "status")
            return next(one["counts"] for one in told if one["id"] == latest["id"])

        await eventually(lambda: counts() == {outcome: count}, within=PATIENCE)


def attempts(letter: dict[str, Any]) -> list[dict[str, Any]]:
    """The attempts in the story of a letter."""
    return [one["attempt"] for one in letter["story"] if one["attempt"]]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and its children with `kill -9`."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


async def survive_kills(shop: FilingShop, words: Sequence[str]) -> None:
    """Kill workers at twenty steps of their filing: each task has one letter at the end."""
    shop.broken.touch()
    steps: list[str] = []
    for number in range(2):  # the first one makes the office, which takes more steps
        shop.ask(f"o-{number}")
        with shop.live_worker(*words, DIE_AT="0"):
            await until_filed(shop, number + 1)
        steps = filed_steps(shop)
    last = KILLS + 3  # a filing that waits less has fewer steps
    for number in range(1, last + 1):
        shop.ask(f"o-{number + 1}")
        step = max(1, int(steps[-1]) * number // (last + 1))
        with shop.live_worker(*words, DIE_AT=str(step)) as worker:
            worker.wait(PATIENCE)
    assert len(filed_steps(shop)) - len(steps) <= last - KILLS, "too few were killed"
    count = last + 2
    with shop.live_worker(*words):
        letters = await shop.until_letters(count)
    wanted = sorted(f"order o-{number} has no price" for number in range(count))
    assert sorted(one["error_text"] for one in letters) == wanted
    assert len(shop.letters()) == count


async def until_filed(shop: FilingShop, count: int) -> None:
    """Wait until as many reports were filed to their end."""
    await eventually(lambda: len(filed_steps(shop)) >= count, within=PATIENCE)


def filed_steps(shop: FilingShop) -> list[str]:
    """The steps of each report that was filed to its end."""
    return re.findall(r"steps=(\d+)", shop.told())
