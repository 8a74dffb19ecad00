"""R4.21-R4.31: the courier gateway's dead-letter JSON."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.attempts import append, attempt_of
from deadletter.core.burial import burial
from deadletter.core.errors import Malformed
from deadletter.core.failure import Bury, Failure, Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from deadletter.profiles import courier

NOW = datetime(2026, 2, 26, 12, 5, tzinfo=UTC)
PAYLOAD = b'{"shipmentId":  "shp_456", "weight": 1.50, "big": 12345678901234567890123}'
EVENT = (
    b'{"eventId": "evt_123", "eventType": "shipment.status.updated",'
    b' "idempotencyKey": "courier-x:evt_123", "traceId": "req_a1b2c3",'
    b' "payload": ' + PAYLOAD + b', "attempt": 1}'
)
texts = st.text(max_size=20)
leaves = st.none() | st.booleans() | st.integers() | texts
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def letter(
    body: bytes,
    *,
    attempts: int = 5,
    reason: Reason = Reason.ATTEMPTS_EXHAUSTED,
    code: str = "DOWNSTREAM_TIMEOUT",
) -> DeadLetter:
    failure = Failure(trouble=Trouble.TRANSIENT, code=code, error_type="", text="no answer")
    history = ""
    for number in range(1, attempts + 1):
        history = append(history, attempt_of(failure, number=number, at=NOW))
    return burial(
        Delivery(
            message=Message(id="m-1", body=body, sent_at=NOW, idempotency_key="key"),
            mailbox="courier-events-main",
            attempt=attempts,
        ),
        failure,
        Bury(reason, "why"),
        history=history,
        now=NOW,
        consumer="gateway-worker",
        version="",
    )


def test_an_event_becomes_the_document_of_the_gateway() -> None:
    told = json.loads(courier.export(letter(EVENT)))

    assert told == {
        "eventId": "evt_123",
        "idempotencyKey": "courier-x:evt_123",
        "traceId": "req_a1b2c3",
        "attemptCount": 5,
        "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
        "terminalReasonMessage": "no answer",
        "attemptHistory": [
            {"attempt": n, "outcome": "failed", "errorCode": "DOWNSTREAM_TIMEOUT"}
            for n in range(1, 6)  # all of them, not just the first
        ],
        "payloadSnapshot": json.loads(PAYLOAD),
        "deadLetteredAt": "2026-02-26T12:05:00Z",
    }


def test_a_permanent_error_is_not_called_exhausted() -> None:
    dead = letter(EVENT, attempts=1, reason=Reason.FATAL_ERROR, code="VALIDATION")

    told = json.loads(courier.export(dead))

    assert told["terminalReasonCode"] == "VALIDATION"
    assert told["attemptCount"] == 1


def test_the_payload_is_snapshot_byte_for_byte() -> None:
    assert b'"payloadSnapshot":' + PAYLOAD in courier.export(letter(EVENT))


@pytest.mark.parametrize(
    "body",
    [
        PAYLOAD,
        b"",
        b"\x00\xff\xfe",
        b' {"a": 1}\n',  # white space around it
        b'["\xff"]',  # JSON but for its bytes
        b"[" * 100_000,
        b'{"eventId": 5, "payload": {}}',
        b'"just text"',
        b'{"base64": "aGk="}',
        b"null",
        b"NaN",
    ],
)
def test_a_body_that_is_no_event_comes_back_byte_for_byte(body: bytes) -> None:
    text = courier.export(letter(body))

    json.loads(text)
    assert courier.import_(text).message.body == body


@given(st.binary(max_size=60) | json_values.map(lambda v: json.dumps(v).encode()))
def test_any_body_is_projected_without_loss(body: bytes) -> None:
    again = courier.import_(courier.export(letter(body)))

    event = body.startswith(b"{") and b'"eventId"' in body
    assert event or again.message.body == body


def test_a_story_too_long_to_keep_has_no_made_up_attempts() -> None:
    told = json.loads(courier.export(letter(EVENT, attempts=50)))

    numbers = [attempt["attempt"] for attempt in told["attemptHistory"]]
    assert told["attemptCount"] == 50
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1, 50)
    assert {attempt["outcome"] for attempt in told["attemptHistory"]} == {"failed"}


@given(
    document=st.fixed_dictionaries(
        {
            "eventId": st.text(min_size=1, max_size=20),
            "idempotencyKey": texts,
            "traceId": texts,
            "attemptCount": st.integers(0, 100),
            "terminalReasonCode": texts | texts.map(lambda t: f"{t}_EXHAUSTED"),
            "terminalReasonMessage": texts,
            "attemptHistory": st.lists(
                st.fixed_dictionaries(
                    {
                        "attempt": st.integers(1, 100),
                        "outcome": st.sampled_from(["failed", "continued"]),
                        "errorCode": texts,
                    }
                ),
                max_size=8,
            ),
            "payloadSnapshot": st.dictionaries(st.sampled_from("abc"), json_values, max_size=3),
            "deadLetteredAt": st.just("2026-02-26T12:05:00Z"),
        }
    )
)
def test_a_document_comes_back_as_it_was(document: dict[str, Any]) -> None:
    text = msgspec.json.encode(document)

    again = json.loads(courier.export(courier.import_(text)))

    assert again == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b"\xff",
        courier.export(letter(b"x")).replace(b'"base64"', b'"rot13"'),
        courier.export(letter(b"x")).replace(b'"eA=="', b'"%%"'),
        courier.export(letter(b"x")).replace(b'"eA=="', b"[]"),
    ],
)
def test_bodies_that_are_not_documents_are_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        courier.import_(text)
