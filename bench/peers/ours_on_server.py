"""
deadletter on a server: an App with default settings, as anybody would use it.

Where the engine keeps no letters its office is an SQLite file, power-safe.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from deadletter.app import App
from peers.ours import QUEUE, happy, poison, replay
from workload import Measured, Play, play


def _on_server(run: Callable[[App, int], Awaitable[Measured]]) -> Play:
    async def opened(url: str, office: str | None, n: int) -> Measured:
        async with App(url, office=office) as app:
            measured = await run(app, n)
            engine = await app.engine()
            await engine.broker.delete(QUEUE, force=True)
            return measured

    def on_server(folder: Path, n: int, url: str) -> Measured:
        keeps_letters = url.startswith("postgresql:")
        office = None if keeps_letters else f"sqlite:///{folder}/office.db"
        return asyncio.run(opened(_ours(url), office, n))

    return on_server


def _ours(url: str) -> str:
    if not url.startswith("http://"):
        return url
    place = url.removeprefix("http://")  # the emulator of SQS
    return f"sqs+http://test:test@{place}?region=eu-west-1"


if __name__ == "__main__":
    play({run.__name__: _on_server(run) for run in (happy, poison, replay)})
