"""
Drain of dead queues on RabbitMQ, and the way back to their source queues.

Taken messages stay unacknowledged until they are forgotten; when the connection ends,
the broker requeues them. AMQP does not list queues, so a dead queue has to be named.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import structs
from pamqp import commands as spec
from pamqp.base import Frame

from deadletter.brokers.amqp.address import Address, read_url
from deadletter.brokers.amqp.channel import Channel, Target
from deadletter.brokers.amqp.connection import Reconnector
from deadletter.brokers.amqp.errors import Closed, at_start, translated
from deadletter.brokers.amqp.frames import Content
from deadletter.core.errors import DeadLetterError, NotFound, PartlySent, Refused, Unavailable
from deadletter.core.message import Message
from deadletter.intake.dialects import MALFORMED, Found
from deadletter.intake.dialects.brokers import way_of
from deadletter.ports import Clock

from . import drain_properties as amqp_properties
from .drain_journal import Journal, Marks, Unnamed, acks_of

_IDLE: Final = 0.2  # seconds without a message before we ask if there are any
_LOOKS: Final = 25  # times that we ask
_KNOWN: Final = (Closed, OSError)
_MOST: Final = 65_535  # unsettled deliveries that AMQP can ask for
_MISSING: Final = 404
# Words that names of dead queues end with, tried for one that is not there.
_DEAD: Final = ("dead", "dlq", "dead-letter", "dead-letters", "error", "failed", "dlx")
_SEPARATORS: Final = (".", "-", "_", ":")


async def open_rabbitmq(url: str, *, clock: Clock) -> "RabbitMQ":
    """Connect to the broker of a URL; `?back=queue` says how letters go back."""
    address = read_url(url)
    broker = RabbitMQ(address, is_straight=address.back == "queue")
    await broker.start()
    return broker


class RabbitMQ:
    """
    The queues of one broker.

    Letters go back through the exchange and with the routing key that they came with,
    or with `is_straight` by the default exchange into their queue alone.
    """

    def __init__(self, address: Address, *, is_straight: bool = False) -> None:
        self.is_straight = is_straight
        self._address = address
        self._line = Reconnector(address)
        self._marks: dict[tuple[str, str], Marks] = {}

    async def start(self) -> None:
        """Connect for the first time; a wrong URL or login raises ConfigError."""
        try:
            await self._line.connection()
        except _KNOWN as error:
            address = self._address
            raise at_start(error, address) from error

    async def places(self) -> Sequence[str]:
        """Refuse: AMQP has no way to ask a broker for its queues."""
        raise NotFound(
            "RabbitMQ does not list its queues to clients: name the dead queues, as in"
            " `dlq drain SERVER orders.dead`"
        )

    def drain(self, place: str) -> "RabbitDrain":
        """Return the drain of a queue."""
        return RabbitDrain(self, place)

    def sink(self, mailbox: str) -> "RabbitSink":
        """Return the sink of a queue."""
        return RabbitSink(self, mailbox)

    async def close(self) -> None:
        """Close the connection; the broker requeues unacknowledged messages."""
        await self._line.close()

    async def check_queue(self, queue: str) -> None:
        """Raise NotFound if a queue is missing, with those of similar names."""
        if await self._is_there(spec.Queue.Declare(queue=queue, passive=True)):
            return
        there = [
            name
            for name in near_names(queue)
            if await self._is_there(spec.Queue.Declare(queue=name, passive=True))
        ]
        raise _no_queue(queue, there)

    async def has(self, exchange: str) -> bool:
        """Return whether an exchange exists."""
        declare = spec.Exchange.Declare(exchange=exchange, passive=True)
        return await self._is_there(declare)

    async def _is_there(self, declare: Frame) -> bool:
        channel = await self.channel()
        try:
            with _translating():
                await channel.call(declare)
        except NotFound:
            return False
        finally:
            channel.close()
        return True

    def marks(self, message: Message, mailbox: str) -> Marks:
        """Return the marks of the copies that a replay has sent to a queue."""
        campaign = message.lineage.campaign if message.lineage else ""
        return self._marks.setdefault((campaign, mailbox), Marks(campaign, mailbox, self.channel))

    async def channel(self) -> Channel:
        """Open a channel, on a new connection if the old one broke."""
        with _translating():
            return await (await self._line.connection()).channel()


class RabbitDrain:
    """The drain of one queue."""

    def __init__(self, broker: RabbitMQ, place: str) -> None:
        self.place = place
        self._broker = broker
        self._channel: Channel | None = None
        self._came: asyncio.Queue[Content] = asyncio.Queue()
        self._journal = Journal(place, broker.channel)
        self._is_empty = False  # the end of the queue was seen

    async def depth(self) -> int:
        """Return how many messages wait; unacknowledged ones are not counted."""
        channel = await self._broker.channel()
        try:
            with _translating(self.place):
                declared = spec.Queue.Declare(queue=self.place, passive=True)
                answer = await channel.call(declared)
        except NotFound:
            await self._broker.check_queue(self.place)
            raise
        finally:
            channel.close()
        assert isinstance(answer, spec.Queue.DeclareOk)
        return answer.message_count or 0

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """
        Take up to `limit` messages; they stay unacknowledged until they are forgotten.

        The broker hands us no more than these: a message that is handed out and comes
        back counts as delivered, and a quorum queue may have a limit on that.
        """
        channel = await self._open()
        came = self._came
        with _translating(self.place):
            await channel.call(spec.Basic.Qos(prefetch_count=min(limit, _MOST)))
            begun = await channel.call(spec.Basic.Consume(queue=self.place))
            assert isinstance(begun, spec.Basic.ConsumeOk)
            assert begun.consumer_tag  # made by the broker
            contents = await self._gather(channel, limit, wait)
            await channel.call(spec.Basic.Cancel(consumer_tag=begun.consumer_tag))
            while not came.empty():
                contents.append(came.get_nowait())
            self._is_empty = len(contents) < limit
            reads = [_Read(content) for content in contents]
            return await self._named(reads, channel, begun.consumer_tag)

    async def forget(self, found: Sequence[Found]) -> None:
        """Acknowledge messages; those of a broken connection come again."""
        with _translating(self.place):
            for channel, tags in _open_ones(found):
                names = [one.id for one in found]
                if channel is self._channel and self._journal.covers(names):
                    acks = acks_of(channel, tags)
                    await self._journal.forget(channel, names, acks)
                else:
                    channel.ack(tags, ())

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Requeue messages where they were, as far as the broker can."""
        self._journal.drop(one.id for one in found)
        with _translating(self.place):
            for channel, tags in _open_ones(found):
                channel.give_back(tags)

    async def close(self) -> None:
        """Close the channel; the broker requeues what was neither forgotten nor handed back."""
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(*_KNOWN, DeadLetterError):
                if channel.closed is None:
                    await self._journal.close(is_empty=self._is_empty)
                await channel.leave()

    async def _open(self) -> Channel:
        if self._channel is not None and self._channel.closed is None:
            return self._channel
        self._journal.lose()
        self._came = asyncio.Queue()
        channel = await self._broker.channel()
        channel.on_deliver = self._came.put_nowait
        channel.on_cancelled = channel.close
        self._channel = channel
        return channel

    async def _gather(self, channel: Channel, limit: int, wait: float) -> list[Content]:
        contents: list[Content] = []
        looks = max(1, round(wait / _IDLE))
        while len(contents) < limit:
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
            contents.append(content)
            looks = min(looks, 1)
        return contents

    def _lost(self) -> Unavailable:
        return Unavailable(f"the broker closed our channel to {self.place}")

    async def _named(self, came: Sequence["_Read"], channel: Channel, consumer: str) -> list[Found]:
        """Return found messages under their ids, or under names from the journal."""
        bare = [one for one in came if not one.id]
        tag = consumer.removeprefix("amq.ctag-")  # the broker gives it only once
        unnamed = [
            Unnamed(one.digest, one.content.redelivered, f"{tag}-{one.content.tag}") for one in bare
        ]
        names = await self._journal.names(channel, unnamed) if bare else ()
        ids = dict(zip(map(id, bare), names, strict=True))
        return [one.found(self.place, ids.get(id(one)) or one.id, channel) for one in came]


