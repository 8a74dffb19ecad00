"""A way to a broker that outlives its connections."""

import asyncio

from .address import Address
from .connection import Connection, connect
from .errors import Closed, Gone


class Line:
    """One connection after the other: opened when needed, again when broken."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    async def connection(self) -> Connection:
        """The one there is, or a new one; raises Closed or OSError."""
        async with self._lock:
            if self._closed:
                raise Closed(0, "we closed it ourselves")
            if self._connection is None or self._connection.ended is not None:
                self._connection = await connect(self._address)
            return self._connection

    def end(self) -> None:
        """Give up the connection there is; the next who needs one opens another."""
        if self._connection is not None:
            self._connection.end(Gone("it was given up"))

    async def close(self) -> None:
        """Say good-bye; there will be no other."""
        self._closed = True
        if self._connection is not None:
            await self._connection.close()
