"""
Drain of dead-letter topics, and the way back to the topics they belong to.

A topic keeps its records: what the office has stored is committed by a consumer group
of the drain. Offsets are committed up to the first record that is not stored yet.

Copies that replays sent are found by a search of their topic: each carries its letter and
generation in headers. A search reads from the time of the first copy to the end of the
topic, up to a limit of records.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record
from confluent_kafka.admin import AdminClient
from msgspec import Struct

from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    NotFound,
    PartlySent,
    Refused,
    Unavailable,
)
from deadletter.core.message import Lineage, Message
from deadletter.core.origin import REPLAY_OF, millis, number
from deadletter.intake.dialects import Found, lineage_headers, lineage_of, origin_of, unmarked
from deadletter.kit import is_called_dead, near_names
from deadletter.ports import Arrival, Clock, CopyName, CopyState, CopyTrace, SentCopy

from .address import DRAIN_GROUP, Address, read_url
from .connection import CONSUMER, PRODUCER, Outcome, Outgoing, Sender, client_settings, open_admin
from .errors import PARTITION_EOF, REBALANCING, from_code, has_code, translated, translating
from .partitions import Place
from .records import Raw, RawHeaders
from .topics import Groups, Topics

MOST_READ: Final = 500_000  # records that one search reads
_MARGIN: Final = 120.0  # seconds for differing clocks and slow batches
_MAX_TIME: Final = 60.0  # seconds that one search reads
_ANSWER: Final = 10.0  # seconds for a call
_SEARCH_BATCH: Final = 1_000  # records at once
_SEARCH_POLL: Final = 0.25
_SEARCH: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # A transaction left open must not hide the records after it.
    "isolation.level": "read_uncommitted",
}


class CopyPosition(Struct, frozen=True):
    """Position of a copy, and its signature."""

    topic: str
    partition: int
    offset: int
    signature: str = ""


class Search(Struct, frozen=True):
    """Positions of copies, and why others may be missing from them."""

    found: dict[CopyName, CopyPosition] = {}
    doubt: str = ""  # empty: copies that were not found do not exist


def search(consumer: Consumer, topic: str, partitions: int, *, since: datetime | None) -> Search:
    """
    Find the copies that a topic received since a time, or all without one.

    Raises KafkaException if the cluster does not answer.
    """
    whole = [TopicPartition(topic, number) for number in range(partitions)]
    ends = {one.partition: consumer.get_watermark_offsets(one, _ANSWER) for one in whole}
    starts = {number: low for number, (low, _) in ends.items()}
    doubt = ""
    if since is not None:
        starts = _starts(consumer, whole, ends, since)
    if any(low and starts[number] == low for number, (low, _) in ends.items()):
        doubt = f"{topic} has deleted records of that time"
    left = {number: high for number, (_, high) in ends.items() if starts[number] < high}
    size = sum(high - starts[number] for number, high in left.items())
    if size > MOST_READ:
        return Search(doubt=f"{topic} received {size:,} records since then, too many to search")
    if not left:
        return Search(doubt=doubt)
    consumer.assign([TopicPartition(topic, n, starts[n]) for n in left])
    found = dict(_copies(consumer, left))
    if left:
        doubt = f"{topic} was not read to its end within {_MAX_TIME:.0f} s"
    return Search(found, doubt)


def _starts(
    consumer: Consumer,
    whole: Sequence[TopicPartition],
    ends: Mapping[int, tuple[int, int]],
    since: datetime,
) -> dict[int, int]:
    """Return the first offset of each partition at or after a time."""
    at = round((since.timestamp() - _MARGIN) * 1000)
    asked = [TopicPartition(one.topic, one.partition, at) for one in whole]
    starts: dict[int, int] = {}
    for one in consumer.offsets_for_times(asked, _ANSWER):
        if one.error is not None:
            raise KafkaException(one.error)
        low, high = ends[one.partition]
        starts[one.partition] = one.offset if one.offset >= 0 else high
        if low == high:
            starts[one.partition] = low
    return starts


def _copies(consumer: Consumer, left: dict[int, int]) -> Iterator[tuple[CopyName, CopyPosition]]:
    """Read partitions up to the offsets in `left`; remove finished ones from it."""
    deadline = monotonic() + _MAX_TIME
    while left and monotonic() < deadline:
        for record in consumer.consume(_SEARCH_BATCH, _SEARCH_POLL):
            partition, offset = int(record.partition() or 0), int(record.offset() or 0)
            error = record.error()
            if error is not None:
                if error.code() != PARTITION_EOF:
                    raise KafkaException(error)
                left.pop(partition, None)
                continue
            if offset + 1 >= left.get(partition, 0):
                left.pop(partition, None)
            lineage = _lineage(record)
            if lineage is not None:
                spot = CopyPosition(str(record.topic()), partition, offset, lineage.signature)
                yield (lineage.letter_id, lineage.generation), spot


def _lineage(record: Record) -> Lineage | None:
    given: Any = record.headers() or ()
    headers = tuple((name, bytes(value or b"")) for name, value in given)
    if not any(name == REPLAY_OF for name, _ in headers):
        return None
    return lineage_of(headers)


def search_settings(consumer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer that reads without joining its group."""
    return {**consumer, **_SEARCH}


