"""
Drain of frameworks on Redis: their failed jobs, and the way back to their queues.

A place is named `kind:queue`: `celery:dead`, `dramatiq:default`, `rq:default`,
`bullmq:mail`. Reading removes nothing: a job is removed from its queue after it was kept.
"""

import asyncio
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from msgspec.structs import replace

from deadletter.brokers.redis_common.address import (
    ERRORS,
    Address,
    address_of,
    opening_error,
    url_form,
)
from deadletter.brokers.redis_common.server import client_of
from deadletter.core.errors import ConfigError, NotFound, Refused
from deadletter.core.message import Message
from deadletter.intake.dialects import Found, Origin, origin_of
from deadletter.kit import send_in_turn
from deadletter.ports import Clock, CopyState, SentCopy

from .engine import Options
from .frameworks import FRAMEWORKS, BullMQ, Celery, Framework, Probe

_POLL: Final = 0.5  # seconds between looks
_NEAR: Final = 5  # names that an error suggests
_ERRORS: Final = ERRORS.extended(
    {"WRONGTYPE": (ConfigError, "this key is not a queue of that framework")}
)


class DrainOptions(Options, frozen=True, kw_only=True):
    """Parameters of the URLs."""

    results: str | None = None  # where Celery's results are: a database, or another URL


URL: Final = url_form("Redis", DrainOptions, "redis", "valkey")


async def open_redis(url: str, *, clock: Clock) -> "Frameworks":
    """Connect to the server that a URL names, and to Celery's results if it does."""
    said = URL.read(url)
    address = address_of(said)
    results = _results(address, said.options.results)
    client = await _connected(address)
    if results is None:
        return Frameworks(client)
    try:
        return Frameworks(client, results=await _connected(results))
    except BaseException:
        await client.aclose()
        raise


def _results(address: Address, named: str | None) -> Address | None:
    """Return where Celery's results are: a database of the same server, or another."""
    if named is None:
        return None
    if named.isdecimal():
        return replace(address, options={**address.options, "db": int(named)})
    if "://" in named:
        return address_of(URL.read(named))
    raise ConfigError(
        f"results in the Redis URL must be the number of a database, or a percent-encoded"
        f" Redis URL, got {named.rpartition('@')[2][:40]!a}"
    )


async def _connected(address: Address) -> Any:
    client = client_of(address)
    try:
        await client.ping()
    except ERRORS.known as error:
        await client.aclose()
        raise opening_error(error, address) from error
    except BaseException:
        await client.aclose()
        raise
    return client


class Frameworks:
    """The failed jobs of all frameworks on one server."""

    def __init__(
        self, client: Any, frameworks: Mapping[str, Framework] = FRAMEWORKS, results: Any = None
    ) -> None:
        self._client = client
        self._results = results
        self.frameworks: dict[str, Framework] = {**frameworks, "celery": Celery(results)}

    async def places(self) -> Sequence[str]:
        """Return the queues with failed jobs that can be recognised by their keys."""
        found: set[str] = set()
        with _ERRORS.translated():
            for kind, framework in self.frameworks.items():
                if not framework.pattern:
                    continue
                async for key in self._client.scan_iter(
                    match=framework.pattern, count=1000, _type="zset"
                ):
                    queue = framework.queue_of(key.decode("utf-8", "replace"))
                    found.add(f"{kind}:{queue}")
        return sorted(found)

    def drain(self, place: str) -> "RedisDrain":
        """Return the drain of a queue."""
        kind, _, queue = place.partition(":")
        if kind not in FRAMEWORKS or not queue:
            known = ", ".join(f"{name}:QUEUE" for name in FRAMEWORKS)
            raise ConfigError(f"a place must name its framework: one of {known}, got {place!r}")
        return RedisDrain(self._client, self.frameworks[kind], place, queue)

    def sink(self, mailbox: str) -> "RedisSink":
        """Return the sink of a queue."""
        return RedisSink(self._client, mailbox, self.frameworks)

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """Return the states of copies, as far as their frameworks report them."""
        with _ERRORS.translated():
            return [await self._state(copy) for copy in copies]

    async def _state(self, copy: SentCopy) -> CopyState:
        origin = origin_of(copy.message)
        framework = self.frameworks.get(origin.kind) if origin is not None else None
        if origin is None or not isinstance(framework, Probe):
            return CopyState.UNKNOWN
        queue, message = _queue(copy.mailbox, origin), copy.message
        return await framework.state_of(self._client, queue, message, origin, copy.sent_at)

    async def ids_in_use(self, messages: Sequence[tuple[str, Message]]) -> Sequence[bool]:
        """Return which jobs of BullMQ have an id that another job uses by now."""
        framework = self.frameworks["bullmq"]
        assert isinstance(framework, BullMQ)
        origins = [origin_of(message) for _, message in messages]
        jobs = {
            place: (queue.removeprefix("bullmq:"), message, origin)
            for place, ((queue, message), origin) in enumerate(zip(messages, origins, strict=True))
            if origin is not None and origin.kind == "bullmq"
        }
        with _ERRORS.translated():
            found = await framework.ids_in_use(self._client, list(jobs.values()))
        in_use = dict(zip(jobs, found, strict=True))
        return [in_use.get(place, False) for place in range(len(messages))]

    def with_new_ids(self) -> "Frameworks":
        """Return the same server, where a job whose id is in use gets a new one."""
        frameworks = {**self.frameworks, "bullmq": BullMQ(new_ids=True)}
        return Frameworks(self._client, frameworks, self._results)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        if self._results is not None:
            await self._results.aclose()


