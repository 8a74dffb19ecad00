"""The processes of the shop: workers, which may die, and the server with the console."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Self

STARTS_WITHIN = 20.0  # seconds
ENDS_WITHIN = 10.0
COMMAND = (sys.executable, "-m", "deadletter.cli")


class Workers:
    """The handlers of one version, in two processes. Restart them to deploy another."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._running: asyncio.subprocess.Process | None = None

    async def start(self, version: str) -> None:
        """Work the mailboxes with this version of the shop."""
        environ = {
            **os.environ,
            "SHOP_DIR": str(self._place),
            "SHOP_EVENTS": str(self._place / "events.jsonl"),
            "SHOP_VERSION": version,
            "PYTHONPATH": os.pathsep.join(
                [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
            ),
        }
        with (self._place / "worker.log").open("ab") as log:
            self._running = await asyncio.create_subprocess_exec(
                *COMMAND,
                *("work", "shop:app", "--processes", "2"),
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def deploy(self, version: str) -> None:
        """Let the running handlers finish, and start those of another version."""
        await self.stop()
        await self.start(version)

    async def stop(self) -> None:
        """End the workers; running handlers finish first."""
        await _end(self._running)
        self._running = None


class Server:
    """`dlq serve` over the office of the shop; `link` signs in once, with a code."""

    def __init__(self, process: asyncio.subprocess.Process, link: str) -> None:
        self.link = link
        self._process = process

    @classmethod
    async def start(cls, place: Path, *, in_browser: bool) -> Self | None:
        """Return the server as soon as it listens, or None if it ended; see server.log."""
        with (place / "server.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *("--json", "--url", f"sqlite:///{place}/shop.db"),
                *("serve", "--port", "0", *(["--open"] if in_browser else [])),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        try:
            link = await asyncio.wait_for(_link(process), STARTS_WITHIN)
        except TimeoutError:
            link = ""
        if not link:
            await _end(process)
            return None
        return cls(process, link)

    async def stop(self) -> None:
        """End the server."""
        await _end(self._process)


async def _link(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        told = json.loads(line)
        if told["event"] == "console":
            return str(told["url"])
    return ""


async def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is None or process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), ENDS_WITHIN)
    except TimeoutError:
        process.kill()
        await process.wait()
