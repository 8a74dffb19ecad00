"""What a log line says about an event, in words that are safe to print."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from msgspec import structs

from deadletter.core.events import (
    Alerted,
    AlertFailed,
    Anchored,
    AnchorFailed,
    BackInReach,
    BrakeClosed,
    BrakeOpened,
    Buried,
    ClockJumped,
    CopyFailed,
    Event,
    FailedForGood,
    HandlerNoted,
    HandlerStuck,
    HeadersIgnored,
    ItemDeleted,
    ItemMoved,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    LoopDied,
    OutOfReach,
    PolicyFailed,
    Received,
    ReplyFailed,
    Retried,
    Stalled,
    Succeeded,
    SuspectsFound,
    WorkerStarted,
    WorkerStopped,
)
from deadletter.core.failure import Failure
from deadletter.core.plain import cut, plain_line
from deadletter.core.tracing import span_of

LEVELS: Final[Mapping[type[Event], int]] = {
    WorkerStarted: logging.INFO,
    WorkerStopped: logging.INFO,
    Received: logging.DEBUG,
    Succeeded: logging.DEBUG,
    Retried: logging.INFO,
    Buried: logging.WARNING,
    FailedForGood: logging.WARNING,
    LeaseLost: logging.WARNING,
    HandlerNoted: logging.INFO,
    HandlerStuck: logging.ERROR,
    PolicyFailed: logging.ERROR,
    SuspectsFound: logging.WARNING,
    BrakeOpened: logging.WARNING,
    BrakeClosed: logging.INFO,
    OutOfReach: logging.ERROR,
    BackInReach: logging.INFO,
    ReplyFailed: logging.WARNING,
    CopyFailed: logging.WARNING,
    HeadersIgnored: logging.WARNING,
    LetterHandled: logging.INFO,
    LetterRefused: logging.ERROR,
    LoopDied: logging.ERROR,
    Stalled: logging.ERROR,
    ClockJumped: logging.WARNING,
    ItemMoved: logging.INFO,
    ItemDeleted: logging.WARNING,
    Alerted: logging.INFO,
    AlertFailed: logging.ERROR,
    Anchored: logging.INFO,
    AnchorFailed: logging.ERROR,
}

# The names people search for, where they are not the event's own.
_RENAMED: Final[Mapping[type[Event], Mapping[str, str]]] = {
    Buried: {"mailbox": "source_mailbox", "attempt": "delivery_count"},
    LetterHandled: {"age": "age_seconds"},
}
_LIMIT: Final = 500  # characters of one value


def name_of(event: Event) -> str:
    """What happened, as the message of a line: the event's tag."""
    return str(type(event).__struct_config__.tag)


def fields_of(event: Event) -> dict[str, Any]:
    """What there is to know about it, as the keys of a line."""
    renamed = _RENAMED.get(type(event), {})
    fields: dict[str, Any] = {renamed.get("mailbox", "mailbox"): line(event.mailbox)}
    for key, value in structs.asdict(event).items():
        if isinstance(value, Failure):
            fields |= _of_failure(value)
        elif isinstance(value, float):
            fields[renamed.get(key, key)] = round(value, 6)
        elif isinstance(value, str):
            fields[renamed.get(key, key)] = line(value)
        else:
            fields[renamed.get(key, key)] = value
    return fields


def line(text: str) -> str:
    """The text on one line, bounded, without anything a terminal would act on."""
    # str() first: the members of a StrEnum are to be shown by their value.
    return plain_line(cut(str(text), _LIMIT)).replace("\t", "\\t")


def _of_failure(failure: Failure) -> dict[str, Any]:
    fields = {
        "trouble": str(failure.trouble),
        "error_code": line(failure.code),
        "error_type": line(failure.error_type),
        "error_message": line(failure.text),
    }
    if (span := span_of(failure.trace)) is not None:
        fields |= {"trace_id": span.trace_id, "span_id": span.span_id}
    return fields
