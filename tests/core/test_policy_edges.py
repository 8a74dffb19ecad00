"""Policies at their edges: the unrun, routes, the error budget, what cannot be."""

from datetime import UTC, datetime, timedelta
from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.attempts import append, attempt_of
from deadletter.core.backoff import NoBackoff
from deadletter.core.errors import ConfigError, GiveUp, RetryLater
from deadletter.core.failure import Bury, Fail, Reason, Retry, Trouble
from deadletter.core.message import Delivery, Lineage, Message
from deadletter.core.policy import Disposition, DLQPolicy, ErrorBudgetPolicy, Route
from situations import NOW, Timeout, decide, delivery, failure

# Before the handler runs


def told(*numbers: int) -> str:
    history = ""
    for number in numbers:
        history = append(history, attempt_of(failure(), number=number, at=NOW))
    return history


def test_a_fresh_delivery_may_run() -> None:
    assert DLQPolicy(max_attempts=1).before(delivery(1), NOW) is None


@pytest.mark.parametrize("late", [0, 1])
def test_an_expired_message_is_buried_unrun(late: int) -> None:
    message = Message(id="m", body=b"", sent_at=NOW, expires_at=NOW)
    given = delivery(1, message=message)

    decision = DLQPolicy().before(given, NOW + timedelta(seconds=late))

    assert decision == Bury(Reason.EXPIRED, "expired at 2026-03-01T12:00:00+00:00")


def test_a_message_that_has_not_expired_may_run() -> None:
    message = Message(id="m", body=b"", sent_at=NOW, expires_at=NOW + timedelta(seconds=1))

    assert DLQPolicy().before(delivery(1, message=message), NOW) is None


def test_an_expired_message_may_be_failed_instead() -> None:
    policy = DLQPolicy(dispositions={Trouble.EXPIRED: Disposition.FAIL})
    message = Message(id="m", body=b"", sent_at=NOW, expires_at=NOW)

    decision = policy.before(delivery(1, message=message), NOW)

    assert decision == Fail("expired at 2026-03-01T12:00:00+00:00")


def aged(seconds: float, **more: Any) -> Delivery:
    sent_at = NOW - timedelta(seconds=seconds)
    return delivery(1, message=Message(id="m", body=b"", sent_at=sent_at, **more))


def test_a_message_older_than_a_policy_has_patience_is_buried_unrun() -> None:
    policy = DLQPolicy(expire_after=90)

    assert policy.before(aged(89.9), NOW) is None
    assert policy.before(aged(90), NOW) == Bury(
        Reason.EXPIRED, "sent at 2026-03-01T11:58:30+00:00, expired after 90 s"
    )
    assert DLQPolicy().before(aged(1e9), NOW) is None


def test_whichever_expiry_is_over_first_counts() -> None:
    policy = DLQPolicy(expire_after=90)
    later, over = NOW + timedelta(days=1), NOW - timedelta(seconds=1)

    for message in (aged(90, expires_at=later), aged(5, expires_at=over)):
        decision = policy.before(message, NOW)

        assert isinstance(decision, Bury)
        assert decision.reason is Reason.EXPIRED
    assert policy.before(aged(5, expires_at=later), NOW) is None


def test_a_replayed_copy_is_not_too_old_for_a_policy() -> None:
    lineage = Lineage(letter_id="l", generation=1, campaign="c")

    decision = DLQPolicy(expire_after=90).before(aged(1e6, lineage=lineage), NOW)

    assert decision is None


def test_messages_from_the_future_and_from_long_ago_are_judged() -> None:
    policy = DLQPolicy(expire_after=1e300)
    ends = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]

    for sent_at in ends:
        given = delivery(1, message=Message(id="m", body=b"", sent_at=sent_at))
        assert policy.before(given, NOW) is None


@pytest.mark.parametrize("seconds", [0, -1, nan])
def test_an_expiry_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="expire_after"):
        DLQPolicy(expire_after=seconds)


@given(attempt=st.integers(1, 20), spared=st.integers(0, 5))
def test_messages_that_used_up_their_attempts_by_lost_workers_are_not_run_again(
    attempt: int, spared: int
) -> None:
    policy = DLQPolicy(max_attempts=5)

    decision = policy.before(delivery(attempt + spared, spared=spared), NOW)

    assert (decision is not None) == (attempt > 5)
    if decision is not None:
        assert isinstance(decision, Bury)
        assert decision.reason is Reason.WORKER_LOST


def test_worker_lost_and_exhausted_are_told_apart_by_what_was_recorded() -> None:
    policy = DLQPolicy(max_attempts=3)

    lost = policy.before(delivery(4, history=told(1, 2)), NOW)
    exhausted = policy.before(delivery(4, history=told(1, 2, 3)), NOW)

    assert lost == Bury(Reason.WORKER_LOST, "its worker died in attempt 3 of 3")
    assert exhausted == Bury(Reason.ATTEMPTS_EXHAUSTED, "failed 3 of 3 attempts")


# Routes


ROUTES = (
    Route(to="fraud", code="FRAUD"),
    Route(to="{mailbox}-bodies", trouble=Trouble.MALFORMED),
    Route(to="timeouts", error="Timeout", trouble=Trouble.PERMANENT),
    Route(to="too-late", trouble=Trouble.EXPIRED),
)


