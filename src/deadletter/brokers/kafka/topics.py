"""Topics and consumer groups of a cluster, and the topic with the options of mailboxes."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # not in __all__

from deadletter.core.errors import NotFound
from deadletter.ports.broker import QueueOptions

from .connection import Outgoing, Sender
from .errors import (
    ELECTING,
    PARTITION_EOF,
    REBALANCING,
    from_code,
    has_code,
    translated,
    translating,
)
from .partitions import Place, Progress, read_note
from .records import Raw

_PATIENCE: Final = 20.0  # seconds
_SETTLING: Final = 10.0  # seconds in which a new topic has found its leaders
_EXISTS: Final = frozenset({KafkaError.TOPIC_ALREADY_EXISTS})
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_USUAL_LIMIT: Final = 1_048_588  # of a record's bytes, when we may not ask
ROOM: Final = 512 * 1024  # bytes by which a retry topic's records may be larger


class Topics:
    """Creates, inspects and deletes topics."""

    def __init__(self, admin: AdminClient, *, replication: int = 1) -> None:
        self._admin = admin
        self._replication = replication
        self._limits: dict[str, int] = {}
        self._partitions: dict[str, int] = {}

    async def names(self) -> dict[str, int]:
        """Return the numbers of partitions of all topics but internal ones, by name."""
        with translating("listing topics"):
            found = await asyncio.to_thread(self._admin.list_topics, timeout=_PATIENCE)
        return {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if not name.startswith("__")
        }

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; NotFound if it does not exist."""
        if topic not in self._partitions:
            with translating(f"looking at {topic}"):
                found = await asyncio.to_thread(self._admin.list_topics, topic, timeout=_PATIENCE)
                there = found.topics[topic]
                if there.error is not None:
                    raise KafkaException(there.error)
            self._partitions[topic] = len(there.partitions)
        return self._partitions[topic]

    async def ensure(
        self, topic: str, partitions: int | None, config: Mapping[str, str] | None = None
    ) -> int:
        """Create a topic unless it exists; return its number of partitions."""
        try:
            return await self.partitions(topic)
        except NotFound:
            await self.make(topic, partitions, config or {})
        for _ in range(100):  # the broker may not know it yet
            try:
                return await self.partitions(topic)
            except NotFound:
                await asyncio.sleep(0.05)
        return await self.partitions(topic)

    async def make(self, topic: str, partitions: int | None, config: Mapping[str, str]) -> None:
        """Create a topic; it may exist already."""
        new = NewTopic(topic, partitions or -1, self._replication, config=dict(config))
        try:
            await _all(self._admin.create_topics([new]))
        except KafkaException as error:
            if not has_code(error, _EXISTS):
                raise translated(error, f"creating the topic {topic}") from error

    async def delete(self, topics: Sequence[str]) -> None:
        """Delete topics; they may be missing."""
        for topic in topics:
            self.forget(topic)
        for future in self._admin.delete_topics(list(topics)).values():
            try:
                with translating("deleting topics"):
                    await asyncio.wrap_future(future)
            except NotFound:
                continue

    def forget(self, topic: str) -> None:
        """Drop cached facts about a topic."""
        self._partitions.pop(topic, None)
        self._limits.pop(topic, None)

    async def limit(self, topic: str) -> int:
        """Return the maximum bytes of a record of a topic."""
        if topic not in self._limits:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            limit = _USUAL_LIMIT
            try:
                (config,) = await _all(self._admin.describe_configs([resource]))
                limit = int(config["max.message.bytes"].value)
            except (KafkaException, KeyError, TypeError, ValueError):
                pass  # no permission; the broker enforces its limit
            self._limits[topic] = limit
        return self._limits[topic]

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the end offsets of partitions."""
        with translating("looking for new records"):
            return await self._edges(places, _LATEST)

    async def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the first offsets of partitions."""
        with translating("looking for the first records"):
            return await self._edges(places, _EARLIEST)

    def beginnings(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the first offsets of partitions, from a thread."""
        asked = {TopicPartition(*place): _EARLIEST for place in places}
        if not asked:
            return {}
        answers = self._admin.list_offsets(asked, request_timeout=_PATIENCE)
        return {
            (place.topic, place.partition): answer.result().offset
            for place, answer in answers.items()
        }

    async def _edges(self, places: Iterable[Place], which: OffsetSpec) -> dict[Place, int]:
        asked = {TopicPartition(*place): which for place in places}
        if not asked:
            return {}
        edges = await _patiently(lambda: self._admin.list_offsets(asked, request_timeout=_PATIENCE))
        return {(place.topic, place.partition): edge.offset for place, edge in edges.items()}


async def _patiently(ask: Callable[[], Mapping[Any, Any]]) -> dict[Any, Any]:
    """Return answers; repeat while the cluster elects leaders."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SETTLING
    while True:
        try:
            futures = ask()
            return {key: await asyncio.wrap_future(f) for key, f in futures.items()}
        except KafkaException as error:
            if not has_code(error, ELECTING) or loop.time() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _all(futures: Mapping[Any, Any]) -> list[Any]:
    return [await asyncio.wrap_future(future) for future in futures.values()]


_PAUSE: Final = 0.1  # seconds until a coordinator is asked again


class Groups:
    """
    Committed offsets of consumer groups.

    Read by a consumer that never joins. The admin client could read them too, but it
    crashes the process (librdkafka 2.16) while a broker has no coordinator yet, as
    just after its start.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    async def progress(self, group: str, places: Collection[Place]) -> dict[Place, Progress]:
        """Return the progress of a group; partitions it never worked are left out."""
        known = await self._read(group, places)
        return {
            (place.topic, place.partition): read_note(place.offset, place.metadata)
            for place in known
        }

    async def committed(self, group: str, places: Collection[Place]) -> dict[Place, int]:
        """Return the offsets that a group committed; others are left out."""
        known = await self._read(group, places)
        return {(place.topic, place.partition): place.offset for place in known}

    async def _read(self, group: str, places: Collection[Place]) -> list[TopicPartition]:
        if not places:
            return []
        with translating(f"looking at the group {group}"):
            known = await asyncio.to_thread(self._ask, group, places)
        return [place for place in known if place.offset >= 0]

    def _ask(self, group: str, places: Collection[Place]) -> Sequence[TopicPartition]:
        asked = [TopicPartition(*place) for place in places]
        deadline = time.monotonic() + _PATIENCE
        consumer = Consumer({**self._settings, "group.id": group})
        try:
            while True:
                left = max(_PAUSE, deadline - time.monotonic())
                try:
                    return committed(consumer, asked, within=left)
                except KafkaException as error:
                    if not has_code(error, ELECTING | REBALANCING) or time.monotonic() > deadline:
                        raise
                time.sleep(_PAUSE)
        finally:
            consumer.close()


def committed(
    consumer: Consumer, asked: list[TopicPartition], *, within: float
) -> Sequence[TopicPartition]:
    """Return the committed offsets of a consumer's group; raises the first error."""
    known = consumer.committed(asked, timeout=within)
    for place in known:
        if place.error is not None:
            raise KafkaException(place.error)
    return known


_FRESH: Final = 30.0  # seconds
_decode: Final = msgspec.json.Decoder(QueueOptions).decode


class OptionsTopic:
    """
    Options of mailboxes: a compacted topic of one partition, a record per mailbox.

    Every process reads it now and then, so changes spread within half a minute. The topic
    exists only if options were set.
    """

    def __init__(
        self, topic: str, settings: dict[str, Any], *, topics: Topics, sender: Sender
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._topics = topics
        self._sender = sender
        self._known: dict[str, QueueOptions] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    def known(self, name: str) -> QueueOptions:
        """Return the options of a mailbox, as last read."""
        return self._known.get(name) or QueueOptions(name=name)

    async def read(self, *, fresh: bool = False) -> dict[str, QueueOptions]:
        """Return all options; `fresh` reads them from the broker."""
        async with self._reading:
            age = None if self._read_at is None else time.monotonic() - self._read_at
            if fresh or age is None or age > _FRESH:
                self._known = await self._ask()
                self._read_at = time.monotonic()
        return self._known

    async def set(self, options: QueueOptions) -> None:
        """Store the options of a mailbox."""
        if options == self.known(options.name) == QueueOptions(name=options.name):
            return  # defaults are not stored
        await self._write(options.name, msgspec.json.encode(options))
        self._known = {**self._known, options.name: options}

    async def remove(self, name: str) -> None:
        """Delete the options of a mailbox."""
        if name in self._known:
            await self._write(name, None)
            self._known = {n: o for n, o in self._known.items() if n != name}

    async def _write(self, name: str, value: bytes | None) -> None:
        await self._topics.ensure(self._topic, 1, {"cleanup.policy": "compact"})
        raw = Raw(key=name.encode(), value=value, headers=[])
        await self._sender.send([Outgoing(self._topic, raw, 0)])

    async def _ask(self) -> dict[str, QueueOptions]:
        try:
            await self._topics.partitions(self._topic)
        except NotFound:
            return {}
        ends = await self._topics.ends([(self._topic, 0)])
        return await asyncio.to_thread(self._read_until, ends[self._topic, 0])

    def _read_until(self, end: int) -> dict[str, QueueOptions]:
        found: dict[str, QueueOptions] = {}
        if not end:
            return found
        quick = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        consumer = Consumer({**self._settings, **quick})
        try:
            # Metadata first: otherwise the client takes half a second.
            consumer.list_topics(self._topic, timeout=_PATIENCE)
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                record = consumer.poll(0.5)
                if record is None:
                    continue
                error = record.error()
                if error is not None:
                    if error.code() == PARTITION_EOF:
                        break
                    raise from_code(error, f"reading {self._topic}")
                _apply(found, record.key(), record.value())
        except KafkaException as error:
            raise translated(error, f"reading {self._topic}") from error
        finally:
            consumer.close()
        return found


def _apply(found: dict[str, QueueOptions], key: bytes | None, value: bytes | None) -> None:
    name = (key or b"").decode("utf-8", "replace")
    found.pop(name, None)
    if value is None:
        return
    try:
        options = _decode(value)
    except msgspec.DecodeError:  # of others, or of a later version
        return
    found[name] = options
