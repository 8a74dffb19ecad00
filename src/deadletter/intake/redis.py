"""
Frameworks on Redis: the places where they put their dead, and the way back.

A place is named `kind:queue`: `celery:dead`, `dramatiq:default`, `rq:default`,
`bullmq:mail`. Reading takes nothing away: what is kept is taken off its shelf then.
"""

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final

from redis import exceptions as theirs
from redis.asyncio import Redis

from deadletter.core.dialects import Found, Origin, origin_of
from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.core.message import Message
from deadletter.ports import Clock, CopyState, SentCopy
from deadletter.tls import disagreement

from .addresses import redis_address, split_results
from .sending import send_in_turn
from .shelves import SHELVES, BullMQ, Celery, Probe, Shelf

_POLL: Final = 0.5  # seconds between looks
_NEAR: Final = 5  # names that an error suggests
_KNOWN: Final = (theirs.RedisError, OSError)


async def open_redis(url: str, *, clock: Clock) -> "Frameworks":
    """Connect to the server that a URL names, and to Celery's results if it does."""
    url, results = split_results(url)
    client = await _connected(url)
    if not results:
        return Frameworks(client)
    try:
        return Frameworks(client, results=await _connected(results))
    except BaseException:
        await client.aclose()
        raise


async def _connected(url: str) -> Any:
    address, where = redis_address(url)
    try:
        client: Any = Redis.from_url(address, decode_responses=False)
    except ValueError as error:
        raise ConfigError(f"this Redis URL is malformed: {error}") from error
    try:
        with _translated(where):
            await client.ping()
    except TypeError as error:  # what the client does not know as an option
        await client.aclose()
        name = str(error).rpartition(" ")[2]
        raise ConfigError(
            f"the Redis URL has an unknown parameter, {name}: remove it, or see which"
            " there are in docs/intake.md"
        ) from error
    except BaseException:
        await client.aclose()
        raise
    return client


class Frameworks:
    """All that frameworks have put on one server."""

    def __init__(
        self, client: Any, shelves: Mapping[str, Shelf] = SHELVES, results: Any = None
    ) -> None:
        self._client = client
        self._results = results
        self.shelves: dict[str, Shelf] = {**shelves, "celery": Celery(results)}

    async def places(self) -> Sequence[str]:
        """Every shelf that can be told by its key."""
        found: set[str] = set()
        with _translated():
            for kind, shelf in self.shelves.items():
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
        return RedisDrain(self._client, self.shelves[kind], place, queue)

    def sink(self, mailbox: str) -> "RedisSink":
        """The way back to a queue."""
        return RedisSink(self._client, mailbox, self.shelves)

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """Return what the frameworks say of copies, as far as they say anything."""
        with _translated():
            return [await self._state(copy) for copy in copies]

    async def _state(self, copy: SentCopy) -> CopyState:
        origin = origin_of(copy.message)
        shelf = self.shelves.get(origin.kind) if origin is not None else None
        if origin is None or not isinstance(shelf, Probe):
            return CopyState.UNKNOWN
        queue, message = _queue(copy.mailbox, origin), copy.message
        return await shelf.state_of(self._client, queue, message, origin, copy.sent_at)

    async def ids_in_use(
        self, messages: Sequence[tuple[str, Message]]
    ) -> Sequence[bool]:
        """Return which jobs of BullMQ have an id that another job has by now."""
        shelf = self.shelves["bullmq"]
        assert isinstance(shelf, BullMQ)
        origins = [origin_of(message) for _, message in messages]
        jobs = {
            place: (queue.removeprefix("bullmq:"), message, origin)
            for place, ((queue, message), origin) in enumerate(
                zip(messages, origins, strict=True)
            )
            if origin is not None and origin.kind == "bullmq"
        }
        with _translated():
            found = await shelf.ids_in_use(self._client, list(jobs.values()))
        in_use = dict(zip(jobs, found, strict=True))
        return [in_use.get(place, False) for place in range(len(messages))]

    def with_new_ids(self) -> "Frameworks":
        """Return the same server, where a job whose id is in use gets a new one."""
        shelves = {**self.shelves, "bullmq": BullMQ(new_ids=True)}
        return Frameworks(self._client, shelves, self._results)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()
        if self._results is not None:
            await self._results.aclose()


class RedisDrain:
    """One shelf, read as it is."""

    def __init__(self, client: Any, shelf: Shelf, place: str, queue: str) -> None:
        self.place = place
        self._client = client
        self._shelf = shelf
        self._queue = queue
        self._held: set[bytes] = set()

    async def depth(self) -> int:
        """How many lie there; NotFound if there is no such queue, with near names."""
        with _translated():
            depth = await self._shelf.depth(self._client, self._queue)
            if not depth:
                await self._check_name()
        return depth

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

    async def _check_name(self) -> None:
        known = await self._shelf.queues(self._client)
        if self._queue in known:
            return
        near = get_close_matches(self._queue, known, n=_NEAR)
        # Where empty queues leave nothing behind, an unlikely name may be one.
        if near or self._shelf.keeps_names:
            kind = self.place.partition(":")[0]
            names = [f"{kind}:{name}" for name in near or sorted(known)[:_NEAR]]
            hint = f"did you mean {' or '.join(names)}?" if names else ""
            raise NotFound(f"there is no {self.place!a} on this server. {hint}".strip())


class RedisSink:
    """The way back to a queue, whatever framework's it is."""

    def __init__(
        self, client: Any, mailbox: str, shelves: Mapping[str, Shelf] = SHELVES
    ) -> None:
        self.mailbox = mailbox
        self._client = client
        self._shelves = shelves

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Give them to their workers again, each as its framework does it."""
        await send_in_turn(messages, self._put_back)

    async def _put_back(self, message: Message) -> None:
        origin = origin_of(message)
        shelf = self._shelves.get(origin.kind) if origin is not None else None
        if shelf is None or origin is None:
            raise Refused(f"message {message.id} was not found on such a server")
        with _translated():
            queue = _queue(self.mailbox, origin)
            await shelf.put_back(self._client, queue, message, origin)


def _queue(mailbox: str, origin: Origin) -> str:
    """The queue of a mailbox, which may be named like a place: `rq:default`."""
    return mailbox.removeprefix(f"{origin.kind}:")


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
