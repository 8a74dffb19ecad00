"""Looking at a topic without being one of its readers."""

from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from deadletter.brokers.kafka.address import read_url

BATCH: Final = 100
PATIENCE: Final = 10.0  # seconds for the broker to answer


def records(url: str, topic: str) -> Iterator[Message]:
    """All that is in a topic now, partition by partition; nothing is committed."""
    address = read_url(url)
    settings: dict[str, Any] = {
        **address.client,
        "bootstrap.servers": address.bootstrap,
        "group.id": "looks-on",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        there = consumer.list_topics(topic, timeout=PATIENCE).topics[topic]
        for partition in there.partitions:
            place = TopicPartition(topic, partition)
            at, end = consumer.get_watermark_offsets(place, timeout=PATIENCE)
            consumer.assign([TopicPartition(topic, partition, at)])
            while at < end:
                some = consumer.consume(min(BATCH, end - at), timeout=PATIENCE)
                if not some:
                    raise TimeoutError(f"{topic} cannot be read beyond {at}")
                yield from some
                at = place_of(some[-1])[1] + 1
    finally:
        consumer.close()


def place_of(record: Message) -> tuple[int, int]:
    """Partition and offset of a record that was read."""
    partition, offset = record.partition(), record.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset
