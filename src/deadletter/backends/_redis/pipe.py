"""
One connection for all calls that do not block.

The library connects, encrypts and logs in; then we talk ourselves: whoever calls
writes at once and waits for his answer, and answers come in the order of the calls.
The library's own way costs more than the server's work. A call that is cancelled
does no harm either: its answer comes all the same, and is for nobody.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from hiredis import Reader, pack_command
from redis.asyncio.connection import AbstractConnection
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import ReadOnlyError

from .wires import PATIENCE


class Wire(asyncio.Protocol):
    """A connection that is open, until it is lost."""

    def __init__(self, connection: Any) -> None:
        self.lost = False
        self._connection = connection
        self._reader = Reader(replyError=DefaultParser.parse_error)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        writer = connection._writer  # noqa: SLF001 -- the library has no name for it
        self._transport: asyncio.WriteTransport = writer.transport
        self._transport.set_protocol(self)

    def ask(self, words: Sequence[Any]) -> "asyncio.Future[Any]":
        """Send a command; its answer, when it comes."""
        answer = asyncio.get_running_loop().create_future()
        self._transport.write(pack_command(tuple(words)))
        self._waiting.append(answer)
        return answer

    def data_received(self, data: bytes) -> None:
        """Hand out what was answered."""
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
        """Nobody who waits will get an answer."""
        self.lost = True
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(Lost(f"the connection broke: {error or 'closed'}"))

    async def close(self) -> None:
        """Let go of the connection."""
        self.lost = True
        self._transport.abort()
        await self._connection.disconnect(nowait=True)


class Pipe:
    """The connection, made when needed and whenever it was lost."""

    loads = True

    def __init__(self, kind: type[AbstractConnection], options: dict[str, Any]) -> None:
        self._kind = kind
        self._options = options
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    def has(self, name: str) -> bool:
        """Say yes: this connection has no name, and needs none."""
        return True

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command."""
        wire = self._wire
        if wire is None or wire.lost:
            wire = await self._connected()
        try:
            async with asyncio.timeout(within):
                return await wire.ask(words)
        except (TimeoutError, ReadOnlyError):
            # A primary that became a replica stays one: look it up anew.
            await wire.close()
            raise

    async def drop(self) -> None:
        """Give up the connection; the next call makes another."""
        if self._wire is not None:
            await self._wire.close()

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        if self._wire is not None:
            await self._wire.close()

    async def _connected(self) -> Wire:
        async with self._connecting:
            old = self._wire
            if old is not None:
                if not old.lost:
                    return old  # somebody else was faster
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
            self._wire = Wire(connection)
            return self._wire