class RedisDrain:
    """The drain of one queue."""

    def __init__(self, client: Any, framework: Framework, place: str, queue: str) -> None:
        self.place = place
        self._client = client
        self._framework = framework
        self._queue = queue
        self._held: set[bytes] = set()

    async def depth(self) -> int:
        """Return how many failed jobs there are; raise NotFound with near names."""
        with _ERRORS.translated():
            depth = await self._framework.depth(self._client, self._queue)
            if not depth:
                await self._check_name()
        return depth

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Return up to `limit` jobs that were not taken yet; they stay until `forget`."""
        while True:
            with _ERRORS.translated():
                found = await self._framework.read(self._client, self._queue, limit, self._held)
            if found or wait <= 0:
                break
            await asyncio.sleep(min(_POLL, wait))
            wait -= _POLL
        self._held.update(one.receipt for one in found)
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Remove failed jobs from their queue."""
        receipts = [one.receipt for one in found]
        if receipts:
            with _ERRORS.translated():
                await self._framework.forget(self._client, self._queue, receipts)
            self._held.difference_update(receipts)

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Allow jobs to be taken again; they are still in their queue."""
        self._held.difference_update(one.receipt for one in found)

    async def close(self) -> None:
        """Do nothing: the drain holds nothing on the server."""

    async def _check_name(self) -> None:
        known = await self._framework.queues(self._client)
        if self._queue in known:
            return
        near = get_close_matches(self._queue, known, n=_NEAR)
        # Where empty queues leave nothing behind, an unlikely name may be one.
        if near or self._framework.keeps_names:
            kind = self.place.partition(":")[0]
            names = [f"{kind}:{name}" for name in near or sorted(known)[:_NEAR]]
            hint = f"did you mean {' or '.join(names)}?" if names else ""
            raise NotFound(f"there is no {self.place!a} on this server. {hint}".strip())


class RedisSink:
    """Sink of a queue of any framework."""

    def __init__(
        self, client: Any, mailbox: str, frameworks: Mapping[str, Framework] = FRAMEWORKS
    ) -> None:
        self.mailbox = mailbox
        self._client = client
        self._frameworks = frameworks

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Queue jobs again, each as its framework does it."""
        await send_in_turn(messages, self._put_back)

    async def _put_back(self, message: Message) -> None:
        origin = origin_of(message)
        framework = self._frameworks.get(origin.kind) if origin is not None else None
        if framework is None or origin is None:
            raise Refused(f"message {message.id} was not drained from a framework on Redis")
        with _ERRORS.translated():
            queue = _queue(self.mailbox, origin)
            await framework.put_back(self._client, queue, message, origin)


def _queue(mailbox: str, origin: Origin) -> str:
    """Return the queue of a mailbox, which may be named like a place: `rq:default`."""
    return mailbox.removeprefix(f"{origin.kind}:")
