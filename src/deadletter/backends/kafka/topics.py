"""Topics themselves: made, measured, deleted."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from deadletter.core.errors import NotFound

from .errors import UNSETTLED, kafka_error, translated
from .rows import Place

_PATIENCE: Final = 20.0  # seconds
_SETTLING: Final = 10.0  # seconds in which a new topic has found its leaders
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_USUAL_LIMIT: Final = 1_048_588  # of a record's bytes, when we may not ask
ROOM: Final = 512 * 1024  # bytes by which a retry topic's records may be larger


class Topics:
    """Asks the cluster about topics, and has it make and delete them."""

    def __init__(self, admin: AdminClient, *, replication: int) -> None:
        self._admin = admin
        self._replication = replication
        self._limits: dict[str, int] = {}
        self._partitions: dict[str, int] = {}

    async def names(self) -> dict[str, int]:
        """All topics that are not the cluster's own, and their partitions."""
        with _words("listing topics"):
            found = await asyncio.to_thread(self._admin.list_topics, timeout=_PATIENCE)
        return {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if not name.startswith("__")
        }

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; NotFound when it is not there."""
        if topic not in self._partitions:
            with _words(f"looking at {topic}"):
                found = await asyncio.to_thread(
                    self._admin.list_topics, topic, timeout=_PATIENCE
                )
                there = found.topics[topic]
                if there.error is not None:
                    raise KafkaException(there.error)
            self._partitions[topic] = len(there.partitions)
        return self._partitions[topic]

    async def ensure(
        self,
        topic: str,
        partitions: int | None,
        config: Mapping[str, str] | None = None,
    ) -> int:
        """Make a topic unless it is there; how many partitions it has."""
        try:
            return await self.partitions(topic)
        except NotFound:
            await self.make(topic, partitions, config or {})
        for _ in range(100):  # the broker we ask may not have heard of it yet
            try:
                return await self.partitions(topic)
            except NotFound:
                await asyncio.sleep(0.05)
        return await self.partitions(topic)

    async def make(
        self, topic: str, partitions: int | None, config: Mapping[str, str]
    ) -> None:
        """Make a topic; one that is there already is fine."""
        new = NewTopic(topic, partitions or -1, self._replication, config=dict(config))
        try:
            await _all(self._admin.create_topics([new]))
        except KafkaException as error:
            inner = kafka_error(error)
            if inner is None or inner.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translated(error, f"creating the topic {topic}") from error

    async def delete(self, topics: Sequence[str]) -> None:
        """Delete topics; those that are not there are fine."""
        for topic in topics:
            self.forget(topic)
        for future in self._admin.delete_topics(list(topics)).values():
            try:
                with _words("deleting topics"):
                    await asyncio.wrap_future(future)
            except NotFound:
                continue

    def forget(self, topic: str) -> None:
        """Whatever we knew of a topic may have changed."""
        self._partitions.pop(topic, None)
        self._limits.pop(topic, None)

    async def limit(self, topic: str) -> int:
        """How many bytes a record may have there."""
        if topic not in self._limits:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            limit = _USUAL_LIMIT
            try:
                (config,) = await _all(self._admin.describe_configs([resource]))
                limit = int(config["max.message.bytes"].value)
            except (KafkaException, KeyError, TypeError, ValueError):
                pass  # we may not ask; the broker will tell
            self._limits[topic] = limit
        return self._limits[topic]

    async def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where partitions end now."""
        with _words("looking for new records"):
            return await self._edges(places, _LATEST)

    async def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where partitions begin now."""
        with _words("looking for the first records"):
            return await self._edges(places, _EARLIEST)

    def beginnings(self, places: Iterable[Place]) -> dict[Place, int]:
        """The same from a thread."""
        asked = {TopicPartition(*place): _EARLIEST for place in places}
        if not asked:
            return {}
        answers = self._admin.list_offsets(asked, request_timeout=_PATIENCE)
        return {
            (place.topic, place.partition): answer.result().offset
            for place, answer in answers.items()
        }

    async def _edges(
        self, places: Iterable[Place], which: OffsetSpec
    ) -> dict[Place, int]:
        asked = {TopicPartition(*place): which for place in places}
        if not asked:
            return {}
        edges = await _patiently(
            lambda: self._admin.list_offsets(asked, request_timeout=_PATIENCE)
        )
        return {
            (place.topic, place.partition): edge.offset for place, edge in edges.items()
        }


async def _patiently(ask: Callable[[], Mapping[Any, Any]]) -> dict[Any, Any]:
    """Answers, asked for again while the cluster is still making up its mind."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SETTLING
    while True:
        try:
            futures = ask()
            return {key: await asyncio.wrap_future(f) for key, f in futures.items()}
        except KafkaException as error:
            inner = kafka_error(error)
            passing = inner is not None and inner.code() in UNSETTLED
            if not passing or loop.time() > deadline:
                raise
            await asyncio.sleep(0.1)


@contextmanager
def _words(what: str) -> Iterator[None]:
    """Raise the client library's errors in our words."""
    try:
        yield
    except (KafkaException, TimeoutError) as error:
        raise translated(error, what) from error


async def _all(futures: Mapping[Any, Any]) -> list[Any]:
    return [await asyncio.wrap_future(future) for future in futures.values()]