class _Read:
    """A message with its properties read."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self._read = amqp_properties.read(content.properties)
        self._properties = self._read or amqp_properties.Properties()
        self.id = self._properties.text("message_id") or ""

    @property
    def digest(self) -> str:
        """The digest that equal messages share."""
        content = self.content
        return amqp_properties.digest(self._read, content.properties, content.body)

    def found(self, place: str, id_: str, channel: Channel) -> Found:
        """Return the found message under an id."""
        properties, content = self._properties, self.content
        malformed = {MALFORMED: "its properties are malformed"}
        found = Found(
            kind="rabbitmq",
            place=place,
            id=id_,
            body=content.body,
            headers=tuple(
                (name, amqp_properties.as_bytes(amqp_properties.value_of(value)))
                for name, value in properties.headers or ()
            ),
            about=malformed if self._read is None else {},
            at=properties.timestamp,
            content_type=properties.text("content_type"),
            reply_to=properties.text("reply_to"),
            receipt=(channel, content.tag),
        )
        return structs.replace(found, raw=amqp_properties.kept(properties, way_of(found)))


class RabbitSink:
    """Sink of one queue."""

    def __init__(self, broker: RabbitMQ, mailbox: str) -> None:
        self.mailbox = mailbox
        self._broker = broker

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Publish messages in order, confirmed, with their original properties.

        What leads to no queue comes back to us, and was not sent. What a replay had
        sent when it was killed is not sent again.
        """
        if not messages:
            return
        await self._broker.check_queue(self.mailbox)
        targets = [self._target(message) for message in messages]
        refused = await self._missing(targets)
        marks = self._broker.marks(messages[0], self.mailbox)
        copies = [_copy_of(message) for message in messages]
        with _translating(self.mailbox):
            before = await marks.sent(copies) if messages[0].lineage else set()
        going = [n for n, copy in enumerate(copies) if n not in refused and copy not in before]
        try:
            refused |= await self._publish(going, messages, targets, marks)
        except BaseException:
            marks.lose()
            raise
        marks.note(copies[n] for n in going if n not in refused)
        self._tell(refused, len(messages))

    def _tell(self, refused: dict[int, DeadLetterError], count: int) -> None:
        if not refused:
            return
        first = next(iter(refused.values()))
        if len(refused) == count and {str(e) for e in refused.values()} == {str(first)}:
            raise first
        raise PartlySent(sent=set(range(count)) - set(refused), refused=refused)

    def _target(self, message: Message) -> Target:
        way = amqp_properties.way_back(message)
        # Another queue than its own is one that somebody has named.
        if self._broker.is_straight or way.queue != self.mailbox or not way.exchange:
            return self.mailbox
        return way.exchange, way.routing_key

    async def _missing(self, targets: Sequence[Target]) -> dict[int, DeadLetterError]:
        """Return errors of targets whose exchange is gone: publishing would end the channel."""
        exchanges = {target[0] for target in targets if not isinstance(target, str)}
        gone = [one for one in sorted(exchanges) if not await self._broker.has(one)]
        return {
            n: NotFound(
                f"the exchange {target[0]!r} that the message came from is gone: make"
                " it again, or add ?back=queue to the URL of the server"
            )
            for n, target in enumerate(targets)
            if not isinstance(target, str) and target[0] in gone
        }

    async def _publish(
        self,
        going: Sequence[int],
        messages: Sequence[Message],
        targets: Sequence[Target],
        marks: Marks,
    ) -> dict[int, DeadLetterError]:
        """Publish some messages, each with its mark; return the errors of refused ones."""
        mail: list[tuple[Target, bytes, bytes]] = []
        places: list[int] = []  # whose each of them is
        for n in going:
            one = messages[n]
            mark = marks.mail(_copy_of(one)) if one.lineage is not None else []
            mail += [(targets[n], amqp_properties.written(one), one.body), *mark]
            places += [n] * (1 + len(mark))
        if not mail:
            return {}
        channel = await self._broker.channel()
        try:
            with _translating(self.mailbox):
                await channel.call(spec.Confirm.Select())
                batch = await channel.publish(mail)
        finally:
            channel.close()
        full = Refused(f"queue {self.mailbox!r} does not take it: is it full?")
        failed: dict[int, DeadLetterError] = {places[at]: full for at in batch.refused}
        back = {amqp_properties.replayed_letter(one) for one in batch.returned}
        for n in going:
            is_back = _letter_of(messages[n]) in back
            if is_back and _key(targets[n]) in batch.nowhere:
                failed[n] = self._nowhere(targets[n])
        return failed

    def _nowhere(self, target: Target) -> NotFound:
        if isinstance(target, str):
            return _no_queue(self.mailbox)
        exchange, key = target
        return NotFound(
            f"no queue is bound to the exchange {exchange!r} for the routing key"
            f" {key!r}: bind one, or add ?back=queue to the URL of the server"
        )


