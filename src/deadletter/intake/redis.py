"""
Frameworks on Redis: the places where they put their dead, and the way back.

A place is named `kind:queue`: `celery:dead`, `dramatiq:default`, `rq:default`,
`bullmq:mail`. Reading takes nothing away: what is kept is taken off its shelf then.
"""

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from redis import exceptions as theirs
from redis.asyncio import Redis

from deadletter.core.dialects import Found, origin_of
from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    Refused,
    Unavailable,
)
from deadletter.core.message import Message
from deadletter.ports import Clock
from deadletter.tls import disagreement

from .addresses import redis_address
from .shelves import SHELVES, Shelf

_POLL: Final = 0.5  # seconds between looks
_KNOWN: Final = (theirs.RedisError, OSError)


async def open_redis(url: str, *, clock: Clock) -> "Frameworks":
    """The server that a URL names."""
    address, where = redis_address(url)
    try:
        client: Any = Redis.from_url(address, decode_responses=False)
    except ValueError as error:
        raise ConfigError(f"this Redis URL cannot be read: {error}") from error
    try:
        with _translated(where):
            await client.ping()
    except BaseException:
        await client.aclose()
        raise
    return Frameworks(client)


class Frameworks:
    """All that frameworks have put on one server."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def places(self) -> Sequence[str]:
        """Every shelf that can be told by its key."""
        found: set[str] = set()
        with _translated():
            for kind, shelf in SHELVES.items():
                if not shelf.pattern:
                    continue
                async for key in self._client.scan_iter(
                    match=shelf.pattern, count=1000, _type="zset"
                ):
                    queue = shelf.queue_of(key.decode("utf-8", "replace"))
                    found.add(f"{kind}:{queue}")
        return sorted(found)

    def drain(self, place: str) -> "RedisDrain":
        """The way to a shelf."""
        kind, _, queue = place.partition(":")
        if kind not in SHELVES or not queue:
            known = ", ".join(f"{name}:QUEUE" for name in SHELVES)
            raise ConfigError(f"say which framework {place!r} is of, as one of {known}")
        return RedisDrain(self._client, SHELVES[kind], place, queue)

    def sink(self, mailbox: str) -> "RedisSink":
        """The way back to a queue."""
        return RedisSink(self._client, mailbox)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()


class RedisDrain:
    """One shelf, read as it is."""

    def __init__(self, client: Any, shelf: Shelf, place: str, queue: str) -> None:
        self.place = place
        self._client = client
        self._shelf = shelf
        self._queue = queue
        self._held: set[bytes] = set()

    async def depth(self) -> int:
        """How many lie there."""
        with _translated():
            return await self._shelf.depth(self._client, self._queue)

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Up to `limit` that were not taken yet; they stay until forgotten."""
        while True:
            with _translated():
                found = await self._shelf.read(
                    self._client, self._queue, limit, self._held
                )
            if found or wait <= 0:
                break
            await asyncio.sleep(min(_POLL, wait))
            wait -= _POLL
        self._held.update(one.receipt for one in found)
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Take them off the shelf."""
        receipts = [one.receipt for one in found]
        if receipts:
            with _translated():
                await self._shelf.forget(self._client, self._queue, receipts)
            self._held.difference_update(receipts)

    async def hand_back(self, found: Sequence[Found]) -> None:
        """They never left."""
        self._held.difference_update(one.receipt for one in found)

    async def close(self) -> None:
        """Nothing is held that is not there."""


class RedisSink:
    """The way back to a queue, whatever framework's it is."""

    def __init__(self, client: Any, mailbox: str) -> None:
        self.mailbox = mailbox
        self._client = client

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Give them to their workers again, each as its framework does it."""
        for message in messages:
            origin = origin_of(message)
            shelf = SHELVES.get(origin.kind) if origin is not None else None
            if shelf is None or origin is None:
                raise Refused(f"message {message.id} was not found on such a server")
            with _translated():
                await shelf.put_back(self._client, self.mailbox, message, origin)


@contextmanager
def _translated(where: str = "Redis") -> Iterator[None]:
    """What the client raises, in our words."""
    try:
        yield
    except _KNOWN as error:
        raise _ours(error, where) from error


def _ours(error: Exception, where: str) -> DeadLetterError:
    text = str(error) or type(error).__name__
    if isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        ours = "?ssl_certfile= and ?ssl_keyfile="
        return disagreement(where, "?ssl_ca_certs=", ours, text)
    match error:
        case theirs.AuthenticationError() | theirs.AuthorizationError():
            return ConfigError(
                f"the server refuses us: put the right password into the URL ({text})"
            )
        case theirs.NoPermissionError():
            return ConfigError(f"our user may not do this: {text}")
        case theirs.ResponseError() if "WRONGTYPE" in text:
            return ConfigError(f"this is no queue of that framework: {text}")
        case theirs.ResponseError() if "NOAUTH" in text:
            return ConfigError(f"the server wants a password in the URL: {text}")
        case theirs.ConnectionError() | theirs.TimeoutError() | OSError():
            return Unavailable(
                f"no answer from {where}: is Redis running, and is the URL right? "
                f"({text})"
            )
        case theirs.ResponseError():
            return Refused(f"Redis refuses: {text}")
    return Unavailable(f"Redis cannot do this now: {text}")
