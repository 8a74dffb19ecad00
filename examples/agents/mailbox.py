"""
Mailboxes on a backend: send, receive with a visibility timeout, reply.

The code is the same on every engine; `RedisMailbox` and `InMemoryMailbox` differ only in
the clients they accept.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

from deadletter import NotFound
from deadletter.core.burial import from_message
from deadletter.core.message import Delivery
from deadletter.core.message import Message as Sent
from deadletter.observe.traces import carried
from deadletter.ports import PROCESS_KEYS, Acked, Fate, Released, Settlement, Source

from .backend import Backend, RedisClient, backend_of, in_memory
from .dead_letter import DeadLetter, to_dead_letter
from .errors import InvalidParameterError, MailboxError
from .message import Mailbox, ReceivedMessage
from .resolvers import MailboxResolver
from .serialization import Decode, decode_or_bytes, decoder, encode

T = TypeVar("T")
R = TypeVar("R")

SOURCE_TTL: Final = 259_200.0  # 3 days
DLQ_TTL: Final = 2_592_000.0  # 30 days
LONGEST: Final = 43_200  # seconds of visibility, as on SQS
MOST: Final = 10  # messages at once, as on SQS
_LOOK: Final = 1.0  # seconds between looks for messages whose lease has ended


class BackendMailbox(Generic[T, R]):
    """
    A mailbox on a backend.

    Bodies travel as JSON and are decoded as `body_type`. If it is left out, the types of
    the class (`RedisMailbox[Request, Result](...)`) or of the loop that works the mailbox
    are used, and otherwise plain values.

    A message that no loop has processed `default_ttl` seconds after it was sent becomes a
    dead letter ("expired"); 0 means no limit. In a dead-letter mailbox it is the time after
    which retention discards a letter. Each message has its own clock.
    """

    schemes: tuple[str, ...] = ("",)  # valid beginnings of the backend's URL

    def __init__(
        self,
        *,
        name: str,
        client: Backend | RedisClient | None = None,
        body_type: Any = None,
        default_ttl: float = SOURCE_TTL,
        reply_resolver: MailboxResolver | None = None,
    ) -> None:
        self.name = name
        self.backend = _backend(client)
        if not self.backend.url.startswith(self.schemes):
            kinds = " or ".join(self.schemes)
            raise InvalidParameterError(
                f"the client of mailbox {name} must be on {kinds}, got "
                f"{self.backend.url.partition(':')[0]}"
            )
        self.default_ttl = default_ttl
        self.resolver: MailboxResolver = reply_resolver or _SameBackend(self.backend)
        self.closed = False
        self._body_type = body_type
        self._decoders: _Decoders | None = None
        self._keys = PROCESS_KEYS  # until the office has been asked for its own

    def adopt(self, body_type: Any) -> None:
        """Use this type of bodies if the mailbox was made without one."""
        if self._given_type() is None:
            self._body_type = body_type
            self._decoders = None

    @property
    def decode(self) -> Decode:
        """Return the decoder of bodies."""
        return self._known().body

    @property
    def decode_dead(self) -> Decode:
        """Return the decoder of bodies that dead letters carry."""
        return self._known().dead_body

    def send(self, body: T, *, reply_to: Mailbox[R, Any] | None = None) -> str:
        """Send a message and return its id, once the broker has stored it."""
        if self.closed:
            raise MailboxError(f"mailbox {self.name} is closed: open a new one")
        request_id = getattr(body, "request_id", None)
        trace = carried()
        return self.backend.call(
            self.backend.app.send(
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
    ) -> Sequence[ReceivedMessage[T, R]]:
        """
        Receive up to `max_messages`, waiting up to `wait_time_seconds` for the first.

        The messages are leased for `visibility_timeout` seconds.
        """
        _check("max_messages", max_messages, 1, MOST)
        _check("visibility_timeout", visibility_timeout, 0, LONGEST)
        _check("wait_time_seconds", wait_time_seconds, 0, LONGEST)
        receiving = self._receive(max_messages, visibility_timeout, wait_time_seconds)
        return self.backend.call(receiving, wait=wait_time_seconds)

    def approximate_count(self) -> int:
        """Return the number of messages in the mailbox, visible or not."""
        return self.backend.call(self.count())

    async def count(self) -> int:
        """Return the same number, on the backend's thread."""
        for queue in await (await self.backend.broker()).queues():
            if queue.options.name == self.name:
                return queue.ready + queue.delayed + queue.claimed + queue.suspects
        return 0

    def purge(self) -> int:
        """Delete the visible messages, and return their number."""
        return self.backend.call(self._purge())

    def remove(self) -> None:
        """Delete the mailbox with its messages; the next use creates it anew."""
        self.backend.call(self._remove())

    def close(self) -> None:
        """Close the mailbox: receivers that wait return, and sending raises MailboxError."""
        self.closed = True

    def message(
        self, delivery: Delivery, *, count: int, claim: "_Claim | None" = None
    ) -> ReceivedMessage[T, R]:
        """Return a delivery as a message of this package."""
        found = delivery.message
        reply_to: Any = None
        if found.reply_to is not None:
            reply_to = self.resolver.resolve_optional(found.reply_to)
        return ReceivedMessage(
            id=found.id,
            body=self._body(found),
            delivery_count=count,
            enqueued_at=found.sent_at,
            receipt_handle=f"{found.id}#{delivery.attempt}",
            reply_to=reply_to,
            claim=claim,
        )

    def _body(self, message: Sent) -> Any:
        known = self._known()
        if known.may_hold_letters and message.header("dlq-id") is not None:
            kept = from_message(message, self.name, self._keys, self.backend.clock.now())
            return to_dead_letter(kept, known.dead_body)
        return decode_or_bytes(known.body, message.body)

    def _known(self) -> "_Decoders":
        if self._decoders is None:
            self._decoders = _decoders(self._given_type())
        return self._decoders

    def _given_type(self) -> Any:
        if self._body_type is not None:
            return self._body_type
        types = get_args(getattr(self, "__orig_class__", None))
        return types[0] if types and not isinstance(types[0], TypeVar) else None

    async def _receive(self, limit: int, lease: float, wait: float) -> list[ReceivedMessage[T, R]]:
        broker = await self.backend.broker()
        self._keys = await self.backend.keys()
        source = broker.source(self.name)
        now = asyncio.get_running_loop().time
        deadline = now() + wait
        while not self.closed:
            # Messages whose lease has ended come first.
            await broker.sweep(limit=0)
            found = await _returned(source, limit, lease)
            left = deadline - now()
            if len(found) < limit:
                patience = 0.0 if found else max(0.0, min(left, _LOOK))
                found += await source.receive(limit=limit - len(found), wait=patience, lease=lease)
            if found or left <= 0:
                return [self._received(source, delivery) for delivery in found]
        return []

    def _received(self, source: Source, delivery: Delivery) -> ReceivedMessage[T, R]:
        claim = _Claim(self.backend, source, delivery)
        return self.message(delivery, count=delivery.attempt, claim=claim)

    async def _purge(self) -> int:
        source = (await self.backend.broker()).source(self.name)
        purged = 0
        while found := await source.receive(limit=100, wait=0, lease=30):
            purged += sum(await source.settle([Acked(d, Fate.PURGED) for d in found]))
        return purged

    async def _remove(self) -> None:
        with suppress(NotFound):  # nothing was ever sent to it
            await (await self.backend.broker()).delete(self.name)

    def beside(self, other: Mailbox[Any, Any]) -> Mailbox[Any, Any]:
        """Return the other mailbox. Raises InvalidParameterError if it is on another backend."""
        if getattr(other, "backend", None) is not self.backend:
            raise InvalidParameterError(
                f"mailbox {other.name} is not on the same backend as {self.name}: replies and "
                "dead letters must go to mailboxes of the same backend"
            )
        return other


