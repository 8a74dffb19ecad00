"""Documents of a courier gateway that was not built on deadletter, as letters and keys."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.attempts import Attempt, append
from deadletter.core.errors import Malformed
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Message
from deadletter.core.text import encode_document

from .courier import MAILBOX, exhausted_code
from .projection import taken, understood

_STATES: Final[Mapping[str, State]] = MappingProxyType(
    {
        "pending": State.PENDING,
        "reviewed": State.REVIEWED,
        "replayed": State.REPLAYED,
        "closed": State.CLOSED,
    }
)


class _Attempt(Struct, frozen=True, rename="camel"):
    attempt: int = 0
    outcome: str = "failed"
    error_code: str = ""
    message: str = ""
    timestamp: Any = None  # a date, or its text


class _DeadEvent(Struct, frozen=True, kw_only=True, rename="camel"):
    event_id: str
    idempotency_key: str
    event_type: str = ""
    trace_id: str = ""
    terminal_reason_code: str
    terminal_reason_message: str = ""
    attempt_count: int = 0
    attempt_history: list[_Attempt] = []
    payload_snapshot: Any = None
    review_status: str = "pending"
    dead_lettered_at: Any = None  # a date, or its text
    created_at: Any = None  # a date, or its text


class KeyRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """An idempotency key of `processed_events`."""

    idempotency_key: str
    status: str
    expires_at: Any = None  # a date, or its text

    def seconds_left(self, now: datetime) -> float | None:
        """Return how long the key is still to be remembered; None if the record does not say."""
        ends = _time(self.expires_at)
        return None if ends is None else (ends - now).total_seconds()


def letter_of_record(id_: str, document: Mapping[str, Any], *, now: datetime) -> DeadLetter:
    """
    Return the letter of a document of `dead_letter_events`.

    Its message is the event as the gateway queues it, with the payload of the document. What
    the document does not say (source, time and signature of the event) is missing in it.
    """
    told = understood("a dead event", msgspec.convert, dict(document), _DeadEvent)
    if told.review_status not in _STATES:
        raise Malformed(f"reviewStatus must be one of {', '.join(_STATES)}: {told.review_status!a}")
    dead_at = _time(told.dead_lettered_at) or _time(told.created_at) or now
    code, is_exhausted = exhausted_code(told.terminal_reason_code)
    history = ""
    for attempt in told.attempt_history:
        at = _time(attempt.timestamp) or dead_at
        history = append(
            history,
            Attempt(
                number=attempt.attempt,
                at=at,
                outcome=attempt.outcome,
                code=attempt.error_code,
                text=attempt.message,
            ),
        )
    letter = taken(
        Message(
            id=id_,
            body=_body(told),
            sent_at=dead_at,
            content_type="application/json",
            idempotency_key=told.idempotency_key,
        ),
        Failure(
            trouble=Trouble.TRANSIENT if is_exhausted else Trouble.PERMANENT,
            code=code,
            error_type="",
            text=told.terminal_reason_message,
        ),
        source=MAILBOX,
        reason=Reason.ATTEMPTS_EXHAUSTED if is_exhausted else Reason.FATAL_ERROR,
        attempts=told.attempt_count,
        dead_at=dead_at,
        trace_id=told.trace_id or None,
    )
    head = msgspec.structs.replace(letter.head, state=_STATES[told.review_status])
    return msgspec.structs.replace(letter, head=head, history=history)


def key_of_record(document: Mapping[str, Any]) -> KeyRecord:
    """Return the key of a document of `processed_events`."""
    return understood("a processed event", msgspec.convert, dict(document), KeyRecord)


def _body(told: _DeadEvent) -> bytes:
    event = {
        "eventId": told.event_id,
        "eventType": told.event_type or "unknown",
        "idempotencyKey": told.idempotency_key,
        "traceId": told.trace_id or f"dlq-{told.event_id}",
        "payload": {} if told.payload_snapshot is None else told.payload_snapshot,
        "attempt": 1,
    }
    return encode_document(event, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Return a value of BSON as JSON has it: numbers as such, everything else as text."""
    return int(value) if isinstance(value, int) else str(value)


def _time(told: Any) -> datetime | None:
    if isinstance(told, str):
        try:
            told = datetime.fromisoformat(told)
        except ValueError:
            return None
    if not isinstance(told, datetime):
        return None
    return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
