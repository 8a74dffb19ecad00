"""Dialects of frameworks and clouds beyond the first ones; and what no field takes."""

import json
from base64 import b64encode

import pytest

from core.dialect_rig import NOW, THEN, dialect, kept, read, said, theirs
from deadletter.core.failure import Reason, Trouble

MILLIS = str(int(THEN.timestamp() * 1000))


def test_spring_kafka_of_a_key_that_cannot_be_read() -> None:
    letter = read(
        kind="kafka",
        place="orders.DLT",
        headers={
            "kafka_dlt-original-topic": "orders",
            "kafka_dlt-original-partition": (3).to_bytes(4, "big"),
            "kafka_dlt-original-offset": (42).to_bytes(8, "big"),
            "kafka_dlt-original-timestamp-type": "CreateTime",
            "kafka_dlt-key-exception-fqcn": "shop.DeserializationException",
            "kafka_dlt-key-exception-message": "the key is no UUID",
            "kafka_dlt-key-exception-stacktrace": "at shop.Keys.read(Keys.java:7)",
        },
    )

    head = letter.head
    assert head.error_type == "shop.DeserializationException"
    assert head.error_text == "the key is no UUID"
    assert head.reason is Reason.FATAL_ERROR
    assert "Keys.java:7" in letter.story()[0].stack
    assert theirs(letter) == {}
    assert said(letter)["timestamp_type"] == "CreateTime"


def test_spring_errors_of_key_and_value_are_both_kept() -> None:
    letter = read(
        headers={
            "kafka_dlt-exception-fqcn": "shop.Outer",
            "kafka_dlt-exception-cause-fqcn": "shop.Inner",
            "kafka_dlt-exception-message": "the value is odd",
            "kafka_dlt-key-exception-message": "the key is odd: password=hunter2",
        }
    )

    assert letter.head.error_text == "the value is odd"
    assert letter.head.error_type == "shop.Inner"
    shown = said(letter)
    assert (shown["exception"], shown["cause"]) == ("shop.Outer", "shop.Inner")
    assert "the key is odd" in shown["kafka_dlt-key-exception-message"]
    assert "hunter2" not in shown["kafka_dlt-key-exception-message"]
    # The letter has it, word for word.
    assert "kafka_dlt-exception-message" not in kept(letter)


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"__connect.errors.class.name": "JsonConverter"}, "__connect.errors.class.name"),
        ({"NServiceBus.ExceptionInfo.Source": "Sales"}, "NServiceBus.ExceptionInfo.Source"),
        ({"MT-Fault-MessageType": "Shop.Submit"}, "MT-Fault-MessageType"),
        ({"subscriber_poisoned": "kafka"}, "subscriber_poisoned"),
        ({"x-death": '[{"queue":"q","exchange":"e"}]'}, "x-death"),
    ],
)
def test_headers_without_a_field_are_kept(headers: dict[str, str], name: str) -> None:
    letter = read(headers=headers)

    assert theirs(letter) == {}
    assert kept(letter)[name] == headers[name]


def test_repeated_headers_are_kept_repeated() -> None:
    name = "kafka_dlt-exception-message"
    letter = read(headers=[(name, "first"), (name, "second"), (name, "last")])

    assert letter.head.error_text == "last"
    assert said(letter) == {name: "first\nsecond"}


def test_kept_fields_are_bounded_and_storable() -> None:
    letter = read(
        headers={
            "kafka_dlt-original-topic": "orders",
            "kafka_dlt-odd": b"\xff\x00" + b"a" * 100_000,
        }
    )

    shown = said(letter)["kafka_dlt-odd"]
    assert len(shown) <= 8192
    assert shown.startswith("\\xff\\x00aaa")


def test_smallrye() -> None:
    letter = read(
        kind="kafka",
        place="dead-letter-topic-movies",
        id="dead-letter-topic-movies/0/1",
        headers={
            "tenant": "eu",
            "dead-letter-exception-class-name": "java.lang.RuntimeException",
            "dead-letter-reason": "Something went wrong",
            "dead-letter-cause-class-name": "java.io.IOException",
            "dead-letter-cause": "disk full",
            "dead-letter-topic": "movies",
            "dead-letter-partition": "2",
            "dead-letter-offset": "17",
        },
    )

    head = letter.head
    assert (head.source, head.partition) == ("movies", "2")
    assert head.message_id == letter.position == "movies/2/17"
    assert head.error_type == "java.lang.RuntimeException"
    assert head.error_text == "Something went wrong"
    assert head.reason is Reason.FATAL_ERROR
    assert theirs(letter) == {"tenant": b"eu"}
    assert kept(letter)["dead-letter-cause"] == "disk full"
    assert dialect(letter) == "smallrye"


def test_wolverine() -> None:
    letter = read(
        place="wolverine-dead-letter-queue",
        headers={
            "tenant-id": "eu",
            "exception-type": "System.TimeoutException",
            "exception-message": "the shop did not answer",
            "exception-stack": "at Shop.Handle()",
            "failed-at": MILLIS,
            "original-destination": "rabbitmq://queue/orders",
            "attempts": "3",
        },
    )

    head = letter.head
    assert (head.source, head.attempts, head.dead_at) == ("orders", 3, THEN)
    assert head.error_type == "System.TimeoutException"
    assert head.error_text == "the shop did not answer"
    assert head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert "Shop.Handle" in letter.story()[0].stack
    assert theirs(letter) == {"tenant-id": b"eu"}
    assert dialect(letter) == "wolverine"


def test_wolverine_on_kafka_names_the_record() -> None:
    letter = read(
        kind="kafka",
        headers={
            "exception-type": "System.Exception",
            "failed-at": MILLIS,
            "original-destination": "kafka://topic/orders",
            "original-partition": "4",
            "original-offset": "9",
        },
    )

    assert letter.head.message_id == letter.position == "orders/4/9"


def test_names_that_anybody_may_use_are_not_wolverines() -> None:
    headers = {"exception-type": "billing", "attempts": "2"}

    assert set(theirs(read(headers=headers))) == set(headers)


@pytest.mark.parametrize("time", ["2026-05-01T00:00:00Z", int(MILLIS)])
def test_rabbitmq_by_amqp_10(time: str | int) -> None:
    deaths = [
        {
            "queue": "orders.wait",
            "reason": "expired",
            "count": 2,
            "first-time": "2026-05-02T00:00:00Z",
            "last-time": "2026-05-03T00:00:00Z",
        },
        {
            "queue": "orders",
            "reason": "rejected",
            "count": 3,
            "first-time": time,
            "last-time": time,
            "exchange": "",
            "routing-keys": ["orders"],
        },
    ]
    letter = read(headers={"tenant": "eu", "x-opt-deaths": json.dumps(deaths)})

    head = letter.head
    assert (head.source, head.attempts) == ("orders", 3)
    assert (head.first_failed_at, head.dead_at.day) == (THEN, 3)
    assert head.reason is Reason.EXPIRED
    assert theirs(letter) == {"tenant": b"eu"}
    assert dialect(letter) == "x-opt-deaths"


def test_pubsub() -> None:
    letter = read(
        place="orders-dead",
        headers={
            "tenant": "eu",
            "CloudPubSubDeadLetterSourceDeliveryCount": "5",
            "CloudPubSubDeadLetterSourceSubscription": "billing",
            "CloudPubSubDeadLetterSourceSubscriptionProject": "shop-1",
            "CloudPubSubDeadLetterSourceTopicPublishTime": ("2026-05-01T00:00:00.000+00:00"),
        },
    )

    head = letter.head
    assert (head.source, head.consumer, head.attempts) == ("billing", "billing", 5)
    assert head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert letter.message.sent_at == THEN
    assert theirs(letter) == {"tenant": b"eu"}
    project = "CloudPubSubDeadLetterSourceSubscriptionProject"
    assert kept(letter)[project] == said(letter)["project"] == "shop-1"
    assert dialect(letter) == "pubsub"


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("MaxDeliveryCountExceeded", Reason.ATTEMPTS_EXHAUSTED),
        ("TTLExpiredException", Reason.EXPIRED),
        ("Session ID is null", Reason.REJECTED),
        ("no such customer", Reason.REJECTED),
    ],
)
def test_service_bus(why: str, reason: Reason) -> None:
    letter = read(
        place="shop/orders/$DeadLetterQueue",
        headers={
            "tenant": "eu",
            "DeadLetterReason": why,
            "DeadLetterErrorDescription": "it could not be consumed",
        },
    )

    head = letter.head
    assert (head.source, head.reason) == ("shop/orders", reason)
    assert (head.error_type, head.error_text) == (why, "it could not be consumed")
    assert (head.trouble is Trouble.EXPIRED) == (reason is Reason.EXPIRED)
    assert theirs(letter) == {"tenant": b"eu"}
    assert dialect(letter) == "service-bus"


@pytest.mark.parametrize("prefix", ["ce_", "ce-", "cloudEvents:", "cloudEvents_", ""])
def test_knative(prefix: str) -> None:
    answer = b64encode(b"no such order").decode()
    letter = read(
        kind="kafka",
        headers={
            f"{prefix}id": "e-1",
            f"{prefix}knativeerrorcode": "404",
            f"{prefix}knativeerrordata": answer,
            f"{prefix}knativeerrordest": "http://billing.default.svc.cluster.local",
        },
    )

    head = letter.head
    assert (head.error_type, head.error_text) == ("HTTP 404", "no such order")
    assert (head.trouble, head.code) == (Trouble.PERMANENT, "HTTP_404")
    assert head.consumer == "http://billing.default.svc.cluster.local"
    assert set(theirs(letter)) == {f"{prefix}id"}
    assert dialect(letter) == "knative"


def test_knative_in_structured_mode() -> None:
    body = json.dumps(
        {
            "specversion": "1.0",
            "id": "e-1",
            "knativeerrorcode": 503,
            "knativeerrordata": "not base64!",
        }
    ).encode()

    letter = read(body=body)

    assert letter.head.error_type == "HTTP 503"
    assert letter.head.error_text == "not base64!"
    assert letter.head.trouble is Trouble.TRANSIENT
    assert letter.message.body == body


def test_the_first_dialect_is_believed_and_the_second_is_kept() -> None:
    deaths = '[{"queue":"retries","reason":"rejected","count":1}]'
    letter = read(
        headers={
            "exception-type": "System.Exception",
            "failed-at": MILLIS,
            "original-destination": "rabbitmq://queue/orders",
            "x-death": deaths,
        }
    )

    assert letter.head.source == "orders"
    assert kept(letter)["x-death"] == deaths


def test_times_that_cannot_be_are_not_believed() -> None:
    letter = read(headers={"exception-type": "E", "failed-at": "9" * 18})

    assert letter.head.dead_at == NOW
