"""
Connections to a Redis server: a shared one, blocking ones, and those of a cluster.

The client library connects, encrypts and logs in.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Protocol

from hiredis import Reader, pack_command
from redis.asyncio.connection import AbstractConnection
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import ReadOnlyError, RedisError

PATIENCE: Final = 5.0  # seconds for an answer


class Connections(Protocol):
    """Connections that commands are run on."""

    loads: bool  # whether scripts can be loaded before they are run

    def has(self, name: str) -> bool:
        """Return whether the server lists a connection of ours under this name."""

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command; raise the client library's errors."""

    async def drop(self) -> None:
        """Close the current connections; the next call opens others."""

    async def close(self) -> None:
        """Close all connections."""


class OpenConnection(asyncio.Protocol):
    """
    An open connection on which calls are pipelined.

    A caller writes at once and waits for its answer; answers come in the order of the
    calls. This is faster than the client library's own way, which costs more than the
    server's work. The answer of a cancelled call is dropped.
    """

    def __init__(self, connection: Any) -> None:
        self.lost = False
        self._connection = connection
        self._reader = Reader(replyError=DefaultParser.parse_error)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        writer = connection._writer  # noqa: SLF001 -- the library has no name for it
        self._transport: asyncio.WriteTransport = writer.transport
        self._transport.set_protocol(self)

    def ask(self, words: Sequence[Any]) -> "asyncio.Future[Any]":
        """Send a command; return a future of its answer."""
        answer = asyncio.get_running_loop().create_future()
        self._transport.write(pack_command(tuple(words)))
        self._waiting.append(answer)
        return answer

    def data_received(self, data: bytes) -> None:
        """Give answers to the calls that wait for them."""
        self._reader.feed(data)
        while (said := self._reader.gets()) is not False:
            answer = self._waiting.popleft()
            if answer.done():
                continue  # cancelled
            if isinstance(said, Exception):
                answer.set_exception(said)
            else:
                answer.set_result(said)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all calls that wait for an answer."""
        self.lost = True
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(Lost(f"the connection broke: {error or 'closed'}"))

    async def close(self) -> None:
        """Close the connection."""
        self.lost = True
        self._transport.abort()
        await self._connection.disconnect(nowait=True)


class SharedConnection:
    """One connection for all calls that do not block, opened again whenever it is lost."""

    loads = True

    def __init__(self, kind: type[AbstractConnection], options: dict[str, Any]) -> None:
        self._kind = kind
        self._options = options
        self._open: OpenConnection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    def has(self, name: str) -> bool:
        """Return True: this connection needs no name."""
        return True

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command."""
        current = self._open
        if current is None or current.lost:
            current = await self._connected()
        try:
            async with asyncio.timeout(within):
                return await current.ask(words)
        except (TimeoutError, ReadOnlyError):
            # A primary that became a replica stays one: connect again.
            await current.close()
            raise

    async def drop(self) -> None:
        """Close the connection; the next call opens another."""
        if self._open is not None:
            await self._open.close()

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        if self._open is not None:
            await self._open.close()

    async def _connected(self) -> OpenConnection:
        async with self._connecting:
            old = self._open
            if old is not None:
                if not old.lost:
                    return old  # opened by another call meanwhile
                await old.close()
            if self._closed:
                raise Lost("the engine is closed")
            connection: Any = self._kind(**self._options)
            try:
                async with asyncio.timeout(PATIENCE):
                    await connection.connect()
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            self._open = OpenConnection(connection)
            return self._open


class BlockingConnections:
    """
    Connections for calls that block: one for each call in progress.

    A call with a `name` gets a connection that the server lists under this name.
    """

    loads = True

    def __init__(self, kind: type[AbstractConnection], options: dict[str, Any]) -> None:
        self._kind = kind
        self._options = options
        self._free: dict[str, list[AbstractConnection]] = {}
        self._used: set[AbstractConnection] = set()
        self._closed = False

    def has(self, name: str) -> bool:
        """Return whether the server lists one of these connections under this name."""
        return bool(self._free.get(name)) or any(
            connection.client_name == name for connection in self._used
        )

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command on a free connection."""
        if self._closed:
            raise ConnectionError("the engine is closed")
        free = self._free.setdefault(name, [])
        connection = free.pop() if free else self._made(name)
        self._used.add(connection)
        try:
            async with asyncio.timeout(within):
                await connection.send_packed_command(pack_command(tuple(words)))
                said = await connection.read_response()
        except asyncio.CancelledError:
            await _disconnect(connection)  # its answer may still come
            raise
        except Exception:
            # The server went away or changed its role: the other connections are lost, too.
            await self._drop(connection)
            raise
        finally:
            self._used.discard(connection)
        self._free.setdefault(name, []).append(connection)
        return said

    def _made(self, name: str) -> AbstractConnection:
        options = {**self._options, "client_name": name} if name else self._options
        return self._kind(**options)

    async def drop(self) -> None:
        """Close all connections, also those with a call in progress; later calls open others."""
        await self._drop(*self._used)

    async def close(self) -> None:
        """Close all connections, also those with a call in progress."""
        self._closed = True
        await self._drop(*self._used)

    async def _drop(self, *connections: AbstractConnection) -> None:
        free, self._free = self._free, {}
        for connection in (*connections, *chain.from_iterable(free.values())):
            await _disconnect(connection)


class ClusterConnections:
    """Connections to all nodes of a cluster; the client library chooses the node."""

    loads = False  # a script would have to be loaded on every node

    def __init__(self, client: Any) -> None:
        self._client = client

    def has(self, name: str) -> bool:
        """Return True: names are not used in a cluster."""
        return True

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command on the node that has its keys."""
        # Cancelling it would close a connection that other calls use as well.
        asking = asyncio.ensure_future(self._client.execute_command(*words))
        asking.add_done_callback(_looked_at)
        async with asyncio.timeout(within):
            return await asyncio.shield(asking)

    async def drop(self) -> None:
        """Do nothing: the client library manages its connections."""

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _looked_at(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()  # marked as seen: those who wait for it get it all the same


async def _disconnect(connection: AbstractConnection) -> None:
    with suppress(RedisError, OSError):  # it may be closed already
        await connection.disconnect(nowait=True)
