"""
Queues of RabbitMQ, and the way back to those they are for.

What was taken is ours until it is forgotten; when the connection ends the broker
has it again. Which queue is a dead one nobody can tell from its name: it is named.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import aiormq
import msgspec
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelNotFoundEntity,
    DeliveryError,
    ProbableAuthenticationError,
)
from pamqp.commands import Basic
from pamqp.exceptions import PAMQPException
from pamqp.header import ContentHeader
from yarl import URL

from deadletter.core.dialects import Found, lineage_headers, origin_of
from deadletter.core.errors import (
    BackendError,
    ConfigError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.core.message import Message
from deadletter.ports import Clock

_IDLE: Final = 0.2  # seconds without a message before we ask if there are any
_LOOKS: Final = 25  # times that we ask
_KNOWN: Final = (AMQPError, OSError, asyncio.TimeoutError)
# Not sent back: they are about the death, or make the broker send it elsewhere.
_DEATH: Final = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count")
_LEADS_AWAY: Final = frozenset({"CC", "BCC"})
_ABOUT_DELIVERY: Final = frozenset({"x-delivery-count", "x-acquired-count"})


async def open_rabbitmq(url: str, *, clock: Clock) -> "RabbitMQ":
    """The broker that a URL names."""
    return RabbitMQ(url, await _connected(url))


class RabbitMQ:
    """The queues of one broker."""

    def __init__(self, url: str, connection: AbstractConnection) -> None:
        self._url = url
        self._connection = connection

    async def places(self) -> Sequence[str]:
        """None: a broker does not tell its clients which queues it has."""
        return ()

    def drain(self, place: str) -> "RabbitDrain":
        """The way into a queue."""
        return RabbitDrain(self, place)

    def sink(self, mailbox: str) -> "RabbitSink":
        """The way back to a queue."""
        return RabbitSink(self, mailbox)

    async def close(self) -> None:
        """Let go of the connection; the broker has what we held."""
        with suppress(*_KNOWN):
            await self._connection.close()

    async def channel(self, *, confirms: bool = False) -> AbstractChannel:
        """A channel of one's own, on a new connection when the old one broke."""
        if self._connection.is_closed:
            self._connection = await _connected(self._url)
        with _translated():
            return await self._connection.channel(publisher_confirms=confirms)


async def _connected(url: str) -> AbstractConnection:
    where = URL(url).host
    try:
        return await aiormq.connect(url)
    except (AuthenticationError, ProbableAuthenticationError) as error:
        raise ConfigError(
            f"{where} refuses us: put the right user and password into the URL"
        ) from error
    except _KNOWN as error:
        raise Unavailable(
            f"no answer from {where}: is RabbitMQ running, and is the URL right? "
            f"({error})"
        ) from error


