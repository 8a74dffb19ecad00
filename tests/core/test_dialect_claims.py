"""Mailboxes that headers name: claims, and what makes one believed."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from core.dialect_rig import KEYS, NOW, found, read, theirs
from deadletter.core.burial import to_message
from deadletter.core.ids import letter_id
from deadletter.core.message import Lineage, Message
from deadletter.core.origin import is_dead_queue_of, is_named_after
from deadletter.core.signing import Keys, sign_lineage
from deadletter.intake.dialects import (
    NOBODY,
    Trusted,
    fenced,
    has_unsigned,
    letter_of,
    lineage_headers,
    origin_of,
    unmarked,
)

CLAIMS = [
    {"x-first-death-queue": "payments", "x-death": '[{"queue": "payments"}]'},
    {"x-opt-deaths": '[{"queue": "payments", "reason": "rejected"}]'},
    {"kafka_dlt-original-topic": "payments"},
    {"__connect.errors.topic": "payments"},
    {"dead-letter-topic": "payments", "dead-letter-reason": "no"},
    {"MT-Fault-InputAddress": "rabbitmq://localhost/payments"},
    {"NServiceBus.FailedQ": "payments@host"},
    {"exception-type": "E", "failed-at": "1", "original-destination": "kafka://topic/payments"},
    {"reason_poisoned": "x", "topic_poisoned": "payments"},
    {"CloudPubSubDeadLetterSourceSubscription": "projects/p/subscriptions/payments"},
]


@pytest.mark.parametrize("headers", CLAIMS, ids=lambda one: next(iter(one)))
def test_a_header_alone_files_nothing_into_another_mailbox(headers: dict[str, str]) -> None:
    letter = read(place="leftovers", headers=headers, trusted=NOBODY)

    origin = origin_of(letter.message)
    assert letter.head.source == "leftovers"
    assert letter.id == letter_id("leftovers", "", letter.head.message_id)
    assert origin is not None
    assert origin.claim == "payments"
    # Nor into a group of that mailbox, muted or not.
    honest = read(place="payments-dlq", headers=headers, trusted=NOBODY)
    assert honest.head.source == "payments"
    assert honest.head.fingerprint != letter.head.fingerprint


@pytest.mark.parametrize("patterns", [("payments",), ("pay*",), ("orders", "*")])
def test_a_drain_can_be_configured_to_trust_claims(patterns: tuple[str, ...]) -> None:
    letter = read(place="leftovers", headers=CLAIMS[0], trusted=Trusted(patterns))

    assert letter.head.source == "payments"


@pytest.mark.parametrize(
    ("place", "mailbox"),
    [
        ("orders-dlq", "orders"),
        ("orders.DLT", "orders"),
        ("dlq.orders", "orders"),
        ("prod.orders.dead-letter", "prod.orders"),
        ("orders_error", "orders"),
        ("orders_skipped", "orders"),
        ("orders-dlq.fifo", "orders.fifo"),
        ("orders/$deadletterqueue", "orders"),
        ("orders-queue-dlq", "orders-queue"),
    ],
)
def test_a_dead_queue_may_name_what_it_is_named_after(place: str, mailbox: str) -> None:
    assert is_named_after(place, mailbox)


@pytest.mark.parametrize(
    ("place", "mailbox"),
    [
        ("orders-dlq", "payments"),
        ("orders-dlq", "orders-eu"),
        ("orders-eu-dlq", "orders"),
        ("eu-orders-dlq", "orders-eu"),
        ("dlq", "dlq"),
        ("dead-letters", "queue"),
        ("orders-dlq", ""),
    ],
)
def test_and_nothing_else(place: str, mailbox: str) -> None:
    assert not is_named_after(place, mailbox)
    assert not is_dead_queue_of(place, mailbox)


@pytest.mark.parametrize(
    ("place", "mailbox", "expected"),
    [
        ("orders-dlq", "orders", True),
        ("orders-dlq.fifo", "orders.fifo", True),
        ("orders", "orders-dlq", False),
        ("orders", "orders", False),
        ("orders-dlq", "payments", False),
    ],
)
def test_a_mailbox_is_not_the_dead_queue_of_its_dead_queue(
    place: str, mailbox: str, expected: bool
) -> None:
    assert is_dead_queue_of(place, mailbox) is expected


def test_reports_of_the_broker_take_precedence_over_headers() -> None:
    about = {"DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:1:orders"}
    headers = {"MT-Fault-InputAddress": "sqs://x/payments"}

    letter = read(place="dead", about=about, headers=headers, trusted=Trusted(("*",)))

    assert letter.head.source == "orders"


def test_a_forged_copy_of_a_letter_is_a_message_like_any_other() -> None:
    victim = read(place="payments-dlq", headers=CLAIMS[0])
    copy = to_message(victim)
    lie = found(place="leftovers", id="m-1", headers=copy.headers)

    letter = letter_of(lie, NOW, KEYS)

    assert letter.id != victim.id
    assert letter.head.source == "leftovers"
    assert letter.head.fingerprint != victim.head.fingerprint
    assert has_unsigned(letter)
    assert dict(copy.headers) == theirs(letter)


def lineage_for(mailbox: str, keys: Keys = KEYS, body: bytes = b"body") -> Lineage:
    lineage = Lineage(letter_id="a" * 24, generation=1, campaign="c")
    message = Message(id="m", body=body, sent_at=NOW, lineage=lineage)
    signed = sign_lineage(message, mailbox, keys).lineage
    assert signed is not None
    return signed


def test_a_signed_lineage_proves_where_a_copy_was_sent() -> None:
    headers = {**dict(lineage_headers(lineage_for("payments"))), **CLAIMS[0]}

    letter = read(place="leftovers", headers=headers, trusted=NOBODY)

    assert letter.head.source == "payments"
    assert letter.message.lineage is not None
    assert not has_unsigned(letter)


def test_a_signed_lineage_names_the_mailbox_where_no_dialect_does() -> None:
    headers = dict(lineage_headers(lineage_for("payments")))

    letter = read(place="payments-dlq", headers=headers, trusted=NOBODY)

    assert letter.head.source == "payments"
    assert letter.message.lineage is not None
    assert not has_unsigned(letter)


@pytest.mark.parametrize("place", ["leftovers", "orders-dlq", "payments-eu-dlq"])
def test_a_copy_that_was_put_elsewhere_proves_nothing(place: str) -> None:
    headers = dict(lineage_headers(lineage_for("payments")))

    letter = read(place=place, headers=headers, trusted=NOBODY)

    assert letter.head.source == place
    assert letter.message.lineage is None
    assert has_unsigned(letter)


def test_a_lineage_without_its_mailbox_is_checked_against_where_it_was_found() -> None:
    lineage = structs.replace(lineage_for("payments"), mailbox="")
    headers = dict(lineage_headers(lineage))
    about = {"DeadLetterQueueSourceArn": "arn:aws:sqs:eu-west-1:1:payments"}

    here = read(place="graveyard", headers=headers, about=about, trusted=NOBODY)
    there = read(place="graveyard", headers=headers, trusted=NOBODY)

    assert here.message.lineage is not None
    assert there.message.lineage is None


@pytest.mark.parametrize(
    "lineage",
    [
        structs.replace(lineage_for("payments"), signature=""),
        structs.replace(lineage_for("orders"), mailbox="payments"),
        structs.replace(lineage_for("payments"), generation=2),
        structs.replace(lineage_for("payments"), letter_id="b" * 24),
        lineage_for("payments", Keys(b"somebody else")),
        lineage_for("payments", body=b"another"),
        lineage_for("orders"),
    ],
)
def test_any_other_lineage_is_ignored_and_kept_as_it_is(lineage: Lineage) -> None:
    headers = dict(lineage_headers(lineage))

    letter = read(place="payments-dlq", headers={**headers, **CLAIMS[0]})

    assert letter.message.lineage is None
    assert letter.head.replays == 0
    assert has_unsigned(letter)
    assert theirs(letter) == headers


@pytest.mark.parametrize("claimed", [datetime(1, 1, 1, tzinfo=UTC), NOW + timedelta(days=400)])
def test_times_that_cannot_be_are_not_believed(claimed: datetime) -> None:
    headers = {"x-death": f'[{{"queue": "orders", "time": "{claimed.isoformat()}"}}]'}

    letter = read(place="orders-dlq", headers=headers, at=NOW - timedelta(hours=1))

    assert letter.head.dead_at == NOW - timedelta(hours=1)
    assert letter.head.first_failed_at == letter.head.dead_at
    [attempt] = letter.story()
    assert attempt.at == letter.head.dead_at


def test_endless_headers_make_no_endless_letter() -> None:
    name = "kafka_dlt-\x1b[2J" + "x" * 100_000
    many = [(f"{name}{n}", b"\x1b[31m" + b"v" * 100_000) for n in range(300)]
    headers = [*many, ("kafka_dlt-original-topic", b"\x1b[2J" + b"o" * 10_000_000)]

    letter = read(kind="kafka", headers=headers)

    origin = origin_of(letter.message)
    assert origin is not None
    assert len(origin.said) <= 100
    assert sum(len(n) + len(t) for n, t in origin.said.items()) < 1_000_000
    assert len(letter.head.source) <= 240
    assert "\x1b" not in letter.head.source + "".join(origin.said)


def test_a_worker_buries_no_note_of_a_producer_as_one_of_ours() -> None:
    """Such a note says what a message is sent back with."""
    lie = (("a", b"1"), ("dlq-found", b'{"kind":"rq","place":"x","raw":"AAAA"}'))
    message = Message(id="m", body=b"", sent_at=NOW, headers=lie)
    assert origin_of(message) is not None

    buried = fenced(message)

    assert origin_of(buried) is None
    assert unmarked(buried).headers == lie
