"""
The fields of the courier gateway's documents in MongoDB, for others who read its collections.

`dead_letter_events` has the fields of the dead-letter payload and a `reviewStatus`,
`processed_events` those of the ledger. They are copies: deadletter itself reads its own fields.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from deadletter.core.attempts import Attempt
from deadletter.core.letter import DeadLetter, LetterHead, State

from .courier import attempts_of, courier_letter, event_type, terminal_code
from .documents import DocumentFields, KeyFields

# A letter that is out is reviewed until a worker has settled its event.
_STATUS: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.PENDING: "pending",
        State.QUARANTINED: "pending",
        State.REVIEWED: "reviewed",
        State.REPLAYING: "reviewed",
        State.REPLAYED: "replayed",
        State.CLOSED: "closed",
        State.DISCARDED: "closed",
    }
)
_LARGEST: Final = 256 * 1024  # bytes of a payload that is stored as an object
_DEEPEST: Final = 40  # levels; a document may have a hundred
_SMALLEST_INT, _LARGEST_INT = -(2**63), 2**63 - 1


class CourierDocuments(DocumentFields):
    """The fields of dead events."""

    name = "courier"
    keys = KeyFields(
        key="idempotencyKey",
        state="status",
        attempts="attemptCount",
        first_seen_at="firstSeenAt",
        changed_at="updatedAt",
        expires_at="expiresAt",
    )

    def letter(self, letter: DeadLetter) -> dict[str, Any]:
        """Return the fields of a new letter."""
        told = courier_letter(letter)
        snapshot = bytes(told.payload_snapshot)
        encoding = {} if told.payload_encoding is None else {"payloadEncoding": "base64"}
        return {
            "eventId": told.event_id,
            "eventType": event_type(letter.message.body),
            "idempotencyKey": told.idempotency_key,
            "traceId": told.trace_id,
            "payloadSnapshot": _value(snapshot),
            **encoding,
            "createdAt": letter.head.dead_at,
            **self.death(letter.head, letter.story()),
        }

    def death(self, head: LetterHead, story: Sequence[Attempt]) -> dict[str, Any]:
        """Return the fields that change when a letter dies again."""
        return {
            "attemptCount": head.attempts,
            "terminalReasonCode": terminal_code(head),
            "terminalReasonMessage": head.error_text,
            "attemptHistory": [
                {
                    "attempt": attempt.number,
                    "outcome": attempt.outcome,
                    "errorCode": attempt.code,
                    "message": attempt.text,
                    "timestamp": attempt.at,
                }
                for attempt in attempts_of(story)
            ],
            "deadLetteredAt": head.dead_at,
            **self.state(head.state),
        }

    def state(self, state: State) -> dict[str, Any]:
        """Return the fields that change with the state of a letter."""
        return {"reviewStatus": _STATUS[state]}


def _value(snapshot: bytes) -> Any:
    """Return a payload as MongoDB can store it; as its text if that is no object it can."""
    text = snapshot.decode()
    if len(snapshot) > _LARGEST:
        return text
    try:
        value = msgspec.json.decode(snapshot)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return text
    return value if _is_storable(value, _DEEPEST) else text


def _is_storable(value: Any, levels: int) -> bool:
    if levels == 0:
        return False
    match value:
        case bool() | float() | None:
            return True
        case int():
            return _SMALLEST_INT <= value <= _LARGEST_INT
        case str():
            return _is_text(value)
        case dict():
            names = (_is_text(name) and "\0" not in name for name in value)
            return all(names) and all(_is_storable(one, levels - 1) for one in value.values())
        case list():
            return all(_is_storable(one, levels - 1) for one in value)
        case _:
            return False


def _is_text(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
