"""Decisions are values, and signals are decisions a handler may raise."""

import msgspec
import pytest

from deadletter.core.decision import (
    Ack,
    Bury,
    Continue,
    Decision,
    Fail,
    Reason,
    Retry,
)
from deadletter.core.errors import (
    BackendError,
    ConfigError,
    DeadLetterError,
    GiveUp,
    Ignore,
    LogicalFailure,
    QueryError,
    Refused,
    RetryLater,
    Signal,
    Unavailable,
    translated,
)

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
    "signal",
    [RetryLater(5.0, "busy"), GiveUp("busy"), Ignore("busy"), LogicalFailure("busy")],
)
def test_a_signal_is_no_error_of_ours_and_says_why(signal: Signal) -> None:
    assert not isinstance(signal, DeadLetterError)
    assert str(signal) == "busy"


def test_a_search_that_cannot_be_read_points_at_the_place() -> None:
    error = QueryError("no such field", query="is:pending ag:2d", at=11)

    assert str(error).splitlines()[-2:] == ["  is:pending ag:2d", "             ^"]


def test_a_drivers_errors_become_ours_and_keep_their_cause() -> None:
    table = {TimeoutError: Unavailable, OSError: Refused}
    cause = TimeoutError("gone")

    with pytest.raises(Unavailable, match="gone") as caught, translated(table):
        raise cause

    assert caught.value.__cause__ is cause
    assert isinstance(caught.value, BackendError)


def test_errors_of_nobody_pass_untranslated() -> None:
    with pytest.raises(KeyError), translated({OSError: Unavailable}):
        raise KeyError("x")


def test_no_error_at_all_is_fine() -> None:
    with translated({OSError: Unavailable}):
        pass


def test_a_wrong_setting_is_an_error_of_ours() -> None:
    assert issubclass(ConfigError, DeadLetterError)
