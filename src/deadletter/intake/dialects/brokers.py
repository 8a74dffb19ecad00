"""Dialects of brokers: SQS, NATS, RabbitMQ, and clients of Kafka."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from deadletter.core.failure import Reason, Trouble
from deadletter.core.message import Lineage
from deadletter.core.origin import (
    DeathReport,
    Found,
    Names,
    big_endian,
    count,
    digits,
    document,
    mapping,
    millis,
    moment,
    named,
    number,
    stamp,
    unpacked_lineage,
    words,
)

_SHOWN: Final = {
    "MessageGroupId": "group_id",
    "MessageDeduplicationId": "deduplication_id",
    "SequenceNumber": "sequence",
    "SenderId": "sender",
    "AWSTraceHeader": "AWSTraceHeader",
}


def moved_from(found: Found) -> str:
    """Return the queue that SQS moved a message from; empty if unknown."""
    return found.about.get("DeadLetterQueueSourceArn", "").rpartition(":")[2]


def deduplicated(found: Found) -> Lineage | None:
    """
    Return the letter of a copy whose deduplication id says it.

    A copy in a FIFO queue says it there if it has as many attributes as SQS allows.
    """
    return unpacked_lineage(found.about.get("MessageDeduplicationId", ""))


def redriven(found: Found) -> DeathReport | None:
    """
    The queue it came from and how often it was received; nobody wrote down why.

    A message that an application sent to the dead queue has only the fields of SQS.
    """
    if found.kind != "sqs":
        return None
    source, about = moved_from(found), found.about
    shown = {name: about.get(key, "") for key, name in _SHOWN.items()}
    if not source:
        return DeathReport(dialect="", fields=shown)
    received_at = millis(number(about.get("ApproximateFirstReceiveTimestamp", "")))
    return DeathReport(
        dialect="sqs",
        source=source,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        reason_text="moved by SQS: it was received too often without being deleted",
        attempts=count(about.get("ApproximateReceiveCount", "")),
        sent_at=millis(number(about.get("SentTimestamp", ""))),
        first_failed_at=received_at,
        fields={
            "source_arn": about["DeadLetterQueueSourceArn"],
            "receive_count": about.get("ApproximateReceiveCount", ""),
            "first_received_at": stamp(received_at),
            **shown,
        },
    )


# NATS: the advisory by which a server says that a consumer has given up.
# Whoever drains fetches the message that the advisory is about, and hands it over
# with what the advisory says.

KINDS: Final = {
    "io.nats.jetstream.advisory.v1.max_deliver": Reason.ATTEMPTS_EXHAUSTED,
    "io.nats.jetstream.advisory.v1.terminated": Reason.REJECTED,
}


class Advisory(Struct, frozen=True):
    """An advisory of a NATS server about a message that a consumer gave up."""

    type: str
    stream: str
    consumer: str
    stream_seq: int
    deliveries: int = 0
    timestamp: str = ""
    reason: str = ""


_decode: Final = msgspec.json.Decoder(Advisory).decode


def advisory(data: bytes) -> Advisory | None:
    """Read an advisory; return None if the bytes are not a known one."""
    try:
        read = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return read if read.type in KINDS and read.stream_seq > 0 else None


def given_up(found: Found) -> DeathReport | None:
    """Read an advisory's fields; the source is the subject, the identity its sequence."""
    about = found.about
    if about.get("type") not in KINDS:
        return None
    who = f"the consumer {about.get('consumer')} of the stream {about.get('stream')}"
    tries = count(about.get("deliveries", ""))
    why = about.get("reason") or f"gave up after {tries} deliveries"
    return DeathReport(
        dialect="nats-advisory",
        source=found.source,
        position=f"{about.get('stream')}/{about.get('stream_seq')}",
        message_id=f"{about.get('stream')}/{about.get('stream_seq')}",
        reason=KINDS[about["type"]],
        reason_text=f"{who}: {why}",
        attempts=tries,
        dead_at=moment(about.get("timestamp", "")),
        consumer=about.get("consumer", ""),
        fields={
            "stream": about.get("stream", ""),
            "sequence": about.get("stream_seq", ""),
            "consumer": about.get("consumer", ""),
            "deliveries": about.get("deliveries", ""),
            "reason": about.get("reason", ""),
        },
    )


# Dialects of Kafka: Spring, Connect, Streams, share groups, SmallRye.
# All of them say which record it was, by topic, partition and offset; that is its
# identity, so that a record dead-lettered twice is one letter.

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


def spring(found: Found) -> DeathReport | None:
    """Read Spring Kafka's `kafka_dlt-*`: numbers in binary, the rest as text."""
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


def connect(found: Found) -> DeathReport | None:
    """Read Kafka Connect's `__connect.errors.*`: everything as text."""
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


def streams(found: Found) -> DeathReport | None:
    """Read Kafka Streams' `__streams.errors.*`: everything as text."""
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


def share(found: Found) -> DeathReport | None:
    """Read a share group's `__dlq.errors.*`, which have no error."""
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
            names, _SHARE, *("topic", "partition", "offset", "message", "group", "delivery.count")
        ),
        drops=names,
    )


