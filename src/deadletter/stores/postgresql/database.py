"""The database: connections, statements, transactions, retries and notifications."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import asyncpg

from deadletter.core.errors import DeadLetterError, Unavailable
from deadletter.core.grouping import GroupLimit
from deadletter.core.seals import PLAIN, Sealing
from deadletter.kit import EngineTasks

from .address import Address, is_broken, is_foreign, running_error

# Connections to the server: few, opened when needed, replaced when broken.

Connection: TypeAlias = asyncpg.Connection


class OfficeConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection with the keys that seal letters and the audit."""

    sealing: Sealing = PLAIN
    office_key: bytes | None = None  # of the office's sums, as far as we know


def sealing_of(connection: Connection) -> Sealing:
    """Return the keys that seal letters and the audit on this connection."""
    # isinstance does not tell: asyncpg says that every connection is of every class.
    sealing: Sealing = getattr(connection, "sealing", PLAIN)
    return sealing


_PATIENCE: Final = 10.0  # seconds for a connection to be made
_FAREWELL: Final = 2.0  # seconds for a connection to be closed properly
LONGEST: Final = 60.0  # seconds for a statement

# Plans are cached, and still used when an empty queue has grown to a million messages:
# they must always use the indexes. For the same reason messages are found by `= ANY` of
# a list instead of a join with it: then no plan reads more rows, however wrong its
# estimates are. JIT compilation and further processes would take longer than the statements.
SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "random_page_cost": "1.1",  # most pages are in memory
}


async def connect(
    address: Address, dsn: str | None = None, *, sealing: Sealing = PLAIN
) -> Connection:
    """Connect to the server, or to another `dsn`."""
    settings = {"application_name": "deadletter"}
    connection = await asyncpg.connect(
        dsn or address.dsn,
        timeout=_PATIENCE,
        command_timeout=LONGEST,
        # Behind pgbouncer a prepared statement may belong to another session, and
        # settings are rejected.
        statement_cache_size=0 if address.pgbouncer else 200,
        max_cached_statement_lifetime=0,
        server_settings=settings if address.pgbouncer else settings | SETTINGS,
        connection_class=OfficeConnection,
    )
    connection.sealing = sealing
    return connection


class Pool:
    """Up to `size` connections; further callers wait for one."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, size: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection to the caller alone."""
        async with self._slots:
            connection = await self._get()
            try:
                yield connection
            except BaseException as error:
                # The state of the connection is unknown.
                if is_broken(error) or connection.is_in_transaction():
                    connection.terminate()
                else:
                    self._idle.append(connection)
                raise
            self._idle.append(connection)

    def drop(self) -> None:
        """Terminate all idle connections: their server is gone."""
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        """Close all idle connections properly."""
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
_SHORT: Final = 10.0  # seconds for what takes milliseconds, with waiting and retries
_SLOWEST: Final = 1_000_000  # bytes per second, on the slowest network
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A step of a search usually takes a fraction of this timeout. Its letters are looked up one
# by one: other joins would read all letters of the office for those of a step.
_SEARCH: Final = (
    f"{_SNAPSHOT}; SET LOCAL statement_timeout = 5000"
    "; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
)
_SOON: Final = "; SET LOCAL synchronous_commit = off"
_LOCALLY: Final = "".join(
    f"; SET LOCAL {name} = {value}"
    for name, value in SETTINGS.items()
    if not name.startswith("default_")
)


class SerializationFailure(Exception):
    """Another writer was faster: run the transaction again."""


def limit_for(size: int = 0) -> float:
    """Return the timeout of a short call that carries `size` bytes, in seconds."""
    return _SHORT + size / _SLOWEST