class RedisMailbox(BackendMailbox[T, R]):
    """A mailbox on Redis or Valkey; `client` is a `redis.Redis`, or a Backend on redis://."""

    schemes = ("redis", "valkey")


class InMemoryMailbox(BackendMailbox[T, R]):
    """A mailbox in the memory of this process; those without a client share a backend."""

    schemes = ("memory",)


def _backend(client: Backend | RedisClient | None) -> Backend:
    if client is None:
        return in_memory()
    return client if isinstance(client, Backend) else backend_of(client)


@dataclass(slots=True, frozen=True)
class _Decoders:
    """How the bodies of a mailbox are decoded."""

    body: Decode
    dead_body: Decode
    may_hold_letters: bool


def _decoders(body_type: Any) -> _Decoders:
    if body_type is None:
        return _Decoders(decoder(Any), decoder(Any), may_hold_letters=True)
    if get_origin(body_type) is DeadLetter or body_type is DeadLetter:
        held = (*get_args(body_type), Any)[0]
        return _Decoders(decoder(body_type), decoder(held), may_hold_letters=True)
    return _Decoders(decoder(body_type), decoder(Any), may_hold_letters=False)


class _SameBackend:
    """A resolver that takes any name as a mailbox on the backend of the message."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def resolve(self, identifier: str) -> Mailbox[Any, Any]:
        return BackendMailbox(name=identifier, client=self._backend)

    resolve_optional = resolve


@dataclass(slots=True)
class _Claim:
    """The lease of a delivery."""

    backend: Backend
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
        return bool(self.backend.call(_only(extending)))

    def _settle(self, settlement: Settlement) -> bool:
        return bool(self.backend.call(_only(self.source.settle([settlement]))))


async def _only(answers: Any) -> bool:
    (answer,) = await answers
    return bool(answer)


async def _returned(source: Source, limit: int, lease: float) -> list[Delivery]:
    """Receive messages whose lease has ended; the broker returns them one at a time."""
    found: list[Delivery] = []
    while len(found) < limit:
        one = await source.receive(limit=1, wait=0, lease=lease, alone=True)
        if not one:
            break
        found += one
    return found


def _check(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidParameterError(f"{what} must be between {least} and {most}, got {value}")
