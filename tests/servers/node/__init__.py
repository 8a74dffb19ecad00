"""
Node with the real BullMQ, for tests that its queues and ours are the same.

`make services` puts the packages into `.servers/node`, as the lock file here says. The
scripts beside this file take one JSON argument and say JSON, one line each.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from servers.common import INSTALLED, Missing

HERE = Path(__file__).parent
HOME = INSTALLED / "node"
FILES = ("package.json", "package-lock.json")
READY = HOME / ".ready"
_PATIENCE = 30.0  # seconds for a line


class Script:
    """A script that runs: what it says, what it is told, its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def said(self, what: str | None = None) -> dict[str, Any]:
        """The next line; with `what`, the next one that is of that kind."""
        assert self.process.stdout is not None
        async with asyncio.timeout(_PATIENCE):
            while line := await self.process.stdout.readline():
                told: dict[str, Any] = json.loads(line)
                if what is None or told["what"] == what:
                    return told
        raise AssertionError(f"it ended and never said {what}")

    async def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        await self.process.wait()


class Node:
    """Runs the scripts."""

    def __init__(self) -> None:
        self.program = find()

    @asynccontextmanager
    async def running(self, script: str, **told: Any) -> AsyncIterator[Script]:
        """A script as long as the block lasts; it is told to end, not killed."""
        process = await asyncio.create_subprocess_exec(
            *(self.program, HERE / f"{script}.mjs", json.dumps(told)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "BULLMQ_HOME": f"{HOME}/"},
            limit=16 * 1024 * 1024,
        )
        try:
            yield Script(process)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def run(self, script: str, **told: Any) -> dict[str, Any]:
        """Run a script that says one thing and ends."""
        async with self.running(script, **told) as running:
            said = await running.said()
            await asyncio.wait_for(running.process.wait(), _PATIENCE)
        assert running.process.returncode == 0
        return said


def find() -> Path:
    """Node itself; raises Missing without it, or without the packages."""
    program = shutil.which("node")
    if program is None:
        raise Missing("no node here: install Node 20 or later, and npm")
    if not READY.exists():
        raise Missing("no BullMQ here: run `make services`")
    return Path(program)


def connection(url: str) -> dict[str, Any]:
    """What BullMQ is told of a server and a prefix, from the URL of an engine."""
    parts = urlsplit(url)
    prefix = parse_qs(parts.query).get("prefix", ["bull"])[0]
    return {
        "prefix": prefix,
        "connection": {
            "host": parts.hostname,
            "port": parts.port,
            "password": unquote(parts.password or ""),
            "db": int(parts.path.strip("/") or 0),
        },
    }