@pytest.mark.parametrize(
    ("trouble", "code", "to"),
    [
        (Trouble.PERMANENT, "FRAUD", "fraud"),
        (Trouble.MALFORMED, "CODE", "{mailbox}-bodies"),
        (Trouble.MALFORMED, "FRAUD", "fraud"),  # the first that fits
        (Trouble.PERMANENT, "CODE", "timeouts"),
        (Trouble.LOOP, "CODE", None),
    ],
)
def test_a_letter_takes_the_first_route_that_fits(
    trouble: Trouble, code: str, to: str | None
) -> None:
    decision = decide(DLQPolicy(routes=ROUTES), trouble=trouble, code=code)

    assert isinstance(decision, Bury)
    assert decision.route == to


@pytest.mark.parametrize("name", ["Timeout", "shop.Timeout"])
def test_a_route_knows_an_error_with_or_without_its_module(name: str) -> None:
    assert Route(to="x", error=name).fits(failure())
    assert not Route(to="x", error="time").fits(failure())


def test_the_unrun_take_routes_too() -> None:
    message = Message(id="m", body=b"", sent_at=NOW, expires_at=NOW)

    decision = DLQPolicy(routes=ROUTES).before(delivery(1, message=message), NOW)

    assert isinstance(decision, Bury)
    assert decision.route == "too-late"


def test_a_handler_giving_up_is_routed_like_any_other() -> None:
    decision = decide(DLQPolicy(routes=ROUTES), error=GiveUp("no"), code="FRAUD")

    assert decision == Bury(Reason.REJECTED, "no", "fraud")


def test_retried_messages_take_no_route() -> None:
    policy = DLQPolicy(routes=ROUTES, backoff=NoBackoff())

    assert decide(policy, code="FRAUD") == Retry(0.0)


def test_the_dead_mailbox_is_the_route_or_else_the_usual_one() -> None:
    policy = DLQPolicy(dead_queue="{mailbox}-dlq")

    assert policy.dead_mailbox("orders", None) == "orders-dlq"
    assert policy.dead_mailbox("orders", "{mailbox}-bodies") == "orders-bodies"
    assert DLQPolicy().dead_mailbox("orders", None) is None


# The error budget


@given(rate=st.floats(0, 1), attempt=st.integers(1, 12))
def test_over_its_error_budget_a_policy_gives_up_early_r3_59(rate: float, attempt: int) -> None:
    policy = ErrorBudgetPolicy(max_attempts=10, error_budget=0.3)

    decision = decide(policy, attempt, error_rate=rate)

    assert isinstance(decision, Bury) == (attempt >= 10 or rate > 0.3)


def test_the_error_budget_leaves_the_uncharged_alone() -> None:
    policy = ErrorBudgetPolicy(exclude_errors=frozenset({Timeout}))

    assert isinstance(decide(policy, error_rate=1.0), Retry)
    later = decide(policy, error=RetryLater(5.0), error_rate=1.0)
    assert later == Retry(5.0, charged=False)


def test_the_error_budget_says_what_it_saw() -> None:
    decision = decide(ErrorBudgetPolicy(), error_rate=0.75)

    assert isinstance(decision, Bury)
    assert decision.text == "75% of attempts fail; the budget is 50%"


# What cannot be


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"max_attempts": -1}, "0 means unlimited.*got -1"),
        ({"max_attempts": 1.5}, "max_attempts must be >= 0 .*got 1.5"),
        ({"max_attempts": "3"}, "max_attempts must be >= 0 .*got '3'"),
        ({"limit_mode": "after"}, "limit_mode must be reached or exceeded"),
        ({"backoff": 5}, r"backoff must be .*Fixed\(5.0\).*got 5"),
        ({"include_errors": [KeyError]}, "include_errors must be a set of exception"),
        ({"exclude_errors": {"KeyError"}}, "exclude_errors must be a set of exception"),
        ({"exclude_errors": {int}}, "exclude_errors must be a set of exception"),
        (
            {
                "include_errors": frozenset({Timeout, KeyError}),
                "exclude_errors": frozenset({Timeout}),
            },
            "Timeout is in both",
        ),
        ({"dead_queue": "{mailbox}"}, "the mailbox itself"),
        ({"dead_queue": ""}, "name another mailbox"),
        ({"dead_queue": " "}, "name another mailbox"),
        ({"dead_queue": "dlq.{cluster}"}, r"only \{mailbox\} can be filled in"),
    ],
)
def test_invalid_policies_are_rejected_with_a_sentence(
    bad: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        DLQPolicy(**bad)  # type: ignore[arg-type]


def test_a_limit_mode_may_be_given_by_its_name() -> None:
    by_name = DLQPolicy(max_attempts=3, limit_mode="exceeded")  # type: ignore[arg-type]

    assert by_name.allowed_attempts == 4


@pytest.mark.parametrize("to", ["", "{mailbox}", "{queue}-dlq"])
def test_a_route_that_leads_nowhere_is_refused(to: str) -> None:
    with pytest.raises(ConfigError, match="Route"):
        Route(to=to)


@pytest.mark.parametrize("budget", [-0.1, 1.1, nan])
def test_an_error_budget_is_a_share(budget: float) -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        ErrorBudgetPolicy(error_budget=budget)


@pytest.mark.parametrize(
    "policy", [DLQPolicy(dead_queue="orders"), DLQPolicy(routes=(Route(to="orders"),))]
)
def test_no_mailbox_is_its_own_dead_mailbox_p7(policy: DLQPolicy) -> None:
    policy.check_mailbox("mails")

    with pytest.raises(ConfigError, match="its own dead-letter mailbox"):
        policy.check_mailbox("orders")
