"""
Events as log lines: the tag is the message, the fields are the keys.

With structlog installed they are logged there, otherwise to the logger `deadletter` of the
standard library. Lines of one kind are limited per second, so that an outage does not fill
the disk; lines left out are counted. Deleted items are always logged.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

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
    FilingFailed,
    HandlerNoted,
    HandlerStuck,
    HeadersIgnored,
    ItemDeleted,
    ItemMoved,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    LoopDied,
    Observer,
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
from deadletter.core.message import span_of
from deadletter.core.text import cut, plain_line
from deadletter.ports import Clock

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
    FilingFailed: logging.ERROR,
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

# Established names of fields, where the names in the event are different.
_RENAMED: Final[Mapping[type[Event], Mapping[str, str]]] = {
    Buried: {"mailbox": "source_mailbox", "attempt": "delivery_count"},
    LetterHandled: {"age": "age_seconds"},
}
_LIMIT: Final = 500  # characters of one value


def name_of(event: Event) -> str:
    """Return the tag of an event, which is the message of its line."""
    return str(type(event).__struct_config__.tag)


def fields_of(event: Event) -> dict[str, Any]:
    """Return the fields of an event, which are the keys of its line."""
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
    """Return a text on one line, bounded, without control characters."""
    # str() first, because members of a StrEnum are shown by their value.
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


Log: TypeAlias = Callable[[int, str, Mapping[str, Any]], None]
"""Writes one line: level, message, fields."""

LINES_A_SECOND: Final = 10  # of each kind
UNLIMITED: Final = frozenset({ItemDeleted})  # all that is left of an item is its line
_NAME: Final = "deadletter"
_KINDS: Final = 1000  # different kinds at most


def log_events(
    clock: Clock, *, log: Log | None = None, lines_a_second: int = LINES_A_SECOND
) -> Observer:
    """Return an observer that writes a line per event, of each kind a few per second."""
    return _Lines(clock, log or _default_log(), lines_a_second)


class _Lines:
    """An observer that writes lines up to a limit per second, and counts those left out."""

    def __init__(self, clock: Clock, log: Log, limit: int) -> None:
        self._clock = clock
        self._log = log
        self._limit = limit
        self._second = 0
        self._seen: dict[tuple[str, str], int] = {}
        self._levels: dict[str, int] = {}  # by kind

    def __call__(self, event: Event) -> None:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._report()
        name = name_of(event)
        if type(event) in UNLIMITED:
            self._write(name, event)
            return
        kind = (name, event.mailbox)
        if kind not in self._seen and len(self._seen) >= _KINDS:
            kind = (name, "")
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        if seen <= self._limit:
            self._levels[name] = self._write(name, event)

    def _write(self, name: str, event: Event) -> int:
        """Write a line; return its level."""
        level = LEVELS.get(type(event), logging.INFO)
        self._log(level, name, fields_of(event))
        return level

    def _report(self) -> None:
        """Write how many lines were left out, and reset the counts."""
        seen, self._seen = self._seen, {}
        for (name, mailbox), count in seen.items():
            if count > self._limit:
                left_out = {"kind": name, "mailbox": line(mailbox), "lines": count - self._limit}
                self._log(self._levels[name], "left-out", left_out)


def _default_log() -> Log:
    try:
        import structlog  # noqa: PLC0415 -- an extra, and nothing else needs it
    except ImportError:
        return _to_logging
    logger = structlog.get_logger(_NAME)

    def to_structlog(level: int, name: str, fields: Mapping[str, Any]) -> None:
        logger.log(level, name, **fields)

    return to_structlog


def _to_logging(level: int, name: str, fields: Mapping[str, Any]) -> None:
    logger = logging.getLogger(_NAME)
    if not logger.isEnabledFor(level):
        return
    text = " ".join(f"{key}={_shown(value)}" for key, value in fields.items())
    logger.log(level, "%s %s", name, text, extra={_NAME: dict(fields)})


def _shown(value: object) -> str:
    """Return plain words as they are; others quoted."""
    text = str(value)
    if text.isprintable() and text and not set(text) & set(" \"'=\\"):
        return text
    return json.dumps(text, ensure_ascii=False)
