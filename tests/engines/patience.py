"""Doing as the runtime does when a server is away: again, until it is back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from deadletter.core.errors import Unavailable

T = TypeVar("T")

_PAUSE = 0.02  # seconds


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Call until it works. Whatever else goes wrong is raised."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(_PAUSE)
