"""The one place where fates are decided, law by law."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.backoff import Fixed, Linear, NoBackoff
from deadletter.core.errors import GiveUp, Ignore, LogicalFailure, RetryLater
from deadletter.core.failure import Ack, Bury, Continue, Decision, Fail, Reason, Retry, Trouble
from deadletter.core.message import Delivery
from deadletter.core.policy import DISPOSITIONS, LONGEST_WISH, Disposition, DLQPolicy, LimitMode
from situations import NOW, SlowTimeout, Timeout, decide, delivery

draws = st.floats(0, 1, exclude_max=True)


# Patience


@given(limit=st.integers(1, 50), attempt=st.integers(1, 100), draw=draws)
def test_patience_ends_exactly_at_the_last_attempt(limit: int, attempt: int, draw: float) -> None:
    decision = decide(DLQPolicy(max_attempts=limit), attempt, draw=draw)

    assert isinstance(decision, Bury) == (attempt >= limit)
    assert isinstance(decision, Retry) == (attempt < limit)


@given(limit=st.integers(1, 50), attempt=st.integers(1, 100))
def test_exceeded_takes_one_failure_more_than_reached(limit: int, attempt: int) -> None:
    reached = DLQPolicy(max_attempts=limit)
    exceeded = DLQPolicy(max_attempts=limit, limit_mode=LimitMode.EXCEEDED)

    assert exceeded.is_spent(attempt + 1) == reached.is_spent(attempt)
    assert isinstance(decide(exceeded, attempt), Bury) == (attempt > limit)


@pytest.mark.parametrize("mode", LimitMode)
@given(attempt=st.integers(1, 1_000_000))
def test_zero_is_unlimited(mode: LimitMode, attempt: int) -> None:
    policy = DLQPolicy(max_attempts=0, limit_mode=mode)

    assert isinstance(decide(policy, attempt), Retry)
    assert policy.before(delivery(attempt), NOW) is None


@given(attempt=st.integers(1, 60), spared=st.integers(0, 60))
def test_spared_attempts_do_not_count(attempt: int, spared: int) -> None:
    policy = DLQPolicy(max_attempts=5)

    decision = decide(policy, attempt + spared, spared=spared)

    assert isinstance(decision, Bury) == (attempt >= 5)


def test_the_reason_is_a_sentence_with_the_numbers_in_it() -> None:
    reached = DLQPolicy(max_attempts=3)
    exceeded = DLQPolicy(max_attempts=3, limit_mode=LimitMode.EXCEEDED)

    assert decide(reached, 3) == Bury(Reason.ATTEMPTS_EXHAUSTED, "failed 3 of 3 attempts")
    assert decide(exceeded, 4) == Bury(Reason.ATTEMPTS_EXHAUSTED, "failed 4 of 4 attempts")


def test_the_last_death_of_a_worker_says_so() -> None:
    decision = decide(DLQPolicy(max_attempts=3), 3, trouble=Trouble.WORKER_LOST)

    assert decision == Bury(Reason.WORKER_LOST, "failed 3 of 3 attempts")


# Dispositions


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.parametrize("disposition", Disposition)
@pytest.mark.parametrize("attempt", [1, 5])
def test_every_trouble_leads_where_its_disposition_says(
    trouble: Trouble, disposition: Disposition, attempt: int
) -> None:
    policy = DLQPolicy(max_attempts=5, backoff=Fixed(7.0), dispositions={trouble: disposition})

    decision = decide(policy, attempt, trouble=trouble)

    match disposition:
        case Disposition.RETRY if attempt < 5:
            assert decision == Retry(7.0)
        case Disposition.RETRY | Disposition.DEAD_LETTER:
            assert isinstance(decision, Bury)
        case Disposition.FAIL:
            assert decision == Fail(f"{trouble} error: CODE")
        case Disposition.CONTINUE:
            assert decision == Continue("no answer")
        case Disposition.KEEP_RETRYING:
            assert decision == Retry(7.0, charged=False)


def test_unset_options_keep_their_defaults() -> None:
    policy = DLQPolicy(dispositions={Trouble.PERMANENT: Disposition.FAIL})

    for trouble in set(Trouble) - {Trouble.PERMANENT}:
        assert policy.disposition(trouble) is DISPOSITIONS[trouble]
    assert set(DISPOSITIONS) == set(Trouble)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (Trouble.PERMANENT, Reason.FATAL_ERROR),
        (Trouble.LOOP, Reason.FATAL_ERROR),
        (Trouble.MALFORMED, Reason.UNDECODABLE),
        (Trouble.EXPIRED, Reason.EXPIRED),
    ],
)
def test_permanent_failures_are_buried_at_once_with_their_reason(
    trouble: Trouble, reason: Reason
) -> None:
    decision = decide(DLQPolicy(), 1, trouble=trouble)

    assert decision == Bury(reason, f"{trouble} error: CODE")


# Types of errors


def test_excluded_errors_are_retried_for_ever_and_cost_nothing_r3_13() -> None:
    policy = DLQPolicy(
        max_attempts=5, backoff=Linear(60.0, cap=900.0), exclude_errors=frozenset({Timeout})
    )

    assert decide(policy, 3) == Retry(180.0, charged=False)
    assert decide(policy, 500, spared=499) == Retry(900.0, charged=False)
    assert decide(policy, 9, trouble=Trouble.PERMANENT) == Retry(540.0, charged=False)


def test_included_errors_are_buried_at_once_r3_11() -> None:
    policy = DLQPolicy(max_attempts=5, include_errors=frozenset({Timeout}))

    decision = decide(policy, 1)

    assert decision == Bury(Reason.FATAL_ERROR, "shop.Timeout is not retried")


def test_an_included_error_is_kept_even_where_its_trouble_would_not_be() -> None:
    policy = DLQPolicy(
        include_errors=frozenset({Timeout}), dispositions={Trouble.PERMANENT: Disposition.FAIL}
    )

    assert isinstance(decide(policy, 1, trouble=Trouble.PERMANENT), Bury)


@pytest.mark.parametrize("name", ["include_errors", "exclude_errors"])
def test_types_are_matched_exactly_r3_16(name: str) -> None:
    policy = DLQPolicy(backoff=NoBackoff(), **{name: frozenset({Timeout})})

    assert decide(policy, 1, error=SlowTimeout()) == Retry(0.0)


def test_exclude_comes_before_include_and_include_before_the_count_r3_15() -> None:
    policy = DLQPolicy(
        max_attempts=5, exclude_errors=frozenset({Timeout}), include_errors=frozenset({ValueError})
    )

    assert not policy.should_dead_letter(delivery(99), Timeout())
    assert policy.should_dead_letter(delivery(1), ValueError())
    assert not policy.should_dead_letter(delivery(4), KeyError())
    assert policy.should_dead_letter(delivery(5), KeyError())


@given(attempt=st.integers(1, 20), limit=st.integers(1, 20))
def test_the_count_rule_is_that_of_r3_17(attempt: int, limit: int) -> None:
    policy = DLQPolicy(max_attempts=limit)

    assert policy.should_dead_letter(delivery(attempt), KeyError()) == (attempt >= limit)


class GivesUpOnBigOrders(DLQPolicy, frozen=True, kw_only=True):
    """A policy of somebody's own."""

    def should_dead_letter(self, delivery: Delivery, error: BaseException) -> bool:
        return "big" in str(error) or super().should_dead_letter(delivery, error)