class RabbitDrain:
    """One queue, read as it is."""

    def __init__(self, broker: RabbitMQ, place: str) -> None:
        self.place = place
        self._broker = broker
        self._channel: AbstractChannel | None = None
        self._came: asyncio.Queue[DeliveredMessage] = asyncio.Queue()
        self._twins: Counter[str] = Counter()

    async def depth(self) -> int:
        """How many messages wait in it."""
        channel = await self._broker.channel()
        try:
            with _translated(self.place):
                answer = await channel.queue_declare(self.place, passive=True)
            return answer.message_count or 0
        finally:
            with suppress(*_KNOWN):
                await channel.close()

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Up to `limit` messages, ours until they are forgotten or we are gone."""
        await self._consume(limit)
        found: list[Found] = []
        looks = max(1, round(wait / _IDLE))
        while len(found) < limit:
            try:
                message = await asyncio.wait_for(self._came.get(), _IDLE)
            except TimeoutError:
                self._check()
                looks -= 1
                # What waits there is on its way to us, unless we hold too much.
                if looks <= 0 and (looks < -_LOOKS or not await self.depth()):
                    break
                continue
            found.append(self._found(message))
            looks = min(looks, 1)
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Acknowledge them; what came over a connection that broke comes again."""
        with _translated(self.place):
            for channel, tag in (one.receipt for one in found):
                if not channel.is_closed:
                    await channel.basic_ack(tag)

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Put them back where they were, as far as the broker can."""
        with _translated(self.place):
            for channel, tag in (one.receipt for one in found):
                if not channel.is_closed:
                    await channel.basic_nack(tag, requeue=True)

    async def close(self) -> None:
        """Take no more; the broker has again what is neither."""
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(*_KNOWN):
                await channel.close()

    async def _consume(self, limit: int) -> None:
        if self._channel is not None and not self._channel.is_closed:
            return
        self._came = asyncio.Queue()
        channel = await self._broker.channel()
        with _translated(self.place):
            await channel.basic_qos(prefetch_count=min(limit, 65_535))
            await channel.basic_consume(self.place, self._came.put)
        self._channel = channel

    def _check(self) -> None:
        if self._channel is None or self._channel.is_closed:
            raise Unavailable(f"the broker closed our channel to {self.place}")

    def _found(self, message: DeliveredMessage) -> Found:
        properties = message.header.properties
        headers = dict(properties.headers or {})
        stamp = properties.timestamp
        return Found(
            kind="rabbitmq",
            place=self.place,
            id=properties.message_id or self._digest(properties, message.body),
            body=message.body,
            headers=tuple((name, _as_bytes(value)) for name, value in headers.items()),
            at=stamp if isinstance(stamp, datetime) else None,
            content_type=properties.content_type,
            reply_to=properties.reply_to,
            raw=_packed(properties),
            receipt=(message.channel, message.delivery_tag),
        )

    def _digest(self, properties: Basic.Properties, body: bytes) -> str:
        """An id that is the same whenever it comes; twins are numbered."""
        about = dict(properties)
        headers = dict(properties.headers or {})
        about["headers"] = {
            name: value
            for name, value in sorted(headers.items())
            if name not in _ABOUT_DELIVERY
        }
        told = sha256(repr(about).encode("utf-8", "backslashreplace"))
        told.update(body)
        digest = f"sha256-{told.hexdigest()[:32]}"
        self._twins[digest] += 1
        twin = self._twins[digest]
        return digest if twin == 1 else f"{digest}#{twin}"


class RabbitSink:
    """The way back to one queue."""

    def __init__(self, broker: RabbitMQ, mailbox: str) -> None:
        self.mailbox = mailbox
        self._broker = broker

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Publish them straight into the queue, confirmed, properties as they were."""
        channel = await self._broker.channel(confirms=True)
        try:
            with _translated(self.mailbox):
                await asyncio.gather(*(self._publish(channel, m) for m in messages))
        finally:
            with suppress(*_KNOWN):
                await channel.close()

    async def _publish(self, channel: AbstractChannel, message: Message) -> None:
        answer = await channel.basic_publish(
            message.body,
            routing_key=self.mailbox,
            properties=_properties(message),
            mandatory=True,
        )
        if not isinstance(answer, Basic.Ack):
            raise Unavailable(f"the broker did not take message {message.id}")


def _packed(properties: Basic.Properties) -> bytes:
    """Properties as they travel, without what is about the death."""
    kept = Basic.Properties()
    for name, value in properties:
        setattr(kept, name, value)
    kept.headers = {
        name: _sendable(value)
        for name, value in (properties.headers or {}).items()
        if not name.startswith(_DEATH) and name not in _LEADS_AWAY
    }
    try:
        return ContentHeader(properties=kept).marshal()
    except (TypeError, ValueError, OverflowError):
        return b""  # it came in a form that cannot be written: the headers must do


def _properties(message: Message) -> Basic.Properties:
    origin = origin_of(message)
    properties = Basic.Properties(
        content_type=message.content_type, delivery_mode=2, reply_to=message.reply_to
    )
    if origin is not None and origin.raw:
        header = ContentHeader()
        try:
            header.unmarshal(origin.raw)
            properties = header.properties
        except (PAMQPException, ValueError, LookupError, OverflowError):
            header = ContentHeader()
    headers = dict(properties.headers or {})
    for name, value in lineage_headers(message.lineage):
        headers[name] = value.decode()
    properties.headers = {n: v for n, v in headers.items() if n not in _LEADS_AWAY}
    # The client would make one up; ours leads back to the letter.
    properties.message_id = properties.message_id or message.id
    properties.user_id = None  # the broker lets nobody speak for another
    return properties


def _sendable(value: Any) -> Any:
    match value:
        case bytes():
            return bytearray(value)  # the client knows no other form of bytes
        case list():
            return [_sendable(one) for one in value]
        case dict():
            return {name: _sendable(one) for name, one in value.items()}
    return value


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (TypeError, ValueError, RecursionError):
        return repr(value).encode("utf-8", "backslashreplace")


@contextmanager
def _translated(queue: str = "") -> Iterator[None]:
    """What the client raises, in our words."""
    try:
        yield
    except _KNOWN as error:
        raise _ours(error, queue) from error


def _ours(error: BaseException, queue: str) -> BackendError | NotFound:
    if isinstance(error, ChannelNotFoundEntity | DeliveryError):
        return NotFound(f"there is no queue {queue!r} on that broker: {error}")
    text = str(error) or type(error).__name__
    if "ACCESS_REFUSED" in text or "RESOURCE_LOCKED" in text:
        return Refused(f"the broker does not let us use {queue!r}: {text}")
    return Unavailable(f"the broker cannot be reached: {text}")
