"""What dead places say, dialect by dialect; and whatever else lies there."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs

from core.dialect_rig import KEYS, NOW, THEN, found, read, theirs
from core.filing_rig import file
from deadletter.core.burial import NAMES, sign_copy, to_message
from deadletter.core.failure import Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Lineage, Message
from deadletter.core.signing import sign_lineage
from deadletter.intake.dialects import (
    DIALECTS,
    MALFORMED,
    PACKED,
    letter_of,
    lineage_headers,
    origin_of,
    packed_lineage,
    unmarked,
)
from deadletter.intake.dialects.brokers import advisory

MOVED = {"DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:1:orders"}
CAMPAIGN = "00000000-0000-7000-8000-000000000000"


def test_spring_kafka() -> None:
    letter = read(
        kind="kafka",
        place="orders.DLT",
        id="orders.DLT/0/9",
        headers={
            "tenant": "eu",
            "kafka_dlt-original-topic": "orders",
            "kafka_dlt-original-partition": (3).to_bytes(4, "big"),
            "kafka_dlt-original-offset": (42).to_bytes(8, "big"),
            "kafka_dlt-original-timestamp": int(THEN.timestamp() * 1000).to_bytes(8, "big"),
            "kafka_dlt-original-consumer-group": "billing",
            "kafka_dlt-exception-fqcn": "org.springframework.ListenerException",
            "kafka_dlt-exception-cause-fqcn": "java.net.SocketTimeoutException",
            "kafka_dlt-exception-message": "read timed out",
            "kafka_dlt-exception-stacktrace": "at shop.Billing.charge(Billing.java:7)",
            "kafka_deliveryAttempt": (4).to_bytes(4, "big"),
        },
    )

    head = letter.head
    assert (head.source, head.partition) == ("orders", "3")
    assert head.message_id == letter.position == "orders/3/42"
    assert head.error_type == "java.net.SocketTimeoutException"
    assert (head.error_text, head.attempts) == ("read timed out", 4)
    assert (head.consumer, head.trouble) == ("billing", Trouble.TRANSIENT)
    assert head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert letter.message.sent_at == THEN
    assert "Billing.java:7" in letter.story()[0].stack
    assert theirs(letter) == {"tenant": b"eu"}


def test_kafka_connect() -> None:
    errors = "__connect.errors."
    letter = read(
        kind="kafka",
        headers={
            f"{errors}topic": "orders",
            f"{errors}partition": "1",
            f"{errors}offset": "77",
            f"{errors}connector.name": "sink",
            f"{errors}task.id": "0",
            f"{errors}stage": "VALUE_CONVERTER",
            f"{errors}exception.class.name": "org.apache.kafka.DataException",
            f"{errors}exception.message": "cannot convert",
            f"{errors}exception.stacktrace": "at …",
        },
    )

    head = letter.head
    assert (head.source, head.message_id) == ("orders", "orders/1/77")
    assert (head.consumer, head.reason_text) == ("sink/0", "stage VALUE_CONVERTER")
    assert head.error_text == "cannot convert"
    assert head.reason is Reason.FATAL_ERROR
    assert theirs(letter) == {}


def test_kafka_streams() -> None:
    errors = "__streams.errors."
    letter = read(
        kind="kafka",
        headers={
            f"{errors}topic": "clicks",
            f"{errors}partition": "0",
            f"{errors}offset": "5",
            f"{errors}exception": "java.lang.ArithmeticException",
            f"{errors}message": "/ by zero",
            f"{errors}stacktrace": "at …",
        },
    )

    assert (letter.head.source, letter.head.message_id) == ("clicks", "clicks/0/5")
    assert letter.head.error_type == "java.lang.ArithmeticException"
    assert theirs(letter) == {}


def test_a_share_group() -> None:
    errors = "__dlq.errors."
    letter = read(
        kind="kafka",
        headers={
            f"{errors}topic": "clicks",
            f"{errors}partition": "0",
            f"{errors}offset": "5",
            f"{errors}group": "share",
            f"{errors}delivery.count": "6",
            f"{errors}message": "delivery count exceeded",
        },
    )

    assert (letter.head.attempts, letter.head.consumer) == (6, "share")
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED


def test_rabbitmq() -> None:
    deaths = [
        {"queue": "orders.wait", "reason": "expired", "count": 3, "time": "2026-05-02T00:00:00Z"},
        {"queue": "orders", "reason": "rejected", "count": 4, "time": "2026-05-01T00:00:00Z"},
    ]
    letter = read(
        headers={
            "tenant": "eu",
            "x-death": json.dumps(deaths),
            "x-first-death-queue": "orders",
            "x-first-death-reason": "rejected",
            "x-last-death-reason": "rejected",
        }
    )

    head = letter.head
    assert (head.source, head.attempts) == ("orders", 4)
    assert head.reason is Reason.REJECTED
    assert (head.first_failed_at, head.dead_at.day) == (THEN, 2)
    assert theirs(letter) == {"tenant": b"eu"}


@pytest.mark.parametrize(
    ("deaths", "home"),
    [
        ([("orders", "rejected"), ("delay", "expired")], "orders"),
        ([("delay", "expired"), ("orders", "rejected")], "orders"),
        ([("orders", "expired"), ("delay", "expired")], "orders"),
        ([("orders", "delivery_limit"), ("other", "rejected")], "orders"),
        ([("orders", "maxlen")], "orders"),
    ],
)
def test_rabbitmq_messages_belong_where_a_consumer_gave_up(
    deaths: list[tuple[str, str]], home: str
) -> None:
    chain = [{"queue": queue, "reason": why, "count": 1} for queue, why in deaths]
    headers = {"x-death": json.dumps(chain), "x-first-death-queue": deaths[-1][0]}

    assert read(headers=headers).head.source == home


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("expired", Reason.EXPIRED),
        ("delivery_limit", Reason.ATTEMPTS_EXHAUSTED),
        ("maxlen", Reason.OPERATOR),
        ("something new", Reason.OPERATOR),
    ],
)
def test_rabbitmq_has_reasons(why: str, reason: Reason) -> None:
    deaths = json.dumps([{"queue": "orders", "reason": why, "count": 1}])

    assert read(headers={"x-death": deaths}).head.reason is reason


def test_sqs() -> None:
    letter = read(
        kind="sqs",
        place="orders-dlq",
        about={
            "DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:1:orders",
            "ApproximateReceiveCount": "5",
            "SentTimestamp": str(int(THEN.timestamp() * 1000)),
        },
    )

    assert (letter.head.source, letter.head.attempts) == ("orders", 5)
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert letter.message.sent_at == THEN


def test_masstransit() -> None:
    letter = read(
        place="submit-order_error",
        headers={
            "MT-Reason": "fault",
            "MT-Fault-ExceptionType": "System.InvalidOperationException",
            "MT-Fault-Message": "no stock",
            "MT-Fault-StackTrace": "at Shop.Submit()",
            "MT-Fault-Timestamp": "2026-05-01T00:00:00.0000000Z",
            "MT-Fault-RetryCount": "2",
            "MT-Fault-ConsumerType": "Shop.SubmitConsumer",
            "MT-Host-MachineName": "box",
        },
    )

    head = letter.head
    assert (head.source, head.attempts) == ("submit-order", 3)
    assert head.error_type == "System.InvalidOperationException"
    assert (head.consumer, head.dead_at) == ("Shop.SubmitConsumer", THEN)
    assert set(theirs(letter)) == {"MT-Host-MachineName"}


def test_masstransit_names_the_address() -> None:
    address = "rabbitmq://box/shop/submit%20order?durable=true"
    letter = read(headers={"MT-Fault-InputAddress": address})

    assert letter.head.source == "submit order"


def test_nservicebus() -> None:
    letter = read(
        place="error",
        headers={
            "NServiceBus.MessageId": "n-1",
            "NServiceBus.FailedQ": "Sales@box",
            "NServiceBus.TimeOfFailure": "2026-05-01 00:00:00:000000 Z",
            "NServiceBus.ExceptionInfo.ExceptionType": "System.Exception",
            "NServiceBus.ExceptionInfo.Message": "boom",
            "NServiceBus.ExceptionInfo.StackTrace": "at Sales.Handle()",
        },
    )

    head = letter.head
    assert (head.source, head.message_id) == ("Sales", "n-1")
    assert (head.error_text, head.dead_at) == ("boom", THEN)
    assert set(theirs(letter)) == {"NServiceBus.MessageId"}


def test_watermill() -> None:
    letter = read(
        headers={
            "reason_poisoned": "cannot unmarshal",
            "topic_poisoned": "events",
            "handler_poisoned": "projector",
            "subscriber_poisoned": "kafka",
        }
    )

    assert (letter.head.source, letter.head.consumer) == ("events", "projector")
    assert letter.head.error_text == "cannot unmarshal"


def test_nats() -> None:
    said = advisory(
        json.dumps(
            {
                "type": "io.nats.jetstream.advisory.v1.max_deliver",
                "id": "x",
                "timestamp": "2026-05-01T00:00:00.123456789Z",
                "stream": "ORDERS",
                "consumer": "billing",
                "stream_seq": 7,
                "deliveries": 5,
            }
        ).encode()
    )
    assert said is not None

    about = {name: str(value) for name, value in msgspec.structs.asdict(said).items()}
    letter = read(kind="nats", source="orders.new", about=about)

    head = letter.head
    assert (head.source, head.message_id) == ("orders.new", "ORDERS/7")
    assert (head.attempts, head.consumer) == (5, "billing")
    assert head.reason is Reason.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"type": "x"}'])
def test_bytes_that_are_not_an_advisory_read_as_none(data: bytes) -> None:
    assert advisory(data) is None


def test_nothing_known() -> None:
    letter = read(place="orphans", headers={"tenant": "eu"})

    assert (letter.head.source, letter.head.reason) == ("orphans", Reason.OPERATOR)
    assert "does not say" in letter.head.reason_text
    assert letter.head.trouble is Trouble.UNKNOWN
    assert theirs(letter) == {"tenant": b"eu"}


def test_unreadable_messages_are_malformed() -> None:
    letter = read(about={MALFORMED: "this is no envelope"})

    assert letter.head.reason is Reason.UNDECODABLE
    assert letter.head.trouble is Trouble.MALFORMED
    assert letter.head.reason_text == "this is no envelope"


def test_a_copy_of_ours_finds_back_to_its_letter() -> None:
    original = read(headers={"reason_poisoned": "x", "topic_poisoned": "orders"})
    copy = sign_copy(to_message(original), original, "orders-dlq", KEYS)
    lying = found(place="prod.orders-dlq", id=copy.id, headers=copy.headers)

    letter = letter_of(lying, NOW, KEYS)

    assert (letter.id, letter.head.source) == (original.id, "orders")
    assert not NAMES & {name for name, _ in letter.message.headers}


def test_a_replayed_copy_finds_back_whatever_it_is_called_now() -> None:
    first = read(id="m-1")
    lineage = Lineage(letter_id=first.id, generation=1, campaign="c")
    copy = structs.replace(first.message, lineage=lineage)
    lineage = sign_lineage(copy, first.head.source, KEYS).lineage
    again = read(id="m-2", headers=lineage_headers(lineage))

    [filed] = file([again], lambda ids: _known(first, ids))

    assert again.message.lineage == lineage
    assert filed.id == first.id
    assert theirs(again) == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"dlq-replay-of": "../../etc/passwd", "dlq-replay-count": "1"},
        {"dlq-replay-of": "a" * 24, "dlq-replay-count": "-1"},
        {"dlq-replay-of": "a" * 24, "dlq-replay-count": "99999999999999999999"},
        {"dlq-replay-of": "a" * 24},
    ],
)
def test_a_lineage_that_cannot_be_is_not_believed(headers: dict[str, str]) -> None:
    assert read(headers=headers).message.lineage is None


def test_a_copy_finds_back_by_a_lineage_packed_into_one_text() -> None:
    first = read(about=MOVED)
    lineage = Lineage(letter_id=first.id, generation=10_000, campaign=CAMPAIGN)
    copy = structs.replace(first.message, lineage=lineage)
    signed = sign_lineage(copy, "orders", KEYS).lineage
    assert signed is not None
    attribute = packed_lineage(signed).encode()
    dedup = packed_lineage(signed, with_mailbox=False)

    by_attribute = read(id="m-2", headers={PACKED: attribute}, about=MOVED)
    by_dedup = read(id="m-3", about={**MOVED, "MessageDeduplicationId": dedup})
    forged = read(id="m-4", headers={PACKED: attribute + b"x"}, about=MOVED)

    assert len(dedup) <= 128  # what SQS allows
    for again in (by_attribute, by_dedup):
        found = again.message.lineage
        assert found is not None
        assert (found.letter_id, found.generation) == (first.id, 10_000)
        assert again.message.headers[:-1] == ()
    assert forged.message.lineage is None
    assert forged.message.header(PACKED) is not None  # it is the producer's then


def test_secrets_in_what_others_say_are_masked() -> None:
    letter = read(headers={"reason_poisoned": "login failed: password=hunter2"})

    assert "hunter2" not in letter.head.error_text


def test_the_origin_is_ours_to_say() -> None:
    lie = json.dumps({"kind": "sqs", "place": "x", "raw": ""})
    letter = read(headers={"dlq-found": lie})

    origin = origin_of(letter.message)

    assert origin is not None
    assert (origin.kind, origin.place) == ("rabbitmq", "orders.dead")
    assert theirs(letter) == {"dlq-found": lie.encode()}


def test_every_dialect_is_silent_about_strangers() -> None:
    stranger = found(headers={"tenant": "eu"})

    assert [dialect(stranger) for dialect in DIALECTS] == [None] * len(DIALECTS)


def _known(letter: DeadLetter, ids: Any) -> Any:
    from deadletter.core.ids import body_digest
    from deadletter.core.letter_filing import Known

    known = Known(head=letter.head, digest=body_digest(letter.message.body))
    return {letter.id: known} if letter.id in ids else {}


def test_a_message_that_nobody_found_has_no_origin() -> None:
    message = Message(id="m", body=b"", sent_at=NOW, headers=(("a", b"b"),))

    assert origin_of(message) is None
    assert unmarked(message) is message


def test_letters_without_an_error_are_grouped_by_their_place() -> None:
    one, two, other = (read(kind="redis", place=place, id=id_) for place, id_ in ("a1", "a2", "b1"))

    assert one.head.error_text == "found in a; it does not say how it got there"
    assert one.head.error_text == one.head.reason_text
    assert one.head.fingerprint == two.head.fingerprint != other.head.fingerprint
