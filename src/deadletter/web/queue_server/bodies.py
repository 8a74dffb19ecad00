"""Bodies of requests: taken in as they come, up to what is allowed."""

from collections.abc import Mapping
from typing import Final

from litestar.types import Receive

from deadletter.core.errors import ConfigError

from .limits import MEGA

SPARED: Final = 72 * MEGA  # of a body nobody wants: read on, so that the reply arrives


class ClientGone(Exception):
    """Nobody is there any more who could be answered."""


class Body:
    """What a client sends; never more of it in memory than allowed."""

    def __init__(self, headers: Mapping[bytes, str], receive: Receive) -> None:
        said = headers.get(b"content-length", "")
        self._said = int(said) if said.isdecimal() else 0
        self._receive = receive
        self._is_whole = False

    async def read(self, limit: int) -> bytes:
        """All of it; one that is too long is refused before it is all here."""
        if self._said > limit:
            raise _too_long(limit)
        parts: list[bytes] = []
        size = 0
        while not self._is_whole:
            parts.append(await self._next())
            size += len(parts[-1])
            if size > limit:
                raise _too_long(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def spent(self) -> bool:
        """
        Let the rest go by; False if there is so much that one had better hang up.

        A client that still sends does not hear us.
        """
        left = SPARED
        while not self._is_whole and self._said <= SPARED and left > 0:
            left -= len(await self._next())
        return self._is_whole

    async def hung_up(self) -> None:
        """Wait until the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientGone
        self._is_whole = not message.get("more_body", False)
        return message.get("body", b"")


def _too_long(limit: int) -> ConfigError:
    return ConfigError(f"request body is too long; it exceeds {limit:,} bytes")
