"""Worker processes that are started again when they die, for fault tests."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deadletter.app import App
from deadletter.ports import QueueInfo


class Workers:
    """Some processes of one script, which works on a directory."""

    def __init__(self, script: Path, place: Path, count: int) -> None:
        self.deaths = 0
        self._command = [sys.executable, str(script), str(place)]
        self._stderr = place / "stderr"
        self._count = count
        self._running: list[subprocess.Popen[bytes]] = []

    def keep_up(self) -> None:
        """Replace whoever died."""
        running = [one for one in self._running if one.poll() is None]
        self.deaths += len(self._running) - len(running)
        while len(running) < self._count:
            with self._stderr.open("ab") as stderr:
                running.append(subprocess.Popen(self._command, stderr=stderr))
        self._running = running

    def kill_one(self, which: int) -> None:
        """Kill one of them, at once."""
        victim = self._running[which % len(self._running)]
        victim.kill()
        victim.wait()
        self.keep_up()

    def end(self) -> None:
        """Stop all of them."""
        for one in self._running:
            one.terminate()
        for one in self._running:
            one.wait(40)


async def drained(
    app: App, mailbox: str, tend: Callable[[], Any], *, within: float = 60.0
) -> QueueInfo:
    """Wait until nothing is left in a mailbox, and `tend` meanwhile."""
    deadline = time.monotonic() + within
    engine = await app.engine()
    while True:
        tend()
        queues = await engine.broker.queues()
        queue = next(one for one in queues if one.options.name == mailbox)
        if not queue.ready + queue.delayed + queue.claimed + queue.suspects:
            return queue
        assert time.monotonic() < deadline, f"STUCK: {queue}"
        await asyncio.sleep(0.05)
