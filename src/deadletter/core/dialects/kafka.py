"""
Dialects of Kafka: Spring, Connect, Streams, share groups, SmallRye.

All of them say which record it was, by topic, partition and offset; that is its
identity, so that a record dead-lettered twice is one letter.
"""

from typing import Final

from msgspec import structs

from ..decision import Reason
from .found import Found, Names, Told
from .values import big_endian, count, digits, millis, named, number, stamp

_SPRING: Final = "kafka_dlt-"
_CONNECT: Final = "__connect.errors."
_STREAMS: Final = "__streams.errors."
_SHARE: Final = "__dlq.errors."
_SMALLRYE: Final = "dead-letter-"
_SMALLRYE_NAMES: Final = frozenset(
    f"{_SMALLRYE}{name}"
    for name in (
        *("reason", "cause", "exception-class-name", "cause-class-name"),
        *("topic", "partition", "offset"),
    )
)


def spring(found: Found) -> Told | None:
    """Spring Kafka's `kafka_dlt-*`: numbers in binary, the rest as text."""
    names = named(found.headers, _SPRING, "retry_topic-")
    if not any(name.startswith(_SPRING) for name in names):
        return None
    attempts = big_endian(found.value("retry_topic-attempts")) or big_endian(
        found.value("kafka_deliveryAttempt")
    )
    partition = big_endian(found.value(f"{_SPRING}original-partition"))
    offset = big_endian(found.value(f"{_SPRING}original-offset"))
    sent_at = millis(big_endian(found.value(f"{_SPRING}original-timestamp")))
    text = found.text
    # Of a record whose key could not be read only that is told, by other names.
    error = f"{_SPRING}exception-"
    if not any(name.startswith(error) for name in names):
        error = f"{_SPRING}key-exception-"
    return record(
        "spring-kafka",
        text(f"{_SPRING}original-topic"),
        partition,
        offset,
        error_type=text(f"{error}cause-fqcn") or text(f"{error}fqcn"),
        error_text=text(f"{error}message"),
        stack=text(f"{error}stacktrace"),
        attempts=min(attempts or 0, 1_000_000),
        consumer=text(f"{_SPRING}original-consumer-group"),
        sent_at=sent_at,
        fields={
            "timestamp": stamp(sent_at),
            "timestamp_type": text(f"{_SPRING}original-timestamp-type"),
            "consumer_group": text(f"{_SPRING}original-consumer-group"),
            "exception": text(f"{error}fqcn"),
            "cause": text(f"{error}cause-fqcn"),
        },
        retold=frozenset(
            {
                *(name for name in names if name.startswith(f"{_SPRING}original-")),
                *(f"{error}fqcn", f"{error}cause-fqcn", "retry_topic-attempts"),
                "kafka_deliveryAttempt",
            }
        ),
        drops=names | {"kafka_deliveryAttempt"},
    )


def connect(found: Found) -> Told | None:
    """Kafka Connect's `__connect.errors.*`: everything as text."""
    names = named(found.headers, _CONNECT)
    if not names:
        return None
    text = found.text
    stage = text(f"{_CONNECT}stage")
    connector, task = text(f"{_CONNECT}connector.name"), text(f"{_CONNECT}task.id")
    return record(
        "kafka-connect",
        text(f"{_CONNECT}topic"),
        number(text(f"{_CONNECT}partition")),
        number(text(f"{_CONNECT}offset")),
        reason_text=f"stage {stage}" if stage else "",
        error_type=text(f"{_CONNECT}exception.class.name"),
        error_text=text(f"{_CONNECT}exception.message"),
        stack=text(f"{_CONNECT}exception.stacktrace"),
        consumer=f"{connector}/{task}" if task else connector,
        fields={
            "connector": connector,
            "task": task,
            "stage": stage,
            "class": text(f"{_CONNECT}class.name"),
            "exception": text(f"{_CONNECT}exception.class.name"),
        },
        retold=_among(
            names,
            _CONNECT,
            *("topic", "partition", "offset", "connector.name", "task.id", "stage"),
            *("class.name", "exception.class.name"),
        ),
        drops=names,
    )


def streams(found: Found) -> Told | None:
    """Kafka Streams' `__streams.errors.*`: everything as text."""
    names = named(found.headers, _STREAMS)
    if not names:
        return None
    text = found.text
    return record(
        "kafka-streams",
        text(f"{_STREAMS}topic"),
        number(text(f"{_STREAMS}partition")),
        number(text(f"{_STREAMS}offset")),
        error_type=text(f"{_STREAMS}exception"),
        error_text=text(f"{_STREAMS}message"),
        stack=text(f"{_STREAMS}stacktrace"),
        fields={"exception": text(f"{_STREAMS}exception")},
        retold=_among(names, _STREAMS, "topic", "partition", "offset", "exception"),
        drops=names,
    )


def share(found: Found) -> Told | None:
    """A share group's `__dlq.errors.*`: the broker gave up, nobody says why."""
    names = named(found.headers, _SHARE)
    if not names:
        return None
    text = found.text
    return record(
        "kafka-share-group",
        text(f"{_SHARE}topic"),
        number(text(f"{_SHARE}partition")),
        number(text(f"{_SHARE}offset")),
        reason=Reason.ATTEMPTS_EXHAUSTED,
        reason_text=text(f"{_SHARE}message"),
        attempts=count(text(f"{_SHARE}delivery.count")),
        consumer=text(f"{_SHARE}group"),
        fields={
            "share_group": text(f"{_SHARE}group"),
            "deliveries": text(f"{_SHARE}delivery.count"),
        },
        retold=_among(
            names,
            _SHARE,
            *("topic", "partition", "offset", "message", "group", "delivery.count"),
        ),
        drops=names,
    )


def smallrye(found: Found) -> Told | None:
    """SmallRye's and so Quarkus' `dead-letter-*`: everything as text."""
    names = _SMALLRYE_NAMES & named(found.headers, _SMALLRYE)
    if not names:
        return None
    text = found.text
    return record(
        "smallrye",
        text(f"{_SMALLRYE}topic"),
        number(text(f"{_SMALLRYE}partition")),
        number(text(f"{_SMALLRYE}offset")),
        error_type=text(f"{_SMALLRYE}exception-class-name"),
        error_text=text(f"{_SMALLRYE}reason"),
        fields={
            "exception": text(f"{_SMALLRYE}exception-class-name"),
            "cause": ": ".join(
                part
                for name in ("cause-class-name", "cause")
                if (part := text(f"{_SMALLRYE}{name}"))
            ),
        },
        retold=names,
        drops=names,
    )


def record(
    dialect: str,
    topic: str,
    partition: int | None,
    offset: int | None,
    *,
    fields: dict[str, str] | None = None,
    **more: object,
) -> Told:
    """What is told of a record, known by its place when its place is known."""
    shown = {"topic": topic, "partition": digits(partition), "offset": digits(offset)}
    told = Told(
        dialect=dialect,
        source=topic,
        fields=shown | (fields or {}),
        **more,  # type: ignore[arg-type]
    )
    if not topic or partition is None or offset is None:
        return told
    place = f"{topic}/{partition}/{offset}"
    return structs.replace(
        told, partition=str(partition), position=place, message_id=place
    )


def _among(names: Names, prefix: str, *ends: str) -> Names:
    """Return the headers among these that have such a prefix and end."""
    return names & {prefix + end for end in ends}
