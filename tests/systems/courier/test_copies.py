"""The JSON of a dead event in the dead-letter queue, field by field."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from courier.policy import policy_of
from courier.settings import MAIN, profile
from deadletter import DeadLetter, Message
from deadletter.core.attempts import Attempt
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.profiles.projection import taken
from systems.courier.rig import PAYLOAD

SENT = datetime(2026, 2, 26, 12, tzinfo=UTC)
DIED = datetime(2026, 2, 26, 12, 5, tzinfo=UTC)


def a_letter(code: str = "TIMEOUT", reason: Reason = Reason.ATTEMPTS_EXHAUSTED) -> DeadLetter:
    """A letter like the one in the document, with all its attempts."""
    event = {
        "eventId": "evt_123",
        "eventType": "shipment.status.updated",
        "idempotencyKey": "courier-x:evt_123",
        "traceId": "req_a1b2c3",
        "payload": msgspec.Raw(PAYLOAD),
    }
    return taken(
        Message(id="m", body=msgspec.json.encode(event), sent_at=SENT),
        Failure(
            trouble=Trouble.TRANSIENT,
            code=code,
            error_type="DownstreamFailed",
            text="Retries exhausted after transient timeouts",
        ),
        source=MAIN,
        reason=reason,
        attempts=5,
        dead_at=DIED,
        story=[Attempt(number=n, at=SENT, code="TIMEOUT") for n in range(1, 6)],
    )


def copied(letter: DeadLetter) -> dict[str, Any]:
    """Return the JSON that the worker sends to the dead-letter queue."""
    return dict(msgspec.json.decode(policy_of(profile({})).dead_copy(letter).body))


FIELDS: dict[str, object] = {
    "eventId": "evt_123",
    "idempotencyKey": "courier-x:evt_123",
    "traceId": "req_a1b2c3",
    "attemptCount": 5,
    "terminalReasonCode": "TIMEOUT_EXHAUSTED",
    "terminalReasonMessage": "Retries exhausted after transient timeouts",
    "payloadSnapshot": msgspec.json.decode(PAYLOAD),
    "deadLetteredAt": "2026-02-26T12:05:00Z",
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_copy_has_each_documented_field(field: str) -> None:
    assert copied(a_letter())[field] == FIELDS[field]


HISTORY: dict[str, list[object]] = {
    "attempt": [1, 2, 3, 4, 5],
    "outcome": ["failed"] * 5,
    "errorCode": ["TIMEOUT"] * 5,
}


@pytest.mark.parametrize("field", HISTORY)
def test_the_history_in_a_copy_has_each_documented_field(field: str) -> None:
    assert [one[field] for one in copied(a_letter())["attemptHistory"]] == HISTORY[field]


def test_a_copy_has_no_other_fields() -> None:
    assert set(copied(a_letter())) == {
        *("eventId", "idempotencyKey", "traceId", "attemptCount", "attemptHistory"),
        *("terminalReasonCode", "terminalReasonMessage", "payloadSnapshot", "deadLetteredAt"),
    }


def test_only_events_that_ran_out_of_attempts_are_exhausted() -> None:
    letter = a_letter("VALIDATION", Reason.FATAL_ERROR)

    assert copied(letter)["terminalReasonCode"] == "VALIDATION"
