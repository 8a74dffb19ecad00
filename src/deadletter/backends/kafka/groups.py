"""
How far consumer groups have come.

Asked by a consumer that never joins. The admin client could be asked as well, but it
takes the process down (librdkafka 2.16) when a broker has no coordinator to name yet,
as one that was just started.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from .errors import MOVED_ON, UNSETTLED, kafka_error, translated
from .offsets import Progress, read_note
from .rows import Place

_PATIENCE: Final = 20.0  # seconds until there is a coordinator, and it has answered
_PAUSE: Final = 0.1  # seconds until it is asked again


class Groups:
    """Asks the cluster about consumer groups."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    async def progress(
        self, group: str, places: Collection[Place]
    ) -> dict[Place, Progress]:
        """How far a group has worked partitions; those it has never are missing."""
        if not places:
            return {}
        try:
            known = await asyncio.to_thread(self._ask, group, places)
        except KafkaException as error:
            raise translated(error, f"looking at the group {group}") from error
        return {
            (place.topic, place.partition): read_note(place.offset, place.metadata)
            for place in known
            if place.offset >= 0
        }

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
                    if not _passes(error) or time.monotonic() > deadline:
                        raise
                time.sleep(_PAUSE)
        finally:
            consumer.close()


def committed(
    consumer: Consumer, asked: list[TopicPartition], *, within: float
) -> Sequence[TopicPartition]:
    """What a consumer's group has committed; an error of one of them is raised."""
    known = consumer.committed(asked, timeout=within)
    for place in known:
        if place.error is not None:
            raise KafkaException(place.error)
    return known


def _passes(error: KafkaException) -> bool:
    inner = kafka_error(error)
    return inner is not None and inner.code() in UNSETTLED | MOVED_ON
