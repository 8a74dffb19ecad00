"""Origin fields: what people see of a death, by name, in every dialect."""

import json
from typing import Any

import pytest

from core.dialect_rig import THEN, read, said
from deadletter.core.failure.capture import TEXT_LIMIT
from deadletter.intake.dialects import origin_of

AT = int(THEN.timestamp() * 1000)
REJECTED = {
    "queue": "orders",
    "reason": "rejected",
    "count": 2,
    "exchange": "events",
    "routing-keys": ["order.eu"],
    "time": THEN.isoformat(),
}
DELAYED = {"queue": "orders.delay", "reason": "expired", "count": 3, "exchange": ""}
SPRING = {
    "kafka_dlt-original-topic": "orders",
    "kafka_dlt-original-partition": (2).to_bytes(4, "big"),
    "kafka_dlt-original-offset": (17).to_bytes(8, "big"),
    "kafka_dlt-original-timestamp": AT.to_bytes(8, "big"),
    "kafka_dlt-original-timestamp-type": "CreateTime",
    "kafka_dlt-original-consumer-group": "billing",
    "kafka_dlt-exception-fqcn": "org.spring.ListenerException",
    "kafka_dlt-exception-cause-fqcn": "java.net.SocketTimeoutException",
}
CONNECT = {
    "__connect.errors.topic": "payments",
    "__connect.errors.partition": "0",
    "__connect.errors.offset": "3",
    "__connect.errors.connector.name": "warehouse",
    "__connect.errors.task.id": "1",
    "__connect.errors.stage": "VALUE_CONVERTER",
    "__connect.errors.class.name": "org.apache.kafka.JsonConverter",
    "__connect.errors.exception.class.name": "DataException",
}
SMALLRYE = {
    "dead-letter-topic": "orders",
    "dead-letter-partition": "1",
    "dead-letter-offset": "5",
    "dead-letter-exception-class-name": "IOException",
    "dead-letter-cause-class-name": "SocketException",
    "dead-letter-cause": "reset",
}
SHARE = {
    "__dlq.errors.topic": "orders",
    "__dlq.errors.partition": "1",
    "__dlq.errors.offset": "5",
    "__dlq.errors.group": "billing",
    "__dlq.errors.delivery.count": "5",
}
SQS = {
    "DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:123456789012:orders.fifo",
    "ApproximateReceiveCount": "4",
    "ApproximateFirstReceiveTimestamp": str(AT),
    "MessageGroupId": "customer-1",
    "SequenceNumber": "188",
}
NATS = {
    "type": "io.nats.jetstream.advisory.v1.max_deliver",
    "stream": "ORDERS",
    "consumer": "billing",
    "stream_seq": "42",
    "deliveries": "3",
}
JOB = {
    "name": "welcome",
    "atm": "3",
    "opts": '{"attempts": 3}',
    "progress": '{"step":2}',
    "priority": "0",
    "stacktrace": '["TypeError: no\\n at a.js:1"]',
}
WHEN = "2026-05-01T00:00:00Z"
FIELDS: list[tuple[dict[str, Any], dict[str, str]]] = [
    (
        {"headers": {"x-death": json.dumps([REJECTED])}},
        {
            "queue": "orders",
            "exchange": "events",
            "routing_key": "order.eu",
            "reason": "rejected",
            "count": "2",
            "first_died_at": WHEN,
        },
    ),
    (
        {"headers": {"x-death": json.dumps([REJECTED, DELAYED])}},
        {
            "queue": "orders",
            "count": "5",
            "deaths": "orders: rejected, 2x\norders.delay: expired, 3x",
        },
    ),
    (
        {"kind": "kafka", "place": "orders.DLT", "headers": SPRING},
        {
            "topic": "orders",
            "partition": "2",
            "offset": "17",
            "timestamp": WHEN,
            "timestamp_type": "CreateTime",
            "consumer_group": "billing",
            "exception": "org.spring.ListenerException",
            "cause": "java.net.SocketTimeoutException",
        },
    ),
    (
        {"kind": "kafka", "place": "dlq-payments", "headers": CONNECT},
        {
            "topic": "payments",
            "partition": "0",
            "offset": "3",
            "connector": "warehouse",
            "task": "1",
            "stage": "VALUE_CONVERTER",
            "class": "org.apache.kafka.JsonConverter",
            "exception": "DataException",
        },
    ),
    (
        {"kind": "kafka", "place": "orders-dlq", "headers": SMALLRYE},
        {
            "topic": "orders",
            "partition": "1",
            "offset": "5",
            "exception": "IOException",
            "cause": "SocketException: reset",
        },
    ),
    (
        {"kind": "kafka", "place": "orders-dlq", "headers": SHARE},
        {"topic": "orders", "share_group": "billing", "deliveries": "5"},
    ),
    (
        {"kind": "sqs", "place": "orders-dlq.fifo", "about": SQS},
        {
            "source_arn": SQS["DeadLetterQueueSourceArn"],
            "receive_count": "4",
            "first_received_at": WHEN,
            "group_id": "customer-1",
            "sequence": "188",
        },
    ),
    (
        {"kind": "nats", "place": "advisories", "about": NATS, "said": {"subject": "o.eu"}},
        {
            "subject": "o.eu",
            "stream": "ORDERS",
            "sequence": "42",
            "consumer": "billing",
            "deliveries": "3",
        },
    ),
    (
        {"kind": "bullmq", "place": "bullmq:mail", "source": "mail", "about": JOB},
        {"job": "welcome", "attempts_made": "3", "max_attempts": "3", "progress": '{"step":2}'},
    ),
    (
        {"headers": {"topic_poisoned": "orders", "handler_poisoned": "charge"}},
        {"topic": "orders", "handler": "charge"},
    ),
    (
        {"headers": {"NServiceBus.FailedQ": "sales@host", "NServiceBus.Retries": "2"}},
        {"failed_queue": "sales@host", "retries": "2"},
    ),
]


