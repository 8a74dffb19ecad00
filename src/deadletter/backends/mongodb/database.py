"""
The database, seen from an event loop: turns, looks, second tries.

What was asked for runs to its end, whoever stops waiting for it: a commit that is
broken off may have been carried out or not, and nobody would know.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import validate_options

from deadletter.core.errors import ConfigError, DeadLetterError, Unavailable
from deadletter.ports.time import Dice

from .address import Address
from .errors import TROUBLE, explained, is_passing, is_unsure, while_running
from .schema import SAFELY, Collections, Document, collections
from .silence import APP, SILENT, end_silent
from .turn import Session, Turn, begin

T = TypeVar("T")
Client: TypeAlias = AsyncMongoClient[Document]
Work: TypeAlias = Callable[[Turn], Awaitable[T]]
Look: TypeAlias = Callable[[Collections, Session], Awaitable[T]]

_PATIENCE: Final = 4 * SILENT  # seconds that others may be in the way
_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.2
_SNAPSHOT: Final = ReadConcern("snapshot")

# Unless the URL says otherwise; in milliseconds.
_DEFAULTS: Final[dict[str, Any]] = {
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    "socketTimeoutMS": 60_000,
}


def connect(address: Address) -> Client:
    """A client for one event loop; nothing is sent before the first question."""
    given = validate_options(dict(address.options), warn=False)
    defaults = {k: v for k, v in _DEFAULTS.items() if k.lower() not in given}
    return AsyncMongoClient(address.url, tz_aware=True, appname=APP, **defaults)


class Database:
    """One MongoDB database, for one event loop."""

    def __init__(self, address: Address, client: Client, dice: Dice) -> None:
        self.address = address
        self._client = client
        self._dice = dice
        self.there = collections(client[address.database], address.prefix)
        self._pid = os.getpid()
        self._mine = asyncio.Lock()  # turns of this process wait, they do not collide
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def close(self) -> None:
        """Finish what is under way and let go. Twice is fine."""
        self._closed = True
        while self._running:
            await asyncio.wait(self._running)
        await self._client.close()

    async def write(self, work: Work[T]) -> T:
        """Do it in a turn of its own; returns once it is durable."""
        return await self.start(self._in_turn(work))

    async def read(self, look: Look[T]) -> T:
        """Look at the office as it was at one moment."""
        return await self.start(self._looked(look))

    async def search(self, look: Look[T]) -> T:
        """Look like `read`; it changes nothing, so it ends with the wait for it."""
        return await self._begun(self._looked(look))

    async def plainly(self, work: Callable[[Collections], Awaitable[T]]) -> T:
        """Do something whose every part stands for itself."""
        return await self.start(self._translated(work(self.there)))

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Have something done to its end; waiting for it can be given up."""
        return asyncio.shield(self._begun(work))

    def _begun(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        try:
            self._check()
        except DeadLetterError:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # of one nobody waits for any more

    async def _in_turn(self, work: Work[T]) -> T:
        deadline = _now() + _PATIENCE
        try:
            async with asyncio.timeout_at(deadline):
                await self._mine.acquire()
        except TimeoutError:
            raise Unavailable(
                f"MongoDB at {self.address.shown}: it was never our turn"
            ) from None
        try:
            return await self._translated(self._tried(work, deadline))
        finally:
            self._mine.release()

    async def _looked(self, look: Look[T]) -> T:
        async def looked() -> T:
            async with self._client.start_session(snapshot=True) as session:
                return await look(self.there, session)

        return await self._translated(looked())

    async def _translated(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except TROUBLE as error:
            told = explained(error, self.address.shown)
            raise while_running(told) from error

    async def _tried(self, work: Work[T], deadline: float) -> T:
        patience = _now() + SILENT
        pause = _PAUSE
        async with self._client.start_session() as session:
            while True:
                try:
                    return await self._once(session, work, deadline)
                except PyMongoError as error:
                    if not is_passing(error) or _now() > deadline:
                        raise
                if _now() > patience:
                    patience = _now() + 1.0
                    with suppress(PyMongoError):  # then it takes a minute
                        await end_silent(self._client)
                # Out of step with the others.
                await asyncio.sleep(pause * self._dice.draw())
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _once(self, session: Session, work: Work[T], deadline: float) -> T:
        await session.start_transaction(_SNAPSHOT, SAFELY)
        try:
            turn = await begin(self.there, session)
            result = await work(turn)
            await turn.end()
        except BaseException:
            with suppress(PyMongoError):  # it ends by itself then
                await session.abort_transaction()
            raise
        while True:
            try:
                await session.commit_transaction()
            except PyMongoError as error:
                if not is_unsure(error) or _now() > deadline:
                    raise
                await asyncio.sleep(_PAUSE)
            else:
                return result

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ConfigError(
                "this engine was opened before a fork and cannot be used in the child:"
                " open it again there, after the fork"
            )
        if self._closed:
            raise Unavailable("the engine is closed")


def _now() -> float:
    return asyncio.get_running_loop().time()
