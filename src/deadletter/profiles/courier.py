"""
Courier events: which errors are permanent, and the JSON of dead events.

Permanent are errors of validation, malformed events and invalid payloads. All others are
retried, known or not.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw, Struct

from deadletter.core.attempts import Attempt
from deadletter.core.errors import Malformed
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.core.failure.classify import Rule
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message
from deadletter.core.text import encode_document

from .projection import taken, understood

# The order decides: codes and names first, then statuses that say that the event is not
# at fault, then words of the text. Whatever is left is unknown, and so retried.
#
# 401, 403 and 407 concern credentials, the others the state of the downstream system.
# Their texts do not count: "503: session invalid" says nothing about the event.
_NOT_THE_EVENT: Final = frozenset({401, 403, 407, 408, 425, 429, 502, 503, 504})

_INVALID_PAYLOAD: Final = re.compile(
    r"invalid[\s_-]+(?:\w+[\s_-]+)?payload|payload[\s:]+(?:is[\s]+)?invalid", re.IGNORECASE
)


def _permanent(code: str, name: str) -> Iterator[Rule]:
    """Yield the rules of a permanent error: its codes, then the names of error classes."""
    kind = code.lower().replace("_", "-")
    codes = frozenset({code, f"{code}_ERROR", f"{code}_FAILED"})
    yield Rule(id=f"courier-{kind}-code", trouble=Trouble.PERMANENT, error_codes=codes)
    yield Rule(id=f"courier-{kind}", trouble=Trouble.PERMANENT, code=code, name_parts=(name,))


COURIER: Final = (
    Rule(
        id="courier-network",
        trouble=Trouble.TRANSIENT,
        error_codes=frozenset({"ECONNREFUSED", "ETIMEDOUT"}),
    ),
    Rule(
        id="courier-timeout-code",
        trouble=Trouble.TRANSIENT,
        error_codes=frozenset({"TIMEOUT", "DOWNSTREAM_TIMEOUT"}),
    ),
    Rule(id="courier-timeout", trouble=Trouble.TRANSIENT, code="TIMEOUT", name_parts=("Timeout",)),
    *_permanent("VALIDATION", "Validation"),
    *_permanent("MALFORMED", "Malformed"),
    *_permanent("INVALID_PAYLOAD", "InvalidPayload"),
    Rule(id="courier-not-the-event", trouble=Trouble.TRANSIENT, statuses=_NOT_THE_EVENT),
    Rule(
        id="courier-says-timeout",
        trouble=Trouble.TRANSIENT,
        code="TIMEOUT",
        texts=("timed out", "etimedout"),
    ),
    Rule(
        id="courier-says-refused",
        trouble=Trouble.TRANSIENT,
        code="ECONNREFUSED",
        texts=("connection refused", "econnrefused"),
    ),
    Rule(
        id="courier-says-validation",
        trouble=Trouble.PERMANENT,
        code="VALIDATION",
        texts=("validation",),
    ),
    Rule(
        id="courier-says-malformed",
        trouble=Trouble.PERMANENT,
        code="MALFORMED",
        texts=("malformed",),
    ),
    Rule(
        id="courier-says-invalid-payload",
        trouble=Trouble.PERMANENT,
        code="INVALID_PAYLOAD",
        pattern=_INVALID_PAYLOAD,
    ),
    # Unprocessable Content is the status of a failed validation.
    Rule(
        id="courier-unprocessable",
        trouble=Trouble.PERMANENT,
        code="VALIDATION",
        statuses=frozenset({422}),
    ),
    Rule(id="courier-server-error", trouble=Trouble.TRANSIENT, statuses=range(500, 600)),
    # Any other status is unknown: it only names the failure, such as HTTP_404.
    Rule(id="courier-unknown-status", trouble=Trouble.UNKNOWN, statuses=range(300, 500)),
)


# The courier gateway's dead-letter JSON, with all attempts in it.

MAILBOX: Final = "courier-events-main"
_EXHAUSTED: Final = "_EXHAUSTED"
_CUT: Final = "cut"  # the mark of a cut history, not an attempt
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeError)


class CourierAttempt(Struct, frozen=True, rename="camel"):
    """One attempt, in the gateway's short form."""

    attempt: int
    outcome: str
    error_code: str = ""


