"""
Dead letters as Spring for Apache Kafka writes them, for consumers that read those.

The headers stand among ours, so they are gone again when we read such a record.
"""

from typing import Final

from msgspec import structs

from deadletter.core.message import Message

from .wire import SPRING, Raw, RawHeaders, micros

_TEXTS: Final = ("dlq-error-type", "dlq-error-message", "dlq-error-stack")


def with_spring(raw: Raw, message: Message, group: str) -> Raw:
    """The record of a letter's copy in both dialects; any other as it is."""
    position = (message.header("dlq-position") or "").split("/")
    if message.header("dlq-reason") is None or len(position) != 3:
        return raw
    topic, partition, offset = position
    if not (partition.isdecimal() and offset.isdecimal()):
        return raw
    sent_ms = max(0, micros(message.sent_at) // 1000)
    values = [
        topic.encode(),
        int(partition).to_bytes(4, "big"),
        int(offset).to_bytes(8, "big"),
        sent_ms.to_bytes(8, "big"),
        b"CreateTime",
        group.encode(),
        *((message.header(ours) or "").encode() for ours in _TEXTS),
    ]
    spring: RawHeaders = list(zip(SPRING, values, strict=True))
    return structs.replace(raw, headers=[*raw.headers, *spring])
