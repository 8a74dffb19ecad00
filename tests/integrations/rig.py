"""Shops on task queues whose workers file what fails, in processes of their own."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deadletter.testing.fakes import eventually
from interop.rig import PATIENCE, SHOPS, Shop
from servers import Server

FILING = Path(__file__).parent / "shops"


class FilingShop(Shop):
    """An application whose workers file in an office of its own."""

    def __init__(
        self, framework: str, server: Server, folder: Path, module: str, office: str = ""
    ) -> None:
        super().__init__(framework, server, folder, module)
        self.office = office or self.office
        self._environment |= {
            "OFFICE": self.office,
            "PYTHONPATH": os.pathsep.join((str(FILING), str(SHOPS))),
        }
        settings = f'[sources.shop]\nurl = "{server.url}"\n'
        (folder / "deadletter.toml").write_text(settings)
        # What `dlq` reads in the folder of the shop, and its workers as well.

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
        if self.office.startswith("sqlite:") and not (self.folder / "office.db").exists():
            return []
        return self.letters(query)

    async def replay(self, query: str, outcome: str, count: int) -> None:
        """Send letters back, and wait until the workers have reported what became of them."""
        self.dlq("replay", query, "--yes", "--presume", "never")
        [latest, *_] = self.dlq("replay", "status")

        def counts() -> Any:
            told = self.dlq("replay", "status")
            return next(one["counts"] for one in told if one["id"] == latest["id"])

        await eventually(lambda: counts() == {outcome: count}, within=PATIENCE)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and its children with `kill -9`."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(30)
