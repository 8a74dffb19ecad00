"""The queue server `dlq serve` as a child process, started again when it ends."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from deadletter import Unavailable
from deadletter.client import QueueClient
from deadletter.runtime.lifeline import signal_when_orphaned

from .settings import Settings

RESTART_AFTER = 0.2  # seconds


@asynccontextmanager
async def run_server(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Run a server that answers until the end of the block."""
    supervisor = asyncio.create_task(_supervise(settings, say))
    try:
        await _wait_for_answer(settings, supervisor)
        yield
    finally:
        supervisor.cancel()
        with suppress(asyncio.CancelledError):
            await supervisor


async def _supervise(settings: Settings, say: Callable[[str], None]) -> None:
    while True:
        process = await _start(settings)
        say(f"started server {process.pid} at {settings.url}")
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        say(f"server {process.pid} ended with exit code {code}: starting another one")
        await asyncio.sleep(RESTART_AFTER)


async def _start(settings: Settings) -> asyncio.subprocess.Process:
    here = {"DLQ_URL": settings.store, "DLQ_SERVE_ACCESS": "off"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deadletter.cli", "serve", "--quiet"),
        f"--port={settings.port}",
        env={**os.environ, **here},
        # The server ends when the farm is killed.
        preexec_fn=partial(signal_when_orphaned, signal.SIGTERM),
    )


async def _wait_for_answer(settings: Settings, supervisor: asyncio.Task[None]) -> None:
    async with QueueClient(settings.url, attempts=1) as queue:
        while not supervisor.done():
            try:
                await queue.queues(limit=1)
            except Unavailable:
                await asyncio.sleep(0.05)
            else:
                return
    await supervisor  # raises the reason why the server could not be started
