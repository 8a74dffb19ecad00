"""
Search of a topic for the copies that replays sent, by any process.

Each copy carries its letter and generation in headers. A search reads the topic from the
time of the first copy to its end, up to a limit of records.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as Record
from msgspec import Struct

from deadletter.core.message import Lineage
from deadletter.core.origin import REPLAY_OF
from deadletter.intake.dialects import lineage_of
from deadletter.ports import CopyName

from .errors import PARTITION_EOF

MOST_READ: Final = 500_000  # records that one search reads
_MARGIN: Final = 120.0  # seconds for differing clocks and slow batches
_MAX_TIME: Final = 60.0  # seconds that one search reads
_ANSWER: Final = 10.0  # seconds for a call
_BATCH: Final = 1_000  # records at once
_POLL: Final = 0.25
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
        for record in consumer.consume(_BATCH, _POLL):
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
