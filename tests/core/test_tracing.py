"""W3C trace context: what is one, and how errors carry it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.attempts import append, attempt_of, read
from deadletter.core.failure.capture import capture
from deadletter.core.failure.rules import DEFAULT
from deadletter.core.message import SpanId, mark, marked, span_of, trace_id

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_traceparent_names_a_span_of_a_trace() -> None:
    assert span_of(PARENT) == SpanId(TRACE, SPAN, "01")
    assert trace_id(PARENT) == TRACE
    assert span_of(f"cc-{TRACE}-{SPAN}-01-more") is not None  # a later version


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "",
        TRACE,
        f"00-{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01-" + "x" * 10_000,
    ],
)
def test_invalid_trace_contexts_name_no_trace(odd: str | None) -> None:
    assert span_of(odd) is None


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    span_of(text)


def test_a_marked_error_tells_its_span_to_the_attempt_it_ends() -> None:
    error = ValueError("no")
    mark(error, PARENT)

    failure = capture(error, DEFAULT)
    [attempt] = read(append("", attempt_of(failure, number=1, at=NOW)))

    assert failure.trace == PARENT
    assert attempt.trace == PARENT


def test_an_unmarked_error_tells_none_and_its_attempt_stays_as_short() -> None:
    failure = capture(ValueError("no"), DEFAULT)

    assert failure.trace == ""
    assert "trace" not in append("", attempt_of(failure, number=1, at=NOW))


@pytest.mark.parametrize("told", ["not one", 7, PARENT.encode(), "x" * 10**6])
def test_trace_fields_of_others_are_not_trusted(told: object) -> None:
    error = ValueError("no")
    error.dlq_trace = told  # type: ignore[attr-defined]

    assert marked(error) == ""
    assert capture(error, DEFAULT).trace == ""
