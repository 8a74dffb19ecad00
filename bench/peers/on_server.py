"""A contestant on a server: each function takes its URL and how many messages."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from workload import Measured, Play, must_be, play

DEADLINE = 300.0  # seconds, for anything

Run: TypeAlias = Callable[[str, int], Measured | Coroutine[Any, Any, Measured]]


def play_on_server(*runs: Run) -> None:
    """Be a contestant: `python -m peers.NAME WORKLOAD FOLDER N URL SETTING`."""
    play({run.__name__: _as_play(run) for run in runs})


def setting() -> str:
    """How this contestant is to be set up."""
    return sys.argv[5]


def wait_for(last: threading.Event, is_done: Callable[[], bool]) -> None:
    """Wait for the last handler call, and then for the store to say so too."""
    must_be(last.wait(DEADLINE), True, "in time")
    deadline = time.monotonic() + DEADLINE
    while not is_done():
        must_be(time.monotonic() < deadline, True, "in time")
        time.sleep(0.002)


async def until(is_done: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait for the store to say so."""
    async with asyncio.timeout(DEADLINE):
        while not await is_done():  # noqa: ASYNC110  a store rings no bells
            await asyncio.sleep(0.002)


def _as_play(run: Run) -> Play:
    def played(folder: Path, n: int, url: str) -> Measured:
        found = run(url, n)
        return found if isinstance(found, Measured) else asyncio.run(found)

    return played
