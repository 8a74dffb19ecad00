"""
Traces, as far as they travel with messages and errors: W3C trace context.

An error may be marked with the span it was raised in. The mark becomes part of its
`Failure`, of the attempt in the letter's story and of log lines, so that a replay
can point back at what failed.
"""

import re
from contextlib import suppress
from typing import Final

from msgspec import Struct

_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
    r"(?:-.{0,200})?",
    re.ASCII,
)
_attributes: Final = BaseException.__dict__["__dict__"].__get__
_MARK: Final = "dlq_trace"


class SpanId(Struct, frozen=True):
    """One span of one trace."""

    trace_id: str
    span_id: str
    flags: str = "00"


def span_of(traceparent: str | None) -> SpanId | None:
    """The span a W3C `traceparent` names; None when it is not one."""
    found = _PARENT.fullmatch(traceparent or "")
    return SpanId(*found.groups()) if found else None


def trace_id(traceparent: str | None) -> str | None:
    """The trace a W3C `traceparent` belongs to; None when it is not one."""
    span = span_of(traceparent)
    return span.trace_id if span else None


def mark(error: BaseException, traceparent: str) -> None:
    """Say in which span an error was raised; some errors cannot be written on."""
    with suppress(Exception):
        _attributes(error)[_MARK] = traceparent


def marked(error: BaseException) -> str:
    """The span an error was raised in; empty when nobody said, or nothing sensible."""
    told = _attributes(error).get(_MARK)
    return told if type(told) is str and span_of(told) else ""