_JOIN: Final = 30.0  # seconds to get partitions from the group
_MAX_COPIES: Final = 100_000  # copies whose positions are remembered
_DELIVERY: Final = 8.0  # seconds to deliver a record; after that it is never sent
_POLL: Final = 0.25
_BATCH: Final = 500  # records read at once


class RecordExtras(Struct, frozen=True, array_like=True):
    """Parts of a record that a message has no field for."""

    tombstone: bool = False  # the record has no value
    # Headers without a value: a name, and its place among the headers of that name.
    nulls: tuple[str | tuple[str, int], ...] = ()
    partition: int | None = None  # of the record in the dead-letter topic


_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(RecordExtras).decode


async def open_kafka(url: str, *, clock: Clock) -> "Kafka":
    """Connect to the cluster of a URL."""
    address = read_url(url, group=DRAIN_GROUP)
    admin, _ = await open_admin(address)
    return Kafka(address, admin)


class Kafka:
    """Dead-letter topics of one cluster."""

    def __init__(self, address: Address, admin: AdminClient) -> None:
        client = client_settings(address)
        self.group = address.group
        self.consumer_settings = {**CONSUMER, **client, "group.id": address.group}
        self.topics = Topics(admin)
        self.groups = Groups({**CONSUMER, **client})
        # A record that was reported as not sent must not be sent later.
        timeout = {"delivery.timeout.ms": int(_DELIVERY * 1000)}
        self.sender = Sender({**PRODUCER, **timeout, **client})
        self._address = address
        self._positions: dict[CopyName, CopyPosition | None] = {}  # None: not found

    async def places(self) -> Sequence[str]:
        """List topics whose names say that they hold dead letters."""
        return sorted(name for name in await self.topics.names() if is_called_dead(name))

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; NotFound if it does not exist."""
        topics = await self.topics.names()
        if topic not in topics:
            near = near_names(topic, topics)
            raise NotFound(f"there is no topic {topic!r} on that cluster.{near}")
        return topics[topic]

    def drain(self, place: str) -> "KafkaDrain":
        """Return the drain of a topic."""
        return KafkaDrain(self, place)

    def sink(self, mailbox: str) -> "KafkaSink":
        """Return the way back to a topic."""
        return KafkaSink(self, mailbox, self._address.keep)

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """
        Compare the offsets of copies with those that their consumer group committed.

        The URL or the headers of the letter name the group. Copies that another
        process sent are searched for in their topics, once.
        """
        named = [self._address.consumer or _group_of(copy.message) for copy in copies]
        await self._search([copy for copy, group in zip(copies, named, strict=True) if group])
        places: dict[str, set[Place]] = {}
        known: list[tuple[str, CopyPosition] | None] = []
        for copy, group in zip(copies, named, strict=True):
            at = self._positions.get(copy.name) if group else None
            known.append(None if at is None else (group, at))
            if at is not None:
                places.setdefault(group, set()).add((at.topic, at.partition))
        committed = {
            group: await self.groups.committed(group, sorted(theirs))
            for group, theirs in places.items()
        }
        return [_state(one, committed) for one in known]

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """Search the topics for copies, by the letters that they carry."""
        doubts = await self._search(copies)
        return [self._trace(copy, doubts.get(copy.mailbox, "")) for copy in copies]

    def remember(self, message: Message, record: Record) -> None:
        """Remember the position of a copy, to tell later whether it was processed."""
        if message.lineage is not None:
            name = (message.lineage.letter_id, message.lineage.generation)
            place = (str(record.topic()), int(record.partition() or 0))
            self._remember(name, CopyPosition(*place, int(record.offset() or 0)))

    async def close(self) -> None:
        """Send what is under way, and disconnect."""
        await self.sender.close()

    def _trace(self, copy: SentCopy, doubt: str) -> CopyTrace:
        if (at := self._positions.get(copy.name)) is not None:
            return CopyTrace(Arrival.ARRIVED, signature=at.signature)
        return CopyTrace(Arrival.LOST if doubt else Arrival.MISSING, doubt)

    async def _search(self, copies: Sequence[SentCopy]) -> dict[str, str]:
        """Search for copies of unknown position; return doubts by topic."""
        wanted: defaultdict[str, list[SentCopy]] = defaultdict(list)
        for copy in copies:
            if copy.name not in self._positions:
                wanted[copy.mailbox].append(copy)
        topics = await self.topics.names() if wanted else {}
        doubts: dict[str, str] = {}
        for topic, some in wanted.items():
            result = Search()
            if topic in topics:
                since = min(copy.sent_at for copy in some)
                result = await asyncio.to_thread(self._searched, topic, topics[topic], since)
            doubts[topic] = result.doubt
            for name in {copy.name for copy in some} | result.found.keys():
                self._remember(name, result.found.get(name))
        return doubts

    def _searched(self, topic: str, partitions: int, since: datetime) -> Search:
        with translating(f"searching {topic}"):
            consumer = Consumer(search_settings(self.consumer_settings))
            try:
                # Copies that keep the timestamp of their record can be anywhere.
                start = None if "timestamp" in self._address.keep else since
                return search(consumer, topic, partitions, since=start)
            finally:
                consumer.close()

    def _remember(self, name: CopyName, at: CopyPosition | None) -> None:
        self._positions[name] = at
        if len(self._positions) > _MAX_COPIES:
            del self._positions[next(iter(self._positions))]


class KafkaDrain:
    """The records of one topic, read by the drain's group."""

    def __init__(self, kafka: Kafka, place: str) -> None:
        self.place = place
        self._kafka = kafka
        self._consumer: Consumer | None = None
        self._is_at_end: dict[Place, bool] = {}  # of the partitions that are ours
        self._next: dict[Place, int] = {}
        self._held: dict[Place, set[int]] = {}  # offsets taken and not forgotten

    async def depth(self) -> int:
        """Return the number of records that are not committed."""
        await self._open()
        partitions = await self._kafka.partitions(self.place)
        places = [(self.place, partition) for partition in range(partitions)]
        committed = await self._kafka.groups.committed(self._kafka.group, places)
        starts = await self._kafka.topics.starts(places)
        ends = await self._kafka.topics.ends(places)
        return sum(
            max(0, ends[place] - max(starts[place], committed.get(place, 0))) for place in places
        )

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Take up to `limit` records that were not taken yet."""
        consumer = await self._open()
        found: list[Found] = []
        waited = 0.0
        while len(found) < limit:
            size = min(limit - len(found), _BATCH)
            records = await self._call(partial(consumer.consume, size, _POLL))
            found += [one for record in records if (one := self._read(record)) is not None]
            is_over = bool(self._is_at_end) and all(self._is_at_end.values())
            waited += 0.0 if records else _POLL
            if is_over and (found or waited >= wait):
                break
            if not self._is_at_end and waited >= max(wait, _JOIN):
                raise Unavailable(
                    f"the consumer group {self._kafka.group} gave us no partition of"
                    f" {self.place} within {_JOIN:.0f} s: another drain of the same group may"
                    " read it; end it, or name another group with ?group="
                )
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Commit what is stored, up to the first record that is not."""
        offsets: dict[Place, int] = {}
        for one in found:
            topic, partition, offset = one.receipt
            place = (topic, partition)
            if place not in self._next:
                continue  # now assigned to another drain
            self._held[place].discard(offset)
            offsets[place] = min(self._held[place], default=self._next[place])
        consumer = self._consumer
        if not offsets or consumer is None:
            return
        wanted = [TopicPartition(*place, at) for place, at in offsets.items()]
        # After a rebalance the records come again, to the new owner of the partition.
        with suppress(_Rebalanced):
            await self._call(partial(consumer.commit, offsets=wanted, asynchronous=False))

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Do nothing: what is not committed stays."""

    async def close(self) -> None:
        """Leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await asyncio.to_thread(consumer.close)

    async def _open(self) -> Consumer:
        if self._consumer is None:
            await self._kafka.partitions(self.place)
            with translating(f"reading {self.place}"):
                consumer = Consumer(self._kafka.consumer_settings)
                consumer.subscribe(
                    [self.place], on_assign=self._on_assign, on_revoke=self._on_revoke
                )
            self._consumer = consumer
        return self._consumer

    def _on_assign(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._is_at_end[one.topic, one.partition] = False

    def _on_revoke(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            place = (one.topic, one.partition)
            for known in (self._is_at_end, self._next, self._held):
                known.pop(place, None)

    def _read(self, record: Record) -> Found | None:
        place = (str(record.topic()), int(record.partition() or 0))
        error = record.error()
        if error is not None:
            if error.code() == PARTITION_EOF:
                self._is_at_end[place] = True
                return None
            raise from_code(error, f"reading {self.place}")
        self._is_at_end[place] = False
        offset = int(record.offset() or 0)
        self._next[place] = offset + 1
        self._held.setdefault(place, set()).add(offset)
        return _found(record, place, offset)

    async def _call(self, call: partial[Any]) -> Any:
        try:
            return await asyncio.to_thread(call)
        except KafkaException as error:
            if has_code(error, REBALANCING):
                raise _Rebalanced(f"the consumer group of {self.place} rebalances") from error
            raise translated(error, f"reading {self.place}") from error


class KafkaSink:
    """The way back to one topic."""

    def __init__(self, kafka: Kafka, mailbox: str, keep: frozenset[str] = frozenset()) -> None:
        self.mailbox = mailbox
        self._kafka = kafka
        self._keep = keep

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send records with key, value and headers as they were; all are confirmed."""
        partitions = await self._kafka.partitions(self.mailbox)
        refused: dict[int, DeadLetterError] = {}
        going: dict[int, Outgoing] = {}
        for place, message in enumerate(messages):
            try:
                going[place] = self._outgoing(message, partitions)
            except Refused as error:
                refused[place] = error
        outcomes = await self._kafka.sender.send_each(list(going.values()))
        sent: set[int] = set()
        cause: DeadLetterError | None = None
        for place, outcome in zip(going, outcomes, strict=True):
            failure = self._error_of(outcome)
            if failure is None:
                sent.add(place)
                self._kafka.remember(messages[place], outcome)  # type: ignore[arg-type]
            elif isinstance(failure, Refused | NotFound | ConfigError):
                refused[place] = failure
            else:
                cause = cause or failure
        if refused or cause is not None:
            raise PartlySent(sent=sent, refused=refused, cause=cause)

    def _error_of(self, outcome: Outcome) -> DeadLetterError | None:
        if isinstance(outcome, KafkaError):
            return from_code(outcome, f"sending to {self.mailbox}")
        return None

    def _outgoing(self, message: Message, partitions: int) -> Outgoing:
        timestamp = partition = None
        if "timestamp" in self._keep:
            timestamp = round(message.sent_at.timestamp() * 1000)
        if "partition" in self._keep:
            partition = _partition_of(message)
            if partition is not None and partition >= partitions:
                raise Refused(
                    f"message {message.id} was in partition {partition}, and {self.mailbox}"
                    f" has {partitions}: send it without ?keep=partition"
                )
        return Outgoing(self.mailbox, _raw(message), partition, timestamp)


class _Rebalanced(Unavailable):
    """The group has assigned our partitions to another drain."""


def _group_of(message: Message) -> str:
    origin = origin_of(message)
    said = {} if origin is None else origin.said
    connector = said.get("connector", "")
    group = said.get("consumer_group", "")
    return group or (f"connect-{connector}" if connector else "")


def _state(
    known: tuple[str, CopyPosition] | None, committed: dict[str, dict[Place, int]]
) -> CopyState:
    if known is None:
        return CopyState.UNKNOWN
    group, at = known
    offset = committed[group].get((at.topic, at.partition))
    if offset is None:
        return CopyState.UNKNOWN  # the group has committed nothing there
    return CopyState.HANDLED if offset > at.offset else CopyState.THERE


def _found(record: Record, place: Place, offset: int) -> Found:
    headers: Any = record.headers() or ()
    key, value = record.key(), record.value()
    _, stamp = record.timestamp()
    position = f"{place[0]}/{place[1]}/{offset}"
    slip = RecordExtras(value is None, tuple(_nulls(headers)), place[1])
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


def _nulls(headers: Sequence[tuple[str, bytes | str | None]]) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for name, value in headers:
        seen[name] += 1
        if value is None:
            yield name, seen[name]


def _slip_of(message: Message) -> RecordExtras:
    origin = origin_of(message)
    if origin is not None and origin.kind == "kafka":
        with suppress(msgspec.MsgspecError):
            return _unpack(origin.raw)
    return RecordExtras()


def _partition_of(message: Message) -> int | None:
    """Return the partition in the message id, or else that of the dead-letter topic."""
    _, *numbers = message.id.rsplit("/", 2)
    if len(numbers) == 2 and None not in (read := [number(one) for one in numbers]):
        return read[0]
    return _slip_of(message).partition


def _raw(message: Message) -> Raw:
    slip = _slip_of(message)
    seen: Counter[str] = Counter()
    headers: RawHeaders = []
    for name, value in unmarked(message).headers:
        seen[name] += 1
        is_null = name in slip.nulls or (name, seen[name]) in slip.nulls
        headers.append((name, None if is_null and not value else value))
    key = message.key
    return Raw(
        key=None if key is None else key.encode("utf-8", "surrogateescape"),
        value=None if slip.tombstone and not message.body else message.body,
        headers=[*headers, *lineage_headers(message.lineage)],
    )


def _bytes(value: bytes | str | None) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else bytes(value)