class CourierLetter(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An event that could not be delivered."""

    event_id: str
    idempotency_key: str
    trace_id: str
    attempt_count: int
    terminal_reason_code: str
    terminal_reason_message: str
    attempt_history: list[CourierAttempt]
    payload_snapshot: Raw
    payload_encoding: str | None = None  # base64 for what is not JSON
    dead_lettered_at: datetime


class _Event(Struct, frozen=True, rename="camel"):
    """An event of the gateway with its payload, as a body carries it."""

    event_id: str
    payload: Raw
    event_type: str = ""
    idempotency_key: str = ""
    trace_id: str = ""


_event: Final = msgspec.json.Decoder(_Event)
_any_json: Final = msgspec.json.Decoder(Raw)
_letter: Final = msgspec.json.Decoder(CourierLetter)


def export(letter: DeadLetter) -> bytes:
    """
    Return the letter as JSON. The snapshot is the event's payload, byte for byte.

    A body that is not an event is its own payload; one that is not JSON is base64.
    """
    return encode_document(courier_letter(letter))


def courier_letter(letter: DeadLetter) -> CourierLetter:
    """Return the letter in the gateway's form."""
    head, body = letter.head, letter.message.body
    event = _event_in(body)
    snapshot = event.payload if event else _json_in(body)
    return CourierLetter(
        event_id=event.event_id if event else head.message_id,
        idempotency_key=(event and event.idempotency_key) or head.business_key or "",
        trace_id=(event and event.trace_id) or head.trace_id or "",
        attempt_count=head.attempts,
        terminal_reason_code=terminal_code(head),
        terminal_reason_message=head.error_text,
        attempt_history=[
            CourierAttempt(attempt.number, attempt.outcome, attempt.code)
            for attempt in attempts_of(letter.story())
        ],
        payload_snapshot=_base64(body) if snapshot is None else snapshot,
        payload_encoding="base64" if snapshot is None else None,
        dead_lettered_at=head.dead_at,
    )


def attempts_of(story: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts of a story without the marks of where it was cut."""
    return [attempt for attempt in story if attempt.outcome != _CUT]


def event_type(body: bytes) -> str:
    """Return the type of an event; empty for a body that is not one."""
    event = _event_in(body)
    return event.event_type if event else ""


def terminal_code(head: LetterHead) -> str:
    """Return why an event is dead: the code of its last error, and whether attempts ran out."""
    code = head.code or head.error_name
    return f"{code}{_EXHAUSTED}" if head.reason is Reason.ATTEMPTS_EXHAUSTED else code


def exhausted_code(code: str) -> tuple[str, bool]:
    """Return the code of the last error, and whether attempts ran out; see `terminal_code`."""
    return code.removesuffix(_EXHAUSTED), code.endswith(_EXHAUSTED)


def import_(text: bytes, *, mailbox: str = MAILBOX) -> DeadLetter:
    """Return the letter of a document; its payload becomes the body, byte for byte."""
    told = understood("a courier dead letter", _letter.decode, text)
    message = Message(
        id=told.event_id,
        body=_body(told),
        sent_at=told.dead_lettered_at,
        content_type="application/json" if told.payload_encoding is None else None,
        idempotency_key=told.idempotency_key or None,
    )
    code, exhausted = exhausted_code(told.terminal_reason_code)
    return taken(
        message,
        Failure(
            trouble=Trouble.TRANSIENT if exhausted else Trouble.PERMANENT,
            code=code,
            error_type="",
            text=told.terminal_reason_message,
        ),
        source=mailbox,
        reason=Reason.ATTEMPTS_EXHAUSTED if exhausted else Reason.FATAL_ERROR,
        attempts=told.attempt_count,
        dead_at=told.dead_lettered_at,
        story=[
            Attempt(
                number=attempt.attempt,
                at=told.dead_lettered_at,
                outcome=attempt.outcome,
                code=attempt.error_code,
            )
            for attempt in told.attempt_history
        ],
        trace_id=told.trace_id or None,
    )


def _event_in(body: bytes) -> _Event | None:
    try:
        event = _event.decode(body)
        bytes(event.payload).decode()  # JSON must be UTF-8
    except _UNREADABLE:
        return None
    return event


def _json_in(body: bytes) -> Raw | None:
    try:
        raw = _any_json.decode(body)
        body.decode()
    except _UNREADABLE:
        return None
    # White space around it would be lost in the document, and bytes are bytes.
    return raw if bytes(raw) == body else None


def _base64(body: bytes) -> Raw:
    return Raw(encode_document(b64encode(body).decode()))


def _body(told: CourierLetter) -> bytes:
    raw = bytes(told.payload_snapshot)
    if told.payload_encoding is None:
        return raw
    if told.payload_encoding != "base64":
        raise Malformed(f"payloadEncoding is {told.payload_encoding!r}, not base64")
    try:
        return b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except (msgspec.MsgspecError, NotBase64, ValueError) as error:
        raise Malformed(f"payloadSnapshot is not base64: {error}") from error
