"""
The event loop and the process that an engine was opened in, and where it may be used.

Connections to a server belong to one event loop, and never to a forked child: what the
child sends or closes, it sends or closes for its parent.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.ports import AnyLoop, Engine

_CLOSING: Final = 5.0  # seconds that an engine of an ended loop is given
_abandoned: Final[list[Engine]] = []  # kept, so that nothing closes them


class Home:
    """One engine, opened when it is needed, where it is needed."""

    def __init__(self, opener: Callable[[], Awaitable[Engine]]) -> None:
        self._opener = opener
        self._engine: Engine | None = None
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def engine(self) -> Engine:
        """
        Return the engine, open for this event loop and this process.

        Raises ConfigError while it is open in another loop that still runs.
        """
        engine, loop = self._engine, asyncio.get_running_loop()
        if engine is not None and self._is_here(engine, loop):
            return engine
        async with self._lock(loop):
            engine = self._engine
            if engine is not None and self._is_here(engine, loop):
                return engine
            await self.close()
            self._engine = await self._opener()
            self._process, self._loop = os.getpid(), loop
            return self._engine

    async def close(self) -> None:
        """Let go of the engine, if there is one."""
        engine = self._engine
        if engine is None:
            return
        if self._process != os.getpid():
            self._engine = None
            _abandoned.append(engine)
            return
        if self._is_here(engine, asyncio.get_running_loop()):
            self._engine = None
            await engine.close()
            return
        if self._loop is not None and self._loop.is_running():
            raise ConfigError(
                "this App is open in another event loop, which still runs: give each "
                "event loop an App of its own, or share one through SyncApp"
            )
        self._engine = None
        with suppress(Exception):  # what belongs to a loop that has ended
            async with asyncio.timeout(_CLOSING):
                await engine.close()

    def _is_here(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> bool:
        if self._process != os.getpid():
            return False
        return self._loop is loop or isinstance(engine, AnyLoop)

    def _lock(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        if self._opening is None or self._opening[0] is not loop:
            self._opening = loop, asyncio.Lock()
        return self._opening[1]
