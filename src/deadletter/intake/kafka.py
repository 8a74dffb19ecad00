"""
Dead-letter topics of Kafka, and the way back to the topics they are for.

A topic forgets nothing: what was kept is committed, by a consumer group of our own.
Offsets are committed only up to the first record that is not kept yet.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Record
from msgspec import Struct

from deadletter.core.dialects import Found, lineage_headers, origin_of, unmarked
from deadletter.core.dialects.values import millis
from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.core.message import Message
from deadletter.ports import Clock

from .addresses import KafkaAddress, read_kafka

Place: TypeAlias = tuple[str, int]

# ruff: noqa: SLF001 -- what the library itself finds, it names with an underscore
_EOF: Final = KafkaError._PARTITION_EOF
_PATIENCE: Final = 10.0  # seconds for a call, and to be let into the group
_ANSWER: Final = 5.0  # seconds to say which topics there are
_POLL: Final = 0.25
_BEGIN: Final = ("dlq.", "dlt.")
_END: Final = (".dlt", "-dlt", "_dlt", ".dlq", "-dlq", "_dlq")
# The group moved on without us: what we held is somebody else's, or comes again.
_MOVED_ON: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._STATE,
    }
)
_WRONG: Final[dict[int, tuple[type[DeadLetterError], str]]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: (NotFound, "there is no such topic"),
    KafkaError._UNKNOWN_TOPIC: (NotFound, "there is no such topic"),
    KafkaError._UNKNOWN_PARTITION: (NotFound, "there is no such topic"),
    KafkaError.TOPIC_EXCEPTION: (ConfigError, "this cannot be a topic's name"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (ConfigError, "we may not use this topic"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        ConfigError,
        "we may not use this consumer group: name another one with ?group=",
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: (
        ConfigError,
        "put the right user and password into the URL",
    ),
    KafkaError._INVALID_ARG: (ConfigError, "the Kafka URL has a wrong setting"),
    KafkaError.MSG_SIZE_TOO_LARGE: (Refused, "the record is too large for its topic"),
}


class Slip(Struct, frozen=True, array_like=True):
    """What of a record has no place in a message: values that are not there."""

    tombstone: bool = False
    nulls: tuple[str, ...] = ()  # headers without a value


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Slip).decode


async def open_kafka(url: str, *, clock: Clock) -> "Kafka":
    """The cluster that a URL names."""
    kafka = Kafka(read_kafka(url))
    await kafka.topics()
    return kafka


class Kafka:
    """The topics of one cluster."""

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._producer: Producer | None = None
        self._heard: deque[KafkaError] = deque(maxlen=10)

    async def places(self) -> Sequence[str]:
        """Topics that are called like dead-letter topics."""
        return [
            name
            for name in await self.topics()
            if name.lower().startswith(_BEGIN) or name.lower().endswith(_END)
        ]

    async def topics(self) -> list[str]:
        """All topics but Kafka's own."""
        try:
            found = await asyncio.to_thread(self.producer().list_topics, None, _ANSWER)
        except KafkaException as error:
            self.producer().poll(0)  # then it says why
            nobody = KafkaError._ALL_BROKERS_DOWN
            reasons = [said.str() for said in self._heard if said.code() != nobody]
            raise Unavailable(
                f"no answer from {self._address.bootstrap}: is Kafka running, and is "
                f"the URL right? ({reasons[0] if reasons else error})"
            ) from error
        return sorted(name for name in found.topics if not name.startswith("__"))

    def drain(self, place: str) -> "KafkaDrain":
        """The way into a topic."""
        settings = {
            **self._settings(),
            "group.id": self._address.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
        return KafkaDrain(self, place, settings)

    def sink(self, mailbox: str) -> "KafkaSink":
        """The way back to a topic."""
        return KafkaSink(self, mailbox)

    async def close(self) -> None:
        """Let go of the connections."""
        if self._producer is not None:
            await asyncio.to_thread(self._producer.flush, _PATIENCE)

    def producer(self) -> Producer:
        """The one producer; equal keys go where Java's clients put them."""
        if self._producer is None:
            settings = {
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "error_cb": self._heard.append,
            }
            self._producer = _made(Producer, {**self._settings(), **settings})
        return self._producer

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._address.bootstrap,
            "log_level": 0,
            **self._address.client,
        }


