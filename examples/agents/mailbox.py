"""
Mailboxes: send, receive with a visibility timeout, reply.

The same code on every engine; `RedisMailbox` and `InMemoryMailbox` differ in what they
can be made with.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

from deadletter import NotFound
from deadletter.core.burial import from_message
from deadletter.core.message import Delivery
from deadletter.observe.traces import carried
from deadletter.ports import PROCESS_KEYS, Acked, Fate, Released, Settlement, Source

from .bodies import decoder, encode, fits
from .errors import InvalidParameterError, MailboxError
from .letters import DeadLetter, dead_letter
from .message import Mailbox, Message
from .post import Post
from .resolvers import MailboxResolver

T = TypeVar("T")
R = TypeVar("R")

SOURCE_TTL: Final = 259_200.0  # 3 days
DLQ_TTL: Final = 2_592_000.0  # 30 days
LONGEST: Final = 43_200  # seconds of visibility, as on SQS
MOST: Final = 10  # messages at once, as on SQS
_LOOK: Final = 1.0  # seconds between looks for what came back by itself


class PostMailbox(Generic[T, R]):
    """
    A mailbox on an engine of deadletter, in memory unless a client is given.

    Bodies are JSON on the wire and read as `body_type`. A message that no loop has
    worked off `default_ttl` seconds after it was sent becomes a dead letter
    ("expired"), each by its own clock; 0 is no limit. In a dead-letter mailbox it is
    how long its DLQConsumer still hands a letter to its handler.
    """

    schemes: tuple[str, ...] = ("",)  # how the URL of its client begins

    def __init__(
        self,
        *,
        name: str,
        client: Post | None = None,
        body_type: Any = Any,
        default_ttl: float = SOURCE_TTL,
        reply_resolver: MailboxResolver | None = None,
    ) -> None:
        self.name = name
        self.post = client or in_memory()
        if not self.post.url.startswith(self.schemes):
            kinds = " or ".join(self.schemes)
            raise InvalidParameterError(f"the client of {name} must be on {kinds}")
        self.default_ttl = default_ttl
        self.is_dead = get_origin(body_type) is DeadLetter or body_type is DeadLetter
        held = (*get_args(body_type), Any)[0] if self.is_dead else Any
        self.decode = decoder(body_type)
        self.decode_dead = decoder(held)
        self.resolver: MailboxResolver = reply_resolver or _SamePost(self.post)
        self.closed = False
        self._keys = PROCESS_KEYS  # until the office has said which ones it has

    def send(self, body: T, *, reply_to: Mailbox[R, Any] | None = None) -> str:
        """Send it and return its id, once the broker has it."""
        if self.closed:
            raise MailboxError(f"mailbox {self.name} is closed")
        request_id = getattr(body, "request_id", None)
        trace = carried()
        return self.post.call(
            self.post.app.send(
                self.name,
                encode(body),
                content_type="application/json",
                expires_in=self.default_ttl or None,
                reply_to=None if reply_to is None else self.beside(reply_to).name,
                idempotency_key=None if request_id is None else str(request_id),
                traceparent=trace.get("traceparent"),
                tracestate=trace.get("tracestate"),
            )
        )

    def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> Sequence[Message[T, R]]:
        """
        Take up to so many messages, waiting until there is one or the time is over.

        They are ours for `visibility_timeout` seconds, then somebody else's.
        """
        _check("max_messages", max_messages, 1, MOST)
        _check("visibility_timeout", visibility_timeout, 0, LONGEST)
        _check("wait_time_seconds", wait_time_seconds, 0, LONGEST)
        return self.post.call(self._receive(max_messages, visibility_timeout, wait_time_seconds))

    def approximate_count(self) -> int:
        """How many messages are in it, visible or not."""
        return self.post.call(self.count())

    async def count(self) -> int:
        for queue in await (await self.post.broker()).queues():
            if queue.options.name == self.name:
                return queue.ready + queue.delayed + queue.claimed + queue.suspects
        return 0

    def purge(self) -> int:
        """Throw away what is visible; how much that was."""
        return self.post.call(self._purge())

    def remove(self) -> None:
        """Take it away with all that is in it; it is made anew when it is used."""
        self.post.call(self._remove())

    def close(self) -> None:
        """Nothing more is sent or received; who waits is woken."""
        self.closed = True

    def message(
        self, delivery: Delivery, *, count: int, claim: "_Claim | None" = None
    ) -> Message[T, R]:
        """A delivery, in the words of this package."""
        found = delivery.message
        reply_to: Any = None
        if found.reply_to is not None:
            reply_to = self.resolver.resolve_optional(found.reply_to)
        return Message(
            id=found.id,
            body=self._body(delivery),
            delivery_count=count,
            enqueued_at=found.sent_at,
            receipt_handle=f"{found.id}#{delivery.attempt}",
            reply_to=reply_to,
            claim=claim,
        )

    def _body(self, delivery: Delivery) -> Any:
        message = delivery.message
        if self.is_dead and message.header("dlq-id") is not None:
            now = self.post.clock.now()
            kept = from_message(message, self.name, self._keys, now)
            return dead_letter(kept, self.decode_dead)
        return fits(self.decode, message.body)

    async def _receive(self, limit: int, lease: float, wait: float) -> list[Message[T, R]]:
        broker = await self.post.broker()
        self._keys = await self.post.keys()
        source = broker.source(self.name)
        now = asyncio.get_running_loop().time
        deadline = now() + wait
        while not self.closed:
            # What was neither acknowledged nor handed back in time comes back first.
            await broker.sweep(limit=0)
            found = await _returned(source, limit, lease)
            left = deadline - now()
            if len(found) < limit:
                patience = 0.0 if found else max(0.0, min(left, _LOOK))
                found += await source.receive(limit=limit - len(found), wait=patience, lease=lease)
            if found or left <= 0:
                return [self._handed(source, delivery) for delivery in found]
        return []

    def _handed(self, source: Source, delivery: Delivery) -> Message[T, R]:
        claim = _Claim(self.post, source, delivery)
        return self.message(delivery, count=delivery.attempt, claim=claim)

    async def _purge(self) -> int:
        source = (await self.post.broker()).source(self.name)
        purged = 0
        while found := await source.receive(limit=100, wait=0, lease=30):
            purged += sum(await source.settle([Acked(d, Fate.PURGED) for d in found]))
        return purged

    async def _remove(self) -> None:
        with suppress(NotFound):  # nothing was ever sent to it
            await (await self.post.broker()).delete(self.name)

    def beside(self, other: Mailbox[Any, Any]) -> Mailbox[Any, Any]:
        """The other one, if our broker can send to it."""
        if getattr(other, "post", None) is not self.post:
            raise InvalidParameterError(
                f"{other.name} is not on the same Post as {self.name}: replies and "
                "dead letters go to mailboxes of the same broker"
            )
        return other


class RedisMailbox(PostMailbox[T, R]):
    """A mailbox on Redis or Valkey; `client` is a Post with a redis:// URL."""

    schemes = ("redis", "valkey")


