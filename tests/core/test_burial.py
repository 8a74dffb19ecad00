"""From a delivery that is given up to the letter it becomes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.attempts import append, attempt_of
from deadletter.core.burial import burial, wish_of
from deadletter.core.failure import Bury, Failure, Reason, Trouble
from deadletter.core.failure.fingerprint import fingerprint
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Delivery, Lineage, Message, trace_id
from deadletter.core.policy import refusal, refused_history

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"
FAILURE = Failure(
    trouble=Trouble.TRANSIENT,
    code="TIMEOUT",
    error_type="shop.Timeout",
    text="no answer",
    frame="shop:charge",
)


def message(**more: object) -> Message:
    given = {"id": "m-1", "body": b"\x00\xff", "sent_at": NOW, **more}
    return Message(**given)  # type: ignore[arg-type]


def buried(
    delivery: Delivery,
    *,
    reason: Reason = Reason.ATTEMPTS_EXHAUSTED,
    history: str = "",
    route: str | None = None,
) -> DeadLetter:
    return burial(
        delivery,
        FAILURE,
        Bury(reason, "a sentence", route),
        history=history,
        now=NOW,
        consumer="charge",
        version="1.8",
    )


def told(*numbers: int) -> str:
    history = ""
    for number in numbers:
        at = NOW - timedelta(minutes=60 - number)
        history = append(history, attempt_of(FAILURE, number=number, at=at))
    return history


def test_a_letter_has_the_whole_story() -> None:
    delivery = Delivery(
        message=message(
            key="customer-7",
            idempotency_key="r-1",
            traceparent=f"00-{TRACE}-b7ad6b7169203331-01",
            headers=(("retry-on-failure", b"true"),),
        ),
        mailbox="orders",
        attempt=4,
        spared=1,
        partition="2",
        position="2:42",
        first_received_at=NOW - timedelta(hours=2),
    )

    letter = buried(delivery, history=told(1, 2, 3, 4), route="fraud")

    head = letter.head
    assert head.id == letter_id("orders", "2", "m-1")
    assert head.state is State.PENDING
    assert (head.source, head.partition, head.message_id) == ("orders", "2", "m-1")
    assert (head.key, head.business_key, head.trace_id) == ("customer-7", "r-1", TRACE)
    assert (head.reason, head.reason_text) == (Reason.ATTEMPTS_EXHAUSTED, "a sentence")
    assert (head.trouble, head.code) == (Trouble.TRANSIENT, "TIMEOUT")
    assert (head.error_type, head.error_text) == ("shop.Timeout", "no answer")
    assert head.fingerprint == fingerprint("orders", FAILURE)
    assert head.attempts == 3
    assert head.first_failed_at == NOW - timedelta(minutes=59)
    assert head.dead_at == NOW
    assert (head.consumer, head.version, head.size) == ("charge", "1.8", 2)
    assert letter.message is delivery.message
    assert len(letter.story()) == 4
    assert (letter.position, letter.route, letter.frame) == ("2:42", "fraud", "shop:charge")
    assert letter.first_received_at == NOW - timedelta(hours=2)
    assert letter.retry_wish is True


def test_letter_ids_depend_only_on_source_partition_and_message_id_p2() -> None:
    first = buried(Delivery(message=message(), mailbox="orders", attempt=5))
    again = buried(
        Delivery(message=message(body=b"x"), mailbox="orders", attempt=9), reason=Reason.WORKER_LOST
    )
    other = buried(Delivery(message=message(), mailbox="orders", partition="1"))

    assert first.id == again.id
    assert first.id != other.id


def test_a_replayed_copy_returns_to_its_letter_wherever_it_was_sent_p2() -> None:
    lineage = Lineage(letter_id="its-letter", generation=2, campaign="c")
    copy = message(lineage=lineage)

    letter = buried(Delivery(message=copy, mailbox="elsewhere", partition="7"))

    assert letter.id == "its-letter"
    assert letter.head.replays == 2


def test_without_a_story_it_failed_first_when_it_died() -> None:
    letter = buried(Delivery(message=message(), mailbox="orders"))

    assert letter.head.first_failed_at == NOW
    assert letter.story() == []


@given(attempt=st.integers(1, 30), spared=st.integers(0, 5))
def test_the_attempts_are_those_that_were_charged(attempt: int, spared: int) -> None:
    delivery = Delivery(
        message=message(), mailbox="orders", attempt=attempt + spared, spared=spared
    )

    letter = buried(delivery, history=told(attempt + spared))

    assert letter.head.attempts == attempt


@pytest.mark.parametrize("reason", [Reason.WORKER_LOST, Reason.EXPIRED, Reason.ATTEMPTS_EXHAUSTED])
def test_a_delivery_that_was_not_run_is_no_attempt(reason: Reason) -> None:
    delivery = Delivery(message=message(), mailbox="orders", attempt=4)
    failure = refusal(delivery, Bury(reason, "a sentence"), NOW)
    recorded = refused_history(delivery, failure, NOW)

    assert buried(delivery, reason=reason, history=told(1, 2)).head.attempts == 3
    assert buried(delivery, reason=reason, history=recorded).head.attempts == 3


@pytest.mark.parametrize("reason", Reason)
def test_a_delivery_that_was_run_is_an_attempt_whatever_the_reason(reason: Reason) -> None:
    delivery = Delivery(message=message(), mailbox="orders", attempt=4)

    assert buried(delivery, reason=reason, history=told(3, 4)).head.attempts == 4


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "",
        "00",
        TRACE,
        f"00-{TRACE}",
        f"00-{TRACE[:-1]}-b7ad6b7169203331-01",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{'٣' * 32}-b7ad6b7169203331-01",
        "-" * 1000,
    ],
)
def test_an_invalid_traceparent_names_no_trace(odd: str | None) -> None:
    assert trace_id(odd) is None


@given(st.text())
def test_no_text_is_too_odd_to_be_looked_at_for_a_trace(text: str) -> None:
    assert trace_id(text) is None or len(trace_id(text) or "") == 32


@pytest.mark.parametrize(
    ("value", "wish"),
    [(b"true", True), (b" TRUE ", True), (b"false", False), (b"\xff", None), (b"", None)],
)
def test_a_producer_may_wish_for_a_replay(value: bytes, wish: bool | None) -> None:
    assert wish_of(message(headers=(("retry-on-failure", value),))) is wish


def test_a_producer_that_says_nothing_wishes_nothing() -> None:
    assert wish_of(message()) is None
