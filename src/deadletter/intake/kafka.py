"""
Dead-letter topics of Kafka, and the way back to the topics they are for.

A topic forgets nothing: what was kept is committed, by a consumer group of our own.
Offsets are committed only up to the first record that is not kept yet.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from time import monotonic, sleep
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
from deadletter.core.dialects.values import millis, number
from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    NotFound,
    PartlySent,
    Refused,
    Unavailable,
)
from deadletter.core.message import Message
from deadletter.ports import Arrival, Clock, CopyName, CopyState, CopyTrace, SentCopy

from . import kafka_copies
from .addresses import KafkaAddress, is_called_dead, near_names, read_kafka
from .kafka_copies import Search, Spot

Place: TypeAlias = tuple[str, int]

# ruff: noqa: SLF001 -- what the library itself finds, it names with an underscore
_EOF: Final = KafkaError._PARTITION_EOF
_PATIENCE: Final = 10.0  # seconds for a call
_LET_IN: Final = 30.0  # seconds to be let into the group
_MOST_COPIES: Final = 100_000  # whose offsets are remembered
_ANSWER: Final = 5.0  # seconds to say which topics there are
_SESSION: Final = 10.0  # seconds after which the group does without one that was killed
_DELIVERY: Final = 8.0  # seconds for a record; afterwards it is not sent any more
_POLL: Final = 0.25
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
_STARTING: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
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
    KafkaError.INVALID_RECORD: (Refused, "the topic does not take such records"),
    KafkaError.POLICY_VIOLATION: (Refused, "the topic does not take such records"),
}


class Slip(Struct, frozen=True, array_like=True):
    """What of a record has no place in a message."""

    tombstone: bool = False  # it has no value
    # Headers without a value: a name, and which of the headers of that name.
    nulls: tuple[str | tuple[str, int], ...] = ()
    partition: int | None = None  # of the record in the dead-letter topic


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
        self._copies: dict[CopyName, Spot | None] = {}  # None: not found

    async def places(self) -> Sequence[str]:
        """Topics that are called like dead-letter topics."""
        return [name for name in await self.topics() if is_called_dead(name)]

    async def topics(self) -> dict[str, int]:
        """All topics but Kafka's own, by name, and how many partitions they have."""
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
        return {
            name: len(topic.partitions)
            for name, topic in sorted(found.topics.items())
            if not name.startswith("__")
        }

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; NotFound if there is none of that name."""
        topics = await self.topics()
        if topic not in topics:
            near = near_names(topic, topics)
            raise NotFound(f"there is no topic {topic!r} on that cluster.{near}")
        return topics[topic]

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
        settings.setdefault("session.timeout.ms", int(_SESSION * 1000))
        return KafkaDrain(self, place, settings)

    def sink(self, mailbox: str) -> "KafkaSink":
        """The way back to a topic."""
        return KafkaSink(self, mailbox, self._address.keep)

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """
        Compare the offsets of copies with those that their consumer group committed.

        The group is the one that the URL names, or that the letter's headers name.
        Copies that another process sent are looked for in their topics, once.
        """
        named = [self._address.consumer or _group_of(copy.message) for copy in copies]
        await self._search(
            [copy for copy, group in zip(copies, named, strict=True) if group]
        )
        groups: dict[str, set[Place]] = {}
        asked: list[tuple[str, Spot] | None] = []
        for copy, group in zip(copies, named, strict=True):
            at = self._copies.get(copy.name) if group else None
            asked.append(None if at is None else (group, at))
            if at is not None:
                groups.setdefault(group, set()).add((at.topic, at.partition))
        committed: dict[tuple[str, Place], int] = {}
        for group, places in groups.items():
            for one in await asyncio.to_thread(self._committed, group, places):
                committed[group, (one.topic, one.partition)] = one.offset
        return [_state(one, committed) for one in asked]

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """Look into the topics for copies, by the letters that they carry."""
        doubts = await self._search(copies)
        return [self._trace(copy, doubts.get(copy.mailbox, "")) for copy in copies]

    def _trace(self, copy: SentCopy, doubt: str) -> CopyTrace:
        if (at := self._copies.get(copy.name)) is not None:
            return CopyTrace(Arrival.ARRIVED, signature=at.signature)
        return CopyTrace(Arrival.LOST if doubt else Arrival.MISSING, doubt)

    async def _search(self, copies: Sequence[SentCopy]) -> dict[str, str]:
        """Look for copies that nobody has looked for; by topic, what is in doubt."""
        wanted: defaultdict[str, list[SentCopy]] = defaultdict(list)
        for copy in copies:
            if copy.name not in self._copies:
                wanted[copy.mailbox].append(copy)
        topics = await self.topics() if wanted else {}
        doubts: dict[str, str] = {}
        for topic, some in wanted.items():
            done = Search()
            if topic in topics:
                since = min(copy.sent_at for copy in some)
                look = partial(self._searched, topic, topics[topic], since)
                done = await asyncio.to_thread(look)
            doubts[topic] = done.doubt
            for name in {copy.name for copy in some} | done.found.keys():
                self._remember(name, done.found.get(name))
        return doubts

    def _searched(self, topic: str, partitions: int, since: datetime) -> Search:
        settings = kafka_copies.settings(self._settings(), self._address.group)
        consumer = _made(Consumer, settings)
        try:
            # Copies that keep the time of their record can be anywhere.
            from_time = None if "timestamp" in self._address.keep else since
            return kafka_copies.search(consumer, topic, partitions, since=from_time)
        except KafkaException as error:
            raise _in_our_words(error.args[0], topic) from error
        finally:
            consumer.close()

    def _committed(self, group: str, places: set[Place]) -> list[TopicPartition]:
        consumer = _made(Consumer, {**self._settings(), "group.id": group})
        try:
            wanted = [TopicPartition(*place) for place in sorted(places)]
            found = _committed(consumer, wanted)
        except KafkaException as error:
            raise _in_our_words(error.args[0], f"the group {group}") from error
        else:
            return found
        finally:
            consumer.close()

    def note(self, message: Message, record: Record) -> None:
        """Remember where a copy is, to tell later whether it was handled."""
        if message.lineage is not None:
            name = (message.lineage.letter_id, message.lineage.generation)
            place = (str(record.topic()), int(record.partition() or 0))
            self._remember(name, Spot(*place, int(record.offset() or 0)))

    def _remember(self, name: CopyName, at: Spot | None) -> None:
        self._copies[name] = at
        if len(self._copies) > _MOST_COPIES:
            del self._copies[next(iter(self._copies))]

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
                # What was reported as not sent must not be sent later.
                "message.timeout.ms": int(_DELIVERY * 1000),
            }
            self._producer = _made(Producer, {**settings, **self._settings()})
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
            if not self._at_end and waited >= max(wait, _LET_IN):
                raise Unavailable(
                    f"no partition of {self.place} was given to us in {_LET_IN:.0f} s:"
                    " does another drain of the same group read it?"
                )
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
            await self._kafka.partitions(self.place)
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
        for place in _committed(consumer, places):
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

    def __init__(
        self, kafka: Kafka, mailbox: str, keep: frozenset[str] = frozenset()
    ) -> None:
        self.mailbox = mailbox
        self._kafka = kafka
        self._keep = keep

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send them with key, value and headers as they were; all are confirmed."""
        partitions = await self._kafka.partitions(self.mailbox)
        sent: set[int] = set()
        errors: dict[int, DeadLetterError] = {}
        producer = self._kafka.producer()

        def heard(place: int, error: KafkaError | None, record: Record) -> None:
            if error is not None:
                errors[place] = _in_our_words(error, self.mailbox)
            else:
                sent.add(place)
                self._kafka.note(messages[place], record)

        for place, message in enumerate(messages):
            try:
                record = self._record(message, partitions)
                await self._produce(record, partial(heard, place))
            except Refused as error:
                errors[place] = error
        left = await asyncio.to_thread(producer.flush, _PATIENCE)
        refused = {n: error for n, error in errors.items() if _is_final(error)}
        cause = next((one for one in errors.values() if not _is_final(one)), None)
        if left and cause is None:
            cause = Unavailable(
                f"{self.mailbox}: Kafka has not confirmed {left} records"
            )
        if refused or cause is not None:
            raise PartlySent(sent=sent, refused=refused, cause=cause)

    async def _produce(self, record: dict[str, Any], heard: partial[None]) -> None:
        producer = self._kafka.producer()
        while True:
            try:
                producer.produce(self.mailbox, **record, on_delivery=heard)
            except BufferError:
                await asyncio.to_thread(producer.poll, _POLL)
            except KafkaException as error:
                raise _in_our_words(error.args[0], self.mailbox) from error
            else:
                return

    def _record(self, message: Message, partitions: int) -> dict[str, Any]:
        record = _record(message)
        if "timestamp" in self._keep:
            record["timestamp"] = round(message.sent_at.timestamp() * 1000)
        if "partition" in self._keep and (at := self._partition(message)) is not None:
            if at >= partitions:
                raise Refused(
                    f"message {message.id} was in partition {at}, and {self.mailbox}"
                    f" has {partitions}: send it without ?keep=partition"
                )
            record["partition"] = at
        return record

    def _partition(self, message: Message) -> int | None:
        """The partition that its id names, or the one of the dead-letter topic."""
        _, *told = message.id.rsplit("/", 2)
        if len(told) == 2 and None not in (numbers := [number(one) for one in told]):
            return numbers[0]
        return _slip(message).partition


