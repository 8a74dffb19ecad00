"""
The database, seen from an event loop: statements, transactions, second tries.

What was asked for runs to its end, whoever stops waiting for it: a statement
that is broken off may have been carried out or not, and nobody would know.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import asyncpg

from deadletter.core.errors import ConfigError, DeadLetterError, Unavailable
from deadletter.core.group_limit import GroupLimit
from deadletter.core.seals import Sealing

from .address import Address
from .errors import explained, is_broken, is_theirs, while_running
from .pool import LONGEST, SETTINGS, Connection, Pool, connect

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], Awaitable[T]]
Rows: TypeAlias = list[Any]

_TRIES: Final = 20
_SHORT: Final = 10.0  # seconds for what takes milliseconds, waiting and second tries in
_SLOWEST: Final = 1_000_000  # bytes in a second, on the slowest wire
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_LOOK: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A step of a search takes a fraction of this; nobody waits for one that does not.
_SEARCH: Final = f"{_LOOK}; SET LOCAL statement_timeout = 5000"
_SOON: Final = "; SET LOCAL synchronous_commit = off"
_LOCALLY: Final = "".join(
    f"; SET LOCAL {name} = {value}"
    for name, value in SETTINGS.items()
    if not name.startswith("default_")
)


class Again(Exception):
    """Somebody else was faster: look again, in a new transaction."""


def limit_for(size: int = 0) -> float:
    """Return the seconds that something short may take which carries `size` bytes."""
    return _SHORT + size / _SLOWEST


class Database:
    """
    One PostgreSQL database, for one event loop.

    Whatever is asked for has a deadline as a whole, `within` seconds from the start,
    with the time it waits for a connection. One that is not met is Unavailable, and
    ends the connection: nobody else comes upon half an answer.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.group_limit = GroupLimit()
        self._pid = os.getpid()
        self.sealing = Sealing()  # given its keys once the office is open
        self._pool = Pool(
            lambda: connect(address, sealing=self.sealing), size=address.pool
        )
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
        await self._pool.close()

    def reconnect(self) -> None:
        """Give up all connections that are not in use."""
        self._pool.drop()

    async def fetch(self, sql: str, *values: Any, within: float = _SHORT) -> Rows:
        """Run one statement by itself; returns once what it did is durable."""
        if self.address.pgbouncer:
            return await self.write(lambda c: c.fetch(sql, *values), within=within)
        return await self.start(self._limited(lambda c: c.fetch(sql, *values), within))

    async def write(
        self, work: Work[T], *, durable: bool = True, within: float = LONGEST
    ) -> T:
        """
        Do it in a transaction, again if others were in the way.

        Returns once it is durable, or will be with whatever is written next.
        """
        begin = _BEGIN if durable else _BEGIN + _SOON
        transaction = partial(self._transact, work=work, begin=begin)
        return await self.start(self._limited(transaction, within))

    async def read(self, work: Work[T], *, within: float = LONGEST) -> T:
        """Do it on a snapshot of what has been committed."""
        transaction = partial(self._transact, work=work, begin=_LOOK)
        return await self.start(self._limited(transaction, within))

    async def search(self, work: Work[T]) -> T:
        """Do it like `read`; it changes nothing, so it ends with the wait for it."""
        task = self._begun(self._tried(lambda c: self._transact(c, work, _SEARCH)))
        return await task

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

    async def _limited(self, work: Work[T], within: float) -> T:
        """Do it in time, or not: then the connection is gone as well."""
        deadline = asyncio.timeout(within)
        try:
            async with deadline:
                return await self._tried(work)
        except TimeoutError as error:
            self._pool.drop()  # the others lead to where this one led
            raise Unavailable(
                f"PostgreSQL at {self.address.shown}: no answer within {within:g} s"
            ) from error

    async def _tried(self, work: Work[T]) -> T:
        for tries in range(_TRIES):
            try:
                return await self._once(work)
            except (Again, asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                # The jitter guards nothing, it only keeps processes out of step.
                await asyncio.sleep(0.002 * tries * random.random())  # noqa: S311 -- not a secret
        raise Unavailable(
            f"PostgreSQL at {self.address.shown}: others were in the way {_TRIES} times"
        )

    async def _once(self, work: Work[T]) -> T:
        try:
            async with self._pool.connection() as connection:
                return await work(connection)
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            raise
        except Exception as error:
            if not is_theirs(error):
                raise
            if is_broken(error):
                self._pool.drop()
            raise self._told(error) from error

    async def _transact(self, connection: Connection, work: Work[T], begin: str) -> T:
        settings = _LOCALLY if self.address.pgbouncer else ""
        await connection.execute(begin + settings)
        try:
            result = await work(connection)
        except (asyncpg.PostgresError, DeadLetterError, Again) as error:
            # After anything else the connection is given up, and this with it.
            if not connection.is_closed() and not is_broken(error):
                await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")
        return result

    def _told(self, error: BaseException) -> DeadLetterError:
        return while_running(explained(error, self.address.shown))

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ConfigError(
                "this engine was opened before a fork and cannot be used in the child:"
                " open it again there, after the fork"
            )
        if self._closed:
            raise Unavailable("the engine is closed")
