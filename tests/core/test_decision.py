"""Decisions are values, and signals are decisions a handler may raise."""

import msgspec
import pytest

from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    GiveUp,
    Ignore,
    LogicalFailure,
    QueryError,
    RetryLater,
    Signal,
)
from deadletter.core.failure import Ack, Bury, Continue, Decision, Fail, Reason, Retry

DECISIONS: list[Decision] = [
    Ack("seen before"),
    Retry(3.5),
    Retry(3.5, charged=False),
    Bury(Reason.EXPIRED, "too late", "late-ones"),
    Fail("no"),
    Continue("out of stock"),
]


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_survives_being_written_down(decision: Decision) -> None:
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


def test_the_reasons_are_a_closed_list_in_kebab_case() -> None:
    assert {str(reason) for reason in Reason} == {
        "fatal-error",
        "attempts-exhausted",
        "undecodable",
        "expired",
        "rejected",
        "worker-lost",
        "operator",
        "id-conflict",
    }


def test_to_retry_later_costs_no_attempt() -> None:
    assert RetryLater(5.0).decision == Retry(5.0, charged=False)


@pytest.mark.parametrize(
    "signal", [RetryLater(5.0, "busy"), GiveUp("busy"), Ignore("busy"), LogicalFailure("busy")]
)
def test_a_signal_is_no_error_of_ours_and_says_why(signal: Signal) -> None:
    assert not isinstance(signal, DeadLetterError)
    assert str(signal) == "busy"


def test_a_search_that_cannot_be_read_points_at_the_place() -> None:
    error = QueryError("no such field", query="is:pending ag:2d", at=11)

    assert str(error).splitlines()[-2:] == ["  is:pending ag:2d", "             ^"]


def test_a_wrong_setting_is_an_error_of_ours() -> None:
    assert issubclass(ConfigError, DeadLetterError)