def test_a_policy_of_ones_own_may_give_up_early_r3_14() -> None:
    policy = GivesUpOnBigOrders(max_attempts=5, backoff=NoBackoff())

    assert decide(policy, 1, error=Timeout("small")) == Retry(0.0)
    assert decide(policy, 1, error=Timeout("big")) == Bury(
        Reason.FATAL_ERROR, "the policy gave up on shop.Timeout"
    )
    assert decide(policy, 5, error=Timeout("small")) == Bury(
        Reason.ATTEMPTS_EXHAUSTED, "failed 5 of 5 attempts"
    )


# Signals


@pytest.mark.parametrize(
    ("signal", "decision"),
    [
        (RetryLater(30.0), Retry(30.0, charged=False)),
        (GiveUp("no such order"), Bury(Reason.REJECTED, "no such order")),
        (Ignore("seen before"), Ack("seen before")),
        (LogicalFailure("out of stock"), Continue("out of stock")),
    ],
)
@pytest.mark.parametrize("attempt", [1, 99])
@pytest.mark.parametrize("trouble", Trouble)
def test_a_handler_knows_better_than_its_policy(
    signal: Exception, decision: Decision, attempt: int, trouble: Trouble
) -> None:
    assert decide(DLQPolicy(), attempt, error=signal, trouble=trouble) == decision


@pytest.mark.parametrize(
    ("asked", "delay"), [(-5.0, 0.0), (nan, 0.0), (inf, 366 * 86_400.0), (90.0, 90.0)]
)
def test_a_handler_can_only_ask_for_a_time_there_is(asked: float, delay: float) -> None:
    assert RetryLater(asked).decision == Retry(delay, charged=False)


# Delays


@given(wish=st.floats(0, 1e9), attempt=st.integers(1, 4), draw=draws)
def test_a_retry_after_is_honoured_and_bounded(wish: float, attempt: int, draw: float) -> None:
    policy = DLQPolicy(max_attempts=5, backoff=Fixed(10.0))

    decision = decide(policy, attempt, retry_after=wish, draw=draw)

    assert decision == Retry(max(10.0, min(wish, LONGEST_WISH)))


@pytest.mark.parametrize("wish", [-1.0, -inf, nan, None])
def test_a_senseless_retry_after_is_no_wish_at_all(wish: float | None) -> None:
    policy = DLQPolicy(max_attempts=5, backoff=Fixed(10.0))

    assert decide(policy, retry_after=wish) == Retry(10.0)


@given(attempt=st.integers(1, 100), spared=st.integers(0, 100), draw=draws)
def test_the_delay_follows_the_attempts_that_count(attempt: int, spared: int, draw: float) -> None:
    policy = DLQPolicy(max_attempts=0, backoff=Linear(60.0, cap=900.0))

    decision = decide(policy, attempt + spared, spared=spared, draw=draw)

    assert decision == Retry(min(60.0 * attempt, 900.0))