class KafkaDrain:
    """One topic, read as it is."""

    def __init__(self, kafka: Kafka, place: str, settings: dict[str, Any]) -> None:
        self.place = place
        self._kafka = kafka
        self._settings = settings
        self._consumer: Consumer | None = None
        self._at_end: dict[Place, bool] = {}  # of the partitions that are ours
        self._next: dict[Place, int] = {}
        self._held: dict[Place, set[int]] = {}  # taken, not forgotten

    async def depth(self) -> int:
        """How many records are not committed yet."""
        consumer = await self._open()
        return int(await self._call(partial(self._count, consumer)))

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Up to `limit` records that were not taken yet."""
        consumer = await self._open()
        found: list[Found] = []
        waited = 0.0
        while len(found) < limit:
            consume = partial(consumer.consume, min(limit - len(found), 500), _POLL)
            records = await self._call(consume)
            found += [one for r in records if (one := self._read(r)) is not None]
            is_over = bool(self._at_end) and all(self._at_end.values())
            waited += 0.0 if records else _POLL
            if is_over and (found or waited >= wait):
                break
            if not self._at_end and waited >= max(wait, _PATIENCE):
                raise Unavailable(f"no partition of {self.place} was given to us yet")
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Commit what is kept, up to the first record that is not."""
        offsets: dict[Place, int] = {}
        for one in found:
            topic, partition, offset = one.receipt
            place = (topic, partition)
            if place not in self._next:
                continue  # somebody else's by now
            self._held[place].discard(offset)
            offsets[place] = min(self._held[place], default=self._next[place])
        consumer = self._consumer
        if not offsets or consumer is None:
            return
        wanted = [TopicPartition(*place, at) for place, at in offsets.items()]
        try:
            await self._call(
                partial(consumer.commit, offsets=wanted, asynchronous=False)
            )
        except _Moved:
            return  # they come again, to whoever has the partition now

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Nothing is committed: they are there still."""

    async def close(self) -> None:
        """Leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await asyncio.to_thread(consumer.close)

    async def _open(self) -> Consumer:
        if self._consumer is None:
            if self.place not in await self._kafka.topics():
                raise NotFound(f"there is no topic {self.place!r} on that cluster")
            consumer = _made(Consumer, self._settings)
            consumer.subscribe(
                [self.place], on_assign=self._ours, on_revoke=self._not_ours
            )
            self._consumer = consumer
        return self._consumer

    def _count(self, consumer: Consumer) -> int:
        about = consumer.list_topics(self.place, _PATIENCE).topics[self.place]
        places = [TopicPartition(self.place, number) for number in about.partitions]
        left = 0
        for place in consumer.committed(places, _PATIENCE):
            low, high = consumer.get_watermark_offsets(place, _PATIENCE)
            left += max(0, high - max(low, place.offset))
        return left

    def _ours(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._at_end[one.topic, one.partition] = False

    def _not_ours(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            place = (one.topic, one.partition)
            for what in (self._at_end, self._next, self._held):
                what.pop(place, None)

    def _read(self, record: Record) -> Found | None:
        place = (str(record.topic()), int(record.partition() or 0))
        error = record.error()
        if error is not None:
            if error.code() == _EOF:
                self._at_end[place] = True
                return None
            raise _in_our_words(error, self.place)
        self._at_end[place] = False
        offset = int(record.offset() or 0)
        self._next[place] = offset + 1
        self._held.setdefault(place, set()).add(offset)
        return _found(record, place, offset)

    async def _call(self, call: partial[Any]) -> Any:
        try:
            return await asyncio.to_thread(call)
        except KafkaException as error:
            raise _in_our_words(error.args[0], self.place) from error


class KafkaSink:
    """The way back to one topic."""

    def __init__(self, kafka: Kafka, mailbox: str) -> None:
        self.mailbox = mailbox
        self._kafka = kafka

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send them with key, value and headers as they were; all are confirmed."""
        if self.mailbox not in await self._kafka.topics():
            raise NotFound(f"there is no topic {self.mailbox!r} on that cluster")
        errors: list[KafkaError] = []
        producer = self._kafka.producer()

        def heard(error: KafkaError | None, _: Record) -> None:
            if error is not None:
                errors.append(error)

        for message in messages:
            record = _record(message)
            while True:
                with suppress(BufferError):
                    producer.produce(self.mailbox, **record, on_delivery=heard)
                    break
                await asyncio.to_thread(producer.poll, _POLL)
        left = await asyncio.to_thread(producer.flush, _PATIENCE)
        if errors:
            raise _in_our_words(errors[0], self.mailbox)
        if left:
            raise Unavailable(f"{self.mailbox}: Kafka has not confirmed {left} records")


class _Moved(Unavailable):
    """The group has given our partitions to somebody else."""


def _found(record: Record, place: Place, offset: int) -> Found:
    headers = _headers(record)
    key, value = record.key(), record.value()
    _, stamp = record.timestamp()
    position = f"{place[0]}/{place[1]}/{offset}"
    slip = Slip(value is None, tuple(name for name, v in headers if v is None))
    return Found(
        kind="kafka",
        place=place[0],
        id=position,
        body=_bytes(value),
        headers=tuple((name, _bytes(v)) for name, v in headers),
        at=millis(stamp) if stamp > 0 else None,
        partition=str(place[1]),
        position=position,
        key=None if key is None else _bytes(key).decode("utf-8", "surrogateescape"),
        raw=_pack(slip),
        receipt=(*place, offset),
    )


def _headers(record: Record) -> list[tuple[str, bytes | str | None]]:
    given: Any = record.headers() or ()
    return [(str(name), value) for name, value in given]


def _record(message: Message) -> dict[str, Any]:
    origin = origin_of(message)
    slip = Slip()
    if origin is not None and origin.kind == "kafka":
        with suppress(msgspec.MsgspecError):
            slip = _unpack(origin.raw)
    headers = [
        (name, None if name in slip.nulls and not value else value)
        for name, value in unmarked(message).headers
    ]
    key = message.key
    return {
        "key": None if key is None else key.encode("utf-8", "surrogateescape"),
        "value": None if slip.tombstone and not message.body else message.body,
        "headers": [*headers, *lineage_headers(message.lineage)],
    }


def _bytes(value: bytes | str | None) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else bytes(value)


def _made(kind: Any, settings: dict[str, Any]) -> Any:
    try:
        return kind(settings)
    except KafkaException as error:
        raise ConfigError(f"the Kafka URL has a wrong setting: {error}") from error


def _in_our_words(error: KafkaError, where: str) -> DeadLetterError:
    if error.code() in _MOVED_ON:
        return _Moved(f"{where}: our group was given out anew")
    kind, words = _WRONG.get(error.code(), (Unavailable, "Kafka cannot do this now"))
    return kind(f"{where}: {words} ({error.str()})")
