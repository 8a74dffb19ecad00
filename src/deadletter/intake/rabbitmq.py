"""
Queues of RabbitMQ, and the way back to those they are for.

What was taken is ours until it is forgotten; when the connection ends the broker
has it again. Which queue is a dead one nobody can tell from its name: it is named.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from pamqp import commands as spec

from deadletter.amqp.address import Address, read_url
from deadletter.amqp.channel import Channel
from deadletter.amqp.errors import Closed, at_start, translated
from deadletter.amqp.frames import Content
from deadletter.amqp.line import Line
from deadletter.core.dialects import MALFORMED, Found
from deadletter.core.errors import NotFound, Unavailable
from deadletter.core.message import Message
from deadletter.ports import Clock

from . import amqp_properties

_IDLE: Final = 0.2  # seconds without a message before we ask if there are any
_LOOKS: Final = 25  # times that we ask
_KNOWN: Final = (Closed, OSError)
_MOST: Final = 65_535  # unsettled deliveries that AMQP can ask for
_MISSING: Final = 404


async def open_rabbitmq(url: str, *, clock: Clock) -> "RabbitMQ":
    """The broker that a URL names."""
    broker = RabbitMQ(read_url(url))
    await broker.start()
    return broker


class RabbitMQ:
    """The queues of one broker."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._line = Line(address)

    async def start(self) -> None:
        """Connect for the first time; what was set up wrongly shows here."""
        try:
            await self._line.connection()
        except _KNOWN as error:
            address = self._address
            raise at_start(error, address) from error

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
        await self._line.close()

    async def channel(self) -> Channel:
        """A channel of one's own, on a new connection when the old one broke."""
        with _in_our_words():
            return await (await self._line.connection()).channel()


class RabbitDrain:
    """One queue, read as it is."""

    def __init__(self, broker: RabbitMQ, place: str) -> None:
        self.place = place
        self._broker = broker
        self._channel: Channel | None = None
        self._came: asyncio.Queue[Content] = asyncio.Queue()
        self._twins: Counter[str] = Counter()

    async def depth(self) -> int:
        """How many messages wait in it."""
        channel = await self._broker.channel()
        try:
            with _in_our_words(self.place):
                declared = spec.Queue.Declare(queue=self.place, passive=True)
                answer = await channel.call(declared)
        finally:
            channel.close()
        assert isinstance(answer, spec.Queue.DeclareOk)
        return answer.message_count or 0

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Up to `limit` messages, ours until they are forgotten or we are gone."""
        channel = await self._consume(limit)
        found: list[Found] = []
        looks = max(1, round(wait / _IDLE))
        while len(found) < limit:
            try:
                content = await asyncio.wait_for(self._came.get(), _IDLE)
            except TimeoutError:
                if channel.closed is not None:
                    raise self._lost() from channel.closed
                looks -= 1
                # What waits there is on its way to us, unless we hold too much.
                if looks <= 0 and (looks < -_LOOKS or not await self.depth()):
                    break
                continue
            found.append(self._found(content, channel))
            looks = min(looks, 1)
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Acknowledge them; what came over a connection that broke comes again."""
        with _in_our_words(self.place):
            for channel, tags in _open_ones(found):
                channel.ack(tags, ())

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Put them back where they were, as far as the broker can."""
        with _in_our_words(self.place):
            for channel, tags in _open_ones(found):
                channel.give_back(tags)

    async def close(self) -> None:
        """Take no more; the broker has again what is neither."""
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(*_KNOWN):
                await channel.leave()

    async def _consume(self, limit: int) -> Channel:
        if self._channel is not None and self._channel.closed is None:
            return self._channel
        self._came = asyncio.Queue()
        channel = await self._broker.channel()
        channel.on_deliver = self._came.put_nowait
        channel.on_cancelled = channel.close
        with _in_our_words(self.place):
            await channel.call(spec.Basic.Qos(prefetch_count=min(limit, _MOST)))
            await channel.call(spec.Basic.Consume(queue=self.place))
        self._channel = channel
        return channel

    def _lost(self) -> Unavailable:
        return Unavailable(f"the broker closed our channel to {self.place}")

    def _found(self, content: Content, channel: Channel) -> Found:
        read = amqp_properties.read(content.properties)
        properties = spec.Basic.Properties() if read is None else read
        headers = dict(properties.headers or {})
        stamp = properties.timestamp
        unreadable = {MALFORMED: "its properties cannot be read"}
        return Found(
            kind="rabbitmq",
            place=self.place,
            id=properties.message_id or self._id(properties, content.body),
            body=content.body,
            headers=tuple(
                (name, amqp_properties.as_bytes(value))
                for name, value in headers.items()
            ),
            about=unreadable if read is None else {},
            at=stamp if isinstance(stamp, datetime) else None,
            content_type=properties.content_type,
            reply_to=properties.reply_to,
            raw=amqp_properties.kept(properties),
            receipt=(channel, content.tag),
        )

    def _id(self, properties: spec.Basic.Properties, body: bytes) -> str:
        """An id that is the same whenever it comes; twins are numbered."""
        digest = amqp_properties.digest(properties, body)
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
        if not messages:
            return
        mail = [(self.mailbox, amqp_properties.written(m), m.body) for m in messages]
        channel = await self._broker.channel()
        try:
            with _in_our_words(self.mailbox):
                await channel.call(spec.Confirm.Select())
                batch = await channel.publish(mail)
        finally:
            channel.close()
        if batch.nowhere:
            raise _no_queue(self.mailbox)
        if batch.refused:
            raise Unavailable(f"the broker did not take all messages: {self.mailbox}")


def _open_ones(found: Sequence[Found]) -> Iterator[tuple[Channel, set[int]]]:
    """Those whose channel is open still, by channel: the others come again."""
    tags: defaultdict[Channel, set[int]] = defaultdict(set)
    for one in found:
        channel, tag = one.receipt
        if channel.closed is None:
            tags[channel].add(tag)
    yield from tags.items()


@contextmanager
def _in_our_words(queue: str = "") -> Iterator[None]:
    try:
        yield
    except _KNOWN as error:
        if isinstance(error, Closed) and error.code == _MISSING:
            raise _no_queue(queue) from error
        raise translated(error) from error


def _no_queue(queue: str) -> NotFound:
    return NotFound(f"there is no queue {queue!r} on that broker")
