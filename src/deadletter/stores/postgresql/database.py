"""
The database, seen from an event loop: statements, transactions, second tries.

What was asked for runs to its end, whoever stops waiting for it: a statement
that is broken off may have been carried out or not, and nobody would know.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import asyncpg

from deadletter.core.errors import ConfigError, DeadLetterError, Unavailable
from deadletter.core.grouping import GroupLimit
from deadletter.core.seals import PLAIN, Sealing

from .address import Address, explained, is_broken, is_theirs, while_running

# Connections to the server: few, opened when needed, replaced when broken.

Connection: TypeAlias = asyncpg.Connection


class OfficeConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that knows what letters and the audit are sealed with."""

    sealing: Sealing = PLAIN
    office_key: bytes | None = None  # of the office's sums, as far as we know


def sealing_of(connection: Connection) -> Sealing:
    """What letters and the audit are sealed with on this connection."""
    # Not by its class: asyncpg takes all of its connections for instances of any.
    sealing: Sealing = getattr(connection, "sealing", PLAIN)
    return sealing


_PATIENCE: Final = 10.0  # seconds for a connection to be made
_FAREWELL: Final = 2.0  # seconds for a connection to be closed in good order
LONGEST: Final = 60.0  # seconds for a statement

# Plans are made once and used for long, also when a queue that was empty has a
# million messages: they must always go by the indexes. For the same reason messages
# are found by `= ANY` of a list, and not by a join with it: no plan, however wrong
# about the numbers, looks at more. Compiling would take longer than running.
SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "random_page_cost": "1.1",  # what we look for is mostly in memory
}


async def connect(
    address: Address, dsn: str | None = None, *, sealing: Sealing = PLAIN
) -> Connection:
    """One connection, to the server or to where the `dsn` says."""
    settings = {"application_name": "deadletter"}
    connection = await asyncpg.connect(
        dsn or address.dsn,
        timeout=_PATIENCE,
        command_timeout=LONGEST,
        # Behind pgbouncer a prepared statement may be another session's, and
        # settings are refused.
        statement_cache_size=0 if address.pgbouncer else 200,
        max_cached_statement_lifetime=0,
        server_settings=settings if address.pgbouncer else settings | SETTINGS,
        connection_class=OfficeConnection,
    )
    connection.sealing = sealing
    return connection


class Pool:
    """Up to `size` connections; whoever needs one more waits for it."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, size: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of one's own, for a while."""
        async with self._slots:
            connection = await self._get()
            try:
                yield connection
            except BaseException as error:
                # Where it stands now is not worth finding out.
                if is_broken(error) or connection.is_in_transaction():
                    connection.terminate()
                else:
                    self._idle.append(connection)
                raise
            self._idle.append(connection)

    def drop(self) -> None:
        """Forget all idle connections: the server they led to is gone."""
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        """Say good-bye on all idle connections, to whoever still listens."""
        idle, self._idle = self._idle, []
        leaving = (connection.close(timeout=_FAREWELL) for connection in idle)
        await asyncio.gather(*leaving, return_exceptions=True)

    async def _get(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()


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
        self._pool = Pool(lambda: connect(address, sealing=self.sealing), size=address.pool)
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

    async def write(self, work: Work[T], *, durable: bool = True, within: float = LONGEST) -> T:
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