class Database:
    """
    One PostgreSQL database, for one event loop.

    Every call has a deadline: `within` seconds, including the wait for a connection. A
    call that misses it raises Unavailable, and its connection is closed, so that nobody
    else reads half an answer. Calls run to their end, see `EngineTasks`.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.group_limit = GroupLimit()
        self.sealing = Sealing()  # gets its keys once the office is open
        self._pool = Pool(lambda: connect(address, sealing=self.sealing), size=address.pool)
        self._tasks = EngineTasks()
        self.start = self._tasks.run_to_end

    async def close(self) -> None:
        """Finish the calls that are in progress and close all connections. Idempotent."""
        await self._tasks.close(_SHORT)
        await self._pool.close()

    def reconnect(self) -> None:
        """Terminate all connections that are not in use."""
        self._pool.drop()

    async def fetch(self, sql: str, *values: Any, within: float = _SHORT) -> Rows:
        """Run one statement by itself; return once its changes are durable."""
        if self.address.pgbouncer:
            return await self.write(lambda c: c.fetch(sql, *values), within=within)
        return await self.start(self._limited(lambda c: c.fetch(sql, *values), within))

    async def write(self, work: Work[T], *, durable: bool = True, within: float = LONGEST) -> T:
        """
        Run `work` in a transaction, again if others were in the way.

        Returns once it is durable. Unless `durable`, that is with the next durable write.
        """
        begin = _BEGIN if durable else _BEGIN + _SOON
        transaction = partial(self._transact, work=work, begin=begin)
        return await self.start(self._limited(transaction, within))

    async def read(self, work: Work[T], *, within: float = LONGEST) -> T:
        """Run `work` on a snapshot of what has been committed."""
        transaction = partial(self._transact, work=work, begin=_SNAPSHOT)
        return await self.start(self._limited(transaction, within))

    async def search(self, work: Work[T]) -> T:
        """Run `work` like `read` does; it ends when the caller stops waiting."""
        return await self._tasks.run(self._retried(lambda c: self._transact(c, work, _SEARCH)))

    async def _limited(self, work: Work[T], within: float) -> T:
        """Run `work` with a deadline; a connection that misses it is closed."""
        deadline = asyncio.timeout(within)
        try:
            async with deadline:
                return await self._retried(work)
        except TimeoutError as error:
            self._pool.drop()  # the other connections lead to the same server
            raise Unavailable(f"{self.address.name}: no answer within {within:g} s") from error

    async def _retried(self, work: Work[T]) -> T:
        for tries in range(_TRIES):
            try:
                return await self._once(work)
            except (
                SerializationFailure,
                asyncpg.DeadlockDetectedError,
                asyncpg.SerializationError,
            ):
                # The jitter keeps processes out of step.
                await asyncio.sleep(0.002 * tries * random.random())  # noqa: S311 -- not a secret
        raise Unavailable(
            f"{self.address.name}: others were in the way {_TRIES} times: try again later"
        )

    async def _once(self, work: Work[T]) -> T:
        try:
            async with self._pool.connection() as connection:
                return await work(connection)
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            raise
        except Exception as error:
            if not is_foreign(error):
                raise
            if is_broken(error):
                self._pool.drop()
            raise running_error(error, self.address) from error

    async def _transact(self, connection: Connection, work: Work[T], begin: str) -> T:
        settings = _LOCALLY if self.address.pgbouncer else ""
        await connection.execute(begin + settings)
        try:
            result = await work(connection)
        except (asyncpg.PostgresError, DeadLetterError, SerializationFailure) as error:
            # After any other error the connection is closed, and the transaction with it.
            if not connection.is_closed() and not is_broken(error):
                await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")
        return result


# Notifications.

Listen: TypeAlias = Callable[[], Awaitable[Connection]]

LOOK: Final = 2.0  # seconds between two polls while we get notifications
LOOK_OFTEN: Final = 0.2  # ...and while we get none
ITEMS: Final = "items:"  # before the name of a lease queue
_PAUSE: Final = 1.0  # seconds until the next attempt to listen


class Waking:
    """
    Wakes the receivers of this process that wait for a message.

    Senders of this process ring at once. Other processes notify one connection that
    listens. Since it may break without notice, receivers also poll from time to time.
    """

    def __init__(self, listen: Listen | None) -> None:
        self._listen = listen
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._items: Callable[[str | None], None] | None = None
        self._is_notified = False
        self._task: asyncio.Task[None] | None = None

    @property
    def patience(self) -> float:
        """Seconds to wait before the next poll."""
        return LOOK if self._is_notified else LOOK_OFTEN

    @contextmanager
    def bell(self, mailbox: int) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the mailbox may have a new message."""
        self._start()
        bell = asyncio.Event()
        self._waiting[mailbox].add(bell)
        try:
            yield bell
        finally:
            self._waiting[mailbox].discard(bell)

    def ring(self, mailbox: int) -> None:
        """Wake the receivers of a mailbox."""
        for bell in self._waiting.get(mailbox, ()):
            bell.set()

    def listen_for_items(self, tell: Callable[[str | None], None]) -> None:
        """
        Call `tell` with the names of lease queues that have new items.

        None stands for any queue: a notification may have been missed.
        """
        self._items = tell
        self._start()

    async def stop(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _start(self) -> None:
        if self._listen is not None and self._task is None:
            self._task = asyncio.create_task(self._keep_listening(self._listen))

    async def _keep_listening(self, listen: Listen) -> None:
        while True:
            with suppress(Exception):  # receivers poll meanwhile
                await self._listen_once(await listen())
            self._is_notified = False
            await asyncio.sleep(_PAUSE)

    async def _listen_once(self, connection: Connection) -> None:
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        try:
            await connection.add_listener("deadletter", self._notified)
            self._is_notified = True
            for bells in self._waiting.values():  # for messages sent before we listened
                for bell in bells:
                    bell.set()
            if self._items is not None:
                self._items(None)
            await gone.wait()
        finally:
            connection.terminate()

    def _notified(self, *heard: Any) -> None:
        payload = heard[-1]
        if payload.isascii() and payload.isdigit():
            self.ring(int(payload))
        elif self._items is not None and payload.startswith(ITEMS):
            self._items(payload.removeprefix(ITEMS))
