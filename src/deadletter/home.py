"""The engine of an App, and the stand-ins that tests put in its place."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from deadletter.core.errors import ConfigError

from .ports import AnyLoop, Clock, Dice, Engine, Sink

_CLOSING: Final = 5.0  # seconds that an engine of an ended loop is given
_abandoned: Final[list[Engine]] = []  # kept, so that nothing closes them


class Home:
    """
    The engine of an App, opened when it is first needed, with its clock and dice.

    Connections belong to one event loop, and never to a forked child: what the child
    sends or closes, it sends or closes for its parent.
    """

    def __init__(self, opener: Callable[[], Awaitable[Engine]], clock: Clock, dice: Dice) -> None:
        self.clock = clock
        self.dice = dice
        self._opener = opener
        self._engine: Engine | None = None
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._stand_ins: list[Home] = []

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

    async def sink(self, mailbox: str) -> Sink:
        """Return the way into a mailbox of the engine."""
        return (await self.engine()).broker.sink(mailbox)

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

    def here(self) -> "Home":
        """
        Return the stand-in that this code works with, or the home itself if there is none.

        Code that no test has started, such as an old thread, gets the only stand-in there
        is. Raises ConfigError if there are several: the real engine is never opened in a test.
        """
        if not self._stand_ins:
            return self
        for home, stand_in in reversed(_standing_in.get()):
            if home is self and stand_in in self._stand_ins:
                return stand_in
        if len(self._stand_ins) == 1:
            return self._stand_ins[0]
        raise ConfigError(
            f"this App is in {len(self._stand_ins)} tests at once, and this code belongs to"
            " none of them: use `t.send` of the test, or start the code inside of its `with`"
        )

    @contextmanager
    def replaced(self, stand_in: "Home") -> Iterator[None]:
        """Let everybody work with a stand-in, as described at `here`."""
        self._stand_ins.append(stand_in)
        try:
            with self.using(stand_in):
                yield
        finally:
            self._stand_ins.remove(stand_in)

    @contextmanager
    def using(self, stand_in: "Home") -> Iterator[None]:
        """Work with a stand-in: this code, and the tasks and threads that it starts."""
        token = _standing_in.set((*_standing_in.get(), (self, stand_in)))
        try:
            yield
        finally:
            with suppress(ValueError):  # left in another context than it was entered in
                _standing_in.reset(token)

    def _is_here(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> bool:
        if self._process != os.getpid():
            return False
        return self._loop is loop or isinstance(engine, AnyLoop)

    def _lock(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        if self._opening is None or self._opening[0] is not loop:
            self._opening = loop, asyncio.Lock()
        return self._opening[1]


_standing_in: ContextVar[tuple[tuple[Home, Home], ...]] = ContextVar(
    "deadletter_standing_in", default=()
)
