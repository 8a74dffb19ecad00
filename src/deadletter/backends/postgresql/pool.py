"""Connections to the server: few, opened when needed, replaced when broken."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import asyncpg

from deadletter.core.seals import PLAIN, Sealing

from .address import Address
from .errors import is_broken

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

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], *, size: int
    ) -> None:
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
