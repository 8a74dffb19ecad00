"""Records of a topic, read without joining a consumer group."""

from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from deadletter.brokers.kafka.address import read_url

BATCH: Final = 100
TIMEOUT: Final = 10.0  # seconds for the broker to answer


def records(url: str, topic: str) -> Iterator[Message]:
    """Yield the records that a topic has now, by partition; nothing is committed."""
    address = read_url(url)
    settings: dict[str, Any] = {
        **address.client,
        "bootstrap.servers": address.bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        found = consumer.list_topics(topic, timeout=TIMEOUT).topics[topic]
        for partition in found.partitions:
            place = TopicPartition(topic, partition)
            at, end = consumer.get_watermark_offsets(place, timeout=TIMEOUT)
            consumer.assign([TopicPartition(topic, partition, at)])
            while at < end:
                batch = consumer.consume(min(BATCH, end - at), timeout=TIMEOUT)
                if not batch:
                    raise TimeoutError(
                        f"{topic}/{partition} sent no record after offset {at} within"
                        f" {TIMEOUT:g} s, but ends at {end}"
                    )
                yield from batch
                last = batch[-1].offset()
                assert last is not None
                at = last + 1
    finally:
        consumer.close()