class InMemoryMailbox(PostMailbox[T, R]):
    """A mailbox of this process; those that are to know each other share a Post."""

    schemes = ("memory",)


@cache
def in_memory() -> Post:
    """The Post of in-memory mailboxes that were given none."""
    return Post("memory://")


class _SamePost:
    """Any name is a mailbox on the Post that the message came from."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def resolve(self, identifier: str) -> Mailbox[Any, Any]:
        return PostMailbox(name=identifier, client=self._post)

    resolve_optional = resolve


@dataclass(slots=True)
class _Claim:
    """What is ours of a mailbox, for a while."""

    post: Post
    source: Source
    delivery: Delivery

    def acknowledge(self) -> bool:
        return self._settle(Acked(self.delivery))

    def release(self, delay: float) -> bool:
        _check("visibility_timeout", delay, 0, LONGEST)
        return self._settle(Released(self.delivery, delay))

    def extend(self, lease: float) -> bool:
        _check("timeout", lease, 0, LONGEST)
        extending = self.source.extend([self.delivery], lease=lease)
        return bool(self.post.call(_only(extending)))

    def _settle(self, settlement: Settlement) -> bool:
        return bool(self.post.call(_only(self.source.settle([settlement]))))


async def _only(answers: Any) -> bool:
    (answer,) = await answers
    return bool(answer)


async def _returned(source: Source, limit: int, lease: float) -> list[Delivery]:
    """What somebody received before us and let go of; handed out one at a time."""
    found: list[Delivery] = []
    while len(found) < limit:
        one = await source.receive(limit=1, wait=0, lease=lease, alone=True)
        if not one:
            break
        found += one
    return found


def _check(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidParameterError(f"{what} is between {least} and {most}, not {value}")