def _key(target: Target) -> str:
    return target if isinstance(target, str) else target[1]


def _letter_of(message: Message) -> str:
    return message.lineage.letter_id if message.lineage else ""


def _copy_of(message: Message) -> bytes:
    """Return the name of a copy: its letter and generation."""
    return f"{_letter_of(message)}~{message.generation}".encode()


def near_names(queue: str) -> list[str]:
    """
    Return names that a person may have meant, likely ones first.

    The same words with other separators, in lower case, in singular or plural, and the
    name with another word for a dead queue at its end. Brokers do not list queues.
    """
    words = [word for word in re.split(r"[.:_-]+", queue) if word]
    head = words[:-1] if len(words) > 1 else words
    names = [*(sep.join(words) for sep in _SEPARATORS), queue.lower(), queue.strip()]
    ends = [(word, word[:-1] if word[-1] in "sS" else f"{word}s") for word in words]
    names += [queue.replace(one, other, 1) for one, other in ends]
    names += [
        sep.join((*head, word.replace("-", "_" if sep == "_" else "-")))
        for word in _DEAD
        for sep in _SEPARATORS[:3]
    ]
    return [name for name in dict.fromkeys(names) if name and name != queue]


def _open_ones(found: Sequence[Found]) -> Iterator[tuple[Channel, set[int]]]:
    """Yield the tags of messages by open channel; messages of closed channels come again."""
    tags: defaultdict[Channel, set[int]] = defaultdict(set)
    for one in found:
        channel, tag = one.receipt
        if channel.closed is None:
            tags[channel].add(tag)
    yield from tags.items()


@contextmanager
def _translating(queue: str = "") -> Iterator[None]:
    try:
        yield
    except _KNOWN as error:
        if isinstance(error, Closed) and error.code == _MISSING:
            raise _no_queue(queue) from error
        raise translated(error) from error


def _no_queue(queue: str, near: Sequence[str] = ()) -> NotFound:
    there = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return NotFound(f"there is no queue {queue!r} on that broker{there}")
