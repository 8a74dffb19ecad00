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
from deadletter.core.seals import Sealing
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
_SHORT: Final = 10.0  # seconds for what takes milliseconds
_SLOWEST: Final = 1_000_000  # bytes in a second, on the slowest wire
_FAREWELL: Final = 2.0  # seconds to give up a turn
_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.2
_SNAPSHOT: Final = ReadConcern("snapshot")

LONGEST: Final = 60.0  # seconds for anything, with all its second tries

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


def limit_for(size: int) -> float:
    """Return the seconds that a turn may take which carries `size` bytes."""
    return _PATIENCE + size / _SLOWEST


class Database:
    """
    One MongoDB database, for one event loop.

    Whatever is asked for has a deadline as a whole, `within` seconds from the start.
    """

    def __init__(self, address: Address, client: Client, dice: Dice) -> None:
        self.address = address
        self._client = client
        self._dice = dice
        self.sealing = Sealing()  # given its keys once the office is open
        self.there = collections(client[address.database], address.prefix)
        self._pid = os.getpid()
        self._mine = asyncio.Lock()  # turns of this process wait, they do not collide
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def close(self) -> None:
        """Finish what is under way and let go. Twice is fine."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=_SHORT)
        late = list(self._running)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await self._client.close()

    async def write(self, work: Work[T], *, within: float = LONGEST) -> T:
        """Do it in a turn of its own; returns once it is durable."""
        self._check()
        return await self.start(self._limited(self._in_turn(work), within))

    async def read(self, look: Look[T], *, within: float = LONGEST) -> T:
        """Look at the office as it was at one moment."""
        self._check()
        return await self.start(self._limited(self._looked(look), within))

    async def search(self, look: Look[T]) -> T:
        """Look like `read`; it changes nothing, so it ends with the wait for it."""
        return await self._begun(self._looked(look))

    async def plainly(self, work: Callable[[Collections], Awaitable[T]]) -> T:
        """Do something whose every part stands for itself."""
        self._check()
        doing = self._translated(work(self.there))
        return await self.start(self._limited(doing, _SHORT))

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

    async def _limited(self, work: Awaitable[T], within: float) -> T:
        """Wait for it in time, or not: the library ends the connection then."""
        deadline = asyncio.timeout(within)
        try:
            async with deadline:
                return await work
        except TimeoutError as error:
            raise Unavailable(
                f"MongoDB at {self.address.shown}: no answer within {within:g} s"
            ) from error

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
            turn = await begin(self.there, session, self.sealing)
            result = await work(turn)
            await turn.end()
        except BaseException:
            with suppress(PyMongoError, TimeoutError):  # it ends by itself then
                async with asyncio.timeout(_FAREWELL):
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
