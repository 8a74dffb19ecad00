"""Connections for calls that block: each has one to itself. And a cluster's."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Protocol

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

PATIENCE: Final = 5.0  # seconds for an answer


class Caller(Protocol):
    """Whoever can run a command on the server."""

    loads: bool  # whether scripts can be loaded before they are run

    def has(self, name: str) -> bool:
        """Whether the server lists a connection of ours under this name."""

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command; raises the library's errors."""

    async def drop(self) -> None:
        """Give up the connections there are; the next call makes others."""

    async def close(self) -> None:
        """Close all connections."""


class Wires:
    """
    Connections to one server: one for each call that is under way.

    A call with a `name` gets a connection that the server lists under that name.
    """

    loads = True

    def __init__(self, kind: type[AbstractConnection], options: dict[str, Any]) -> None:
        self._kind = kind
        self._options = options
        self._free: dict[str, list[AbstractConnection]] = {}
        self._used: set[AbstractConnection] = set()
        self._closed = False

    def has(self, name: str) -> bool:
        """Whether the server lists one of these connections under this name."""
        return bool(self._free.get(name)) or any(
            wire.client_name == name for wire in self._used
        )

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command on a connection that nobody uses."""
        if self._closed:
            raise ConnectionError("the engine is closed")
        free = self._free.setdefault(name, [])
        wire = free.pop() if free else self._made(name)
        self._used.add(wire)
        try:
            async with asyncio.timeout(within):
                await wire.send_packed_command(pack_command(tuple(words)))
                said = await wire.read_response()
        except asyncio.CancelledError:
            await _disconnect(wire)  # an answer may still come, for nobody
            raise
        except Exception:
            # The server went away, or is not what it was: so for all the others.
            await self._drop(wire)
            raise
        finally:
            self._used.discard(wire)
        self._free.setdefault(name, []).append(wire)
        return said

    def _made(self, name: str) -> AbstractConnection:
        options = {**self._options, "client_name": name} if name else self._options
        return self._kind(**options)

    async def drop(self) -> None:
        """Give up all connections, even those that somebody waits on."""
        await self._drop(*self._used)

    async def close(self) -> None:
        """Close all connections, even those that somebody waits on."""
        self._closed = True
        await self._drop(*self._used)

    async def _drop(self, *wires: AbstractConnection) -> None:
        free, self._free = self._free, {}
        for wire in (*wires, *chain.from_iterable(free.values())):
            await _disconnect(wire)


class Cluster:
    """All nodes of a cluster: the library knows which one to ask."""

    loads = False  # to which of them, it would have to be told

    def __init__(self, client: Any) -> None:
        self._client = client

    def has(self, name: str) -> bool:
        """Say yes: nobody looks for names there."""
        return True

    async def execute(
        self, words: Sequence[Any], *, within: float = PATIENCE, name: str = ""
    ) -> Any:
        """Run one command on the node that has its keys."""
        # Cut short, it would have to drop a connection that others use as well.
        asking = asyncio.ensure_future(self._client.execute_command(*words))
        asking.add_done_callback(_looked_at)
        async with asyncio.timeout(within):
            return await asyncio.shield(asking)

    async def drop(self) -> None:
        """Leave it to the library, which has its own idea of its connections."""

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _looked_at(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()  # those who wait for it get it all the same


async def _disconnect(wire: AbstractConnection) -> None:
    with suppress(RedisError, OSError):  # it is gone anyway
        await wire.disconnect(nowait=True)