def smallrye(found: Found) -> DeathReport | None:
    """Read `dead-letter-*` of SmallRye and Quarkus: everything as text."""
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
) -> DeathReport:
    """Return a record's report; its identity is topic, partition and offset if known."""
    shown = {"topic": topic, "partition": digits(partition), "offset": digits(offset)}
    told = DeathReport(
        dialect=dialect,
        source=topic,
        fields=shown | (fields or {}),
        **more,  # type: ignore[arg-type]
    )
    if not topic or partition is None or offset is None:
        return told
    place = f"{topic}/{partition}/{offset}"
    return structs.replace(told, partition=str(partition), position=place, message_id=place)


def _among(names: Names, prefix: str, *ends: str) -> Names:
    """Return the headers among these that have such a prefix and end."""
    return names & {prefix + end for end in ends}


# RabbitMQ's own dialects: `x-death`, and `x-opt-deaths` of AMQP 1.0.

_REASONS: Final = {
    "rejected": (Reason.REJECTED, "its consumer rejected it"),
    "expired": (Reason.EXPIRED, "it expired"),
    "maxlen": (Reason.OPERATOR, "its queue was full"),
    "delivery_limit": (Reason.ATTEMPTS_EXHAUSTED, "its delivery limit was reached"),
}
_TRIED: Final = frozenset({"rejected", "delivery_limit"})
_OURS: Final = frozenset({"x-death", "x-opt-deaths", "x-delivery-count", "x-acquired-count"})
_TIMES: Final = ("time", "first-time", "last-time")
_MOST_SHOWN: Final = 10  # deaths of a chain


class Way(Struct, frozen=True, array_like=True):
    """Return how a message reached its source queue before it died there."""

    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    expiration: str = ""  # that it had in that queue


def way_of(found: Found) -> Way:
    """
    Read the way of a message from the whole chain of its deaths.

    The latest death that a consumer or a full queue caused is the one at home. Queues
    where messages only wait until they expire are delays, unless there is no other.
    """
    deaths = _deaths(found, "x-death") or _deaths(found, "x-opt-deaths")
    return _way(deaths, found.text("x-first-death-queue"))


def _way(deaths: list[dict[str, Any]], first_queue: str) -> Way:
    at_home = [death for death in deaths if words(death.get("reason")) != "expired"]
    home = next(iter(at_home or deaths), None)
    if home is None:
        return Way(first_queue)
    keys = home.get("routing-keys")
    return Way(
        queue=words(home.get("queue")) or first_queue,
        exchange=words(home.get("exchange")),
        routing_key=words(keys[0]) if isinstance(keys, list) and keys else "",
        expiration=words(home.get("original-expiration")),
    )


def x_death(found: Found) -> DeathReport | None:
    """Return the death in the source queue, and the latest one."""
    deaths = _deaths(found, "x-death")
    if not deaths and not found.value("x-first-death-queue"):
        return None
    return _died("x-death", found, deaths)


def opt_deaths(found: Found) -> DeathReport | None:
    """Read the annotation of AMQP 1.0, with two times for each death."""
    deaths = _deaths(found, "x-opt-deaths")
    return _died("x-opt-deaths", found, deaths) if deaths else None


def _died(dialect: str, found: Found, deaths: list[dict[str, Any]]) -> DeathReport:
    why = found.text("x-last-death-reason") or _why(deaths)
    way = _way(deaths, found.text("x-first-death-queue"))
    deaths_told = named(found.headers, "x-first-death-", "x-last-death-")
    reason, said = _REASONS.get(why, (Reason.OPERATOR, why))
    times = sorted(time for death in deaths for time in _times(death))
    return DeathReport(
        dialect=dialect,
        source=way.queue,
        reason=reason,
        reason_text=f"dead-lettered by RabbitMQ: {said}" if said else "",
        trouble=Trouble.EXPIRED if reason is Reason.EXPIRED else None,
        attempts=sum(_count(d) for d in deaths if d.get("reason") in _TRIED),
        first_failed_at=times[0] if times else None,
        dead_at=times[-1] if times else None,
        fields={
            "queue": way.queue,
            "exchange": way.exchange,
            "routing_key": way.routing_key,
            "reason": why,
            "count": digits(sum(map(_count, deaths)) or None),
            "first_died_at": stamp(times[0] if times else None),
            "last_died_at": stamp(times[-1] if len(times) > 1 else None),
            "expiration": way.expiration,
            "deaths": _chain(deaths),
        },
        retold=deaths_told | ({dialect} if deaths else frozenset()),
        drops=_OURS | deaths_told,
    )


def _chain(deaths: list[dict[str, Any]]) -> str:
    """Return a chain of several deaths, the latest first, a line each."""
    if len(deaths) < 2:
        return ""
    lines = [
        f"{words(death.get('queue'))}: {words(death.get('reason'))}, {_count(death)}x"
        for death in deaths[:_MOST_SHOWN]
    ]
    more = len(deaths) - len(lines)
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])


def _deaths(found: Found, name: str) -> list[dict[str, Any]]:
    told = document(found.value(name))
    return [mapping(death) for death in told][:100] if isinstance(told, list) else []


def _why(deaths: list[dict[str, Any]]) -> str:
    return words(deaths[0].get("reason")) if deaths else ""


def _count(death: dict[str, Any]) -> int:
    return count(words(death.get("count"))) or 1


def _times(death: dict[str, Any]) -> Iterator[datetime]:
    """Return a time, given as a date or in milliseconds."""
    for name in _TIMES:
        said = words(death.get(name))
        time = moment(said) if number(said) is None else millis(number(said))
        if time is not None:
            yield time
