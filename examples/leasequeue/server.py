"""The queue server, `dlq serve`, as a child of the farm: started again if it dies."""

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

AGAIN = 0.2  # seconds before a server that ended is started again


@asynccontextmanager
async def serving(settings: Settings, say: Callable[[str], None]) -> AsyncIterator[None]:
    """A server that answers, from here to the end of the block."""
    keeping = asyncio.create_task(_keep(settings, say))
    try:
        await _answers(settings, keeping)
        yield
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


async def _keep(settings: Settings, say: Callable[[str], None]) -> None:
    while True:
        process = await _start(settings)
        say(f"server {process.pid} is started at {settings.url}")
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        say(f"server {process.pid} ended with {code}, starting another")
        await asyncio.sleep(AGAIN)


async def _start(settings: Settings) -> asyncio.subprocess.Process:
    here = {"DLQ_URL": settings.store, "DLQ_SERVE_ACCESS": "off"}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deadletter.cli", "serve", "--quiet"),
        f"--port={settings.port}",
        env={**os.environ, **here},
        # A farm that is killed takes its server with it.
        preexec_fn=partial(signal_when_orphaned, signal.SIGTERM),
    )


async def _answers(settings: Settings, keeping: asyncio.Task[None]) -> None:
    async with QueueClient(settings.url, attempts=1) as queue:
        while not keeping.done():
            try:
                await queue.queues(limit=1)
            except Unavailable:
                await asyncio.sleep(0.05)
            else:
                return
    await keeping  # which tells why it could not be started