@pytest.mark.parametrize(("thing", "fields"), FIELDS)
def test_origin_fields_have_plain_names(thing: dict[str, Any], fields: dict[str, str]) -> None:
    shown = said(read(**thing))

    assert {name: shown.get(name) for name in fields} == fields
    assert all(shown.values())


def test_headers_that_fields_repeat_are_only_in_the_capture() -> None:
    letter = read(kind="kafka", place="orders.DLT", headers=SPRING)
    origin = origin_of(letter.message)

    assert origin is not None
    assert not any(name.startswith("kafka_dlt-") for name in origin.said)
    assert origin.headers["kafka_dlt-original-topic"] == "orders"


def test_a_message_that_sqs_did_not_move_has_no_counts() -> None:
    about = {"ApproximateReceiveCount": "1", "MessageGroupId": "customer-1"}
    letter = read(kind="sqs", place="orders-dlq.fifo", about=about)

    assert said(letter) == {"group_id": "customer-1"}
    assert letter.head.attempts == 0


def test_hostile_fields_are_bounded_cleaned_and_masked() -> None:
    bad = "\x1b[31m password=hunter2 " + "x" * 100_000
    death = REJECTED | {"queue": bad, "exchange": bad, "reason": bad}
    deaths = json.dumps([death] * 100)
    letter = read(headers={"x-death": deaths}, about={"opts": deaths})

    shown = said(letter)
    assert all(len(text) <= TEXT_LIMIT for text in shown.values())
    assert "\x1b" not in "".join(shown.values())
    assert "hunter2" not in "".join(shown.values())


@pytest.mark.parametrize("opts", ["", "[]", "\x80", '{"attempts": {"a": 1}}'])
def test_options_of_a_job_may_be_anything(opts: str) -> None:
    about = JOB | {"opts": opts, "atm": "many", "processedOn": "9" * 30}

    shown = said(read(kind="bullmq", place="bullmq:mail", about=about))

    assert shown["job"] == "welcome"
    assert "max_attempts" not in shown