def _is_final(error: DeadLetterError) -> bool:
    return isinstance(error, Refused | NotFound | ConfigError)


def _group_of(message: Message) -> str:
    origin = origin_of(message)
    said = {} if origin is None else origin.said
    connector = said.get("connector", "")
    group = said.get("consumer_group", "")
    return group or (f"connect-{connector}" if connector else "")


def _state(
    asked: tuple[str, Spot] | None, committed: dict[tuple[str, Place], int]
) -> CopyState:
    if asked is None:
        return CopyState.UNKNOWN
    group, at = asked
    offset = committed.get((group, (at.topic, at.partition)), -1)
    if offset < 0:
        return CopyState.UNKNOWN  # nobody has committed anything there
    return CopyState.HANDLED if offset > at.offset else CopyState.THERE


def _committed(
    consumer: Consumer, places: list[TopicPartition]
) -> list[TopicPartition]:
    """Return committed offsets, once a coordinator that is just starting knows them."""
    deadline = monotonic() + _PATIENCE
    while True:
        try:
            return consumer.committed(places, _PATIENCE)
        except KafkaException as error:
            if error.args[0].code() not in _STARTING or monotonic() > deadline:
                raise
            sleep(_POLL)


class _Moved(Unavailable):
    """The group has given our partitions to somebody else."""


def _found(record: Record, place: Place, offset: int) -> Found:
    headers = _headers(record)
    key, value = record.key(), record.value()
    _, stamp = record.timestamp()
    position = f"{place[0]}/{place[1]}/{offset}"
    slip = Slip(value is None, tuple(_nulls(headers)), place[1])
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


def _nulls(headers: list[tuple[str, bytes | str | None]]) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for name, value in headers:
        seen[name] += 1
        if value is None:
            yield name, seen[name]


def _slip(message: Message) -> Slip:
    origin = origin_of(message)
    if origin is not None and origin.kind == "kafka":
        with suppress(msgspec.MsgspecError):
            return _unpack(origin.raw)
    return Slip()


def _record(message: Message) -> dict[str, Any]:
    slip = _slip(message)
    seen: Counter[str] = Counter()
    headers: list[tuple[str, bytes | None]] = []
    for name, value in unmarked(message).headers:
        seen[name] += 1
        is_null = name in slip.nulls or (name, seen[name]) in slip.nulls
        headers.append((name, None if is_null and not value else value))
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
