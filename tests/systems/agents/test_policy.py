"""Policies by themselves, without a loop."""

from dataclasses import FrozenInstanceError, dataclass, fields
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

import pytest

from agents import (
    DeadLetter,
    DLQPolicy,
    ErrorBudgetPolicy,
    InMemoryMailbox,
    Message,
    ReceivedMessage,
)
from agents.errors import (
    ContentPolicyViolation,
    MailboxConnectionError,
    RateLimitError,
    ValidationError,
)

T = TypeVar("T")
R = TypeVar("R")
DEAD: InMemoryMailbox[DeadLetter[str], None] = InMemoryMailbox(name="requests-dlq")


def delivered(count: int, body: str = "hello") -> ReceivedMessage[str, Any]:
    return ReceivedMessage(id="m", body=body, delivery_count=count, enqueued_at=datetime.now(UTC))


class SlowDown(RateLimitError):
    """A subclass of a listed type, which is not listed itself."""


def test_the_policy_is_frozen_slotted_and_generic() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD)

    with pytest.raises(FrozenInstanceError):
        policy.max_delivery_count = 3  # type: ignore[misc]
    assert not hasattr(policy, "__dict__")
    assert get_args(DLQPolicy[str, int]) == (str, int)


def test_a_policy_joins_destination_and_decision() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD)

    assert policy.mailbox is DEAD
    assert policy.should_dead_letter(delivered(5), ValueError("no"))


def test_a_policy_needs_its_mailbox() -> None:
    with pytest.raises(TypeError, match="mailbox"):
        DLQPolicy()  # type: ignore[call-arg]


def test_a_policy_has_one_mailbox() -> None:
    assert [field.name for field in fields(DLQPolicy)] == [
        "mailbox",
        "max_delivery_count",
        "include_errors",
        "exclude_errors",
    ]


def test_max_delivery_count_is_five_by_default() -> None:
    assert DLQPolicy(mailbox=DEAD).max_delivery_count == 5


def test_include_errors_is_none_by_default() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD)

    assert policy.include_errors is None
    assert not policy.should_dead_letter(delivered(1), ValidationError("no"))


def test_exclude_errors_is_none_by_default() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD)

    assert policy.exclude_errors is None
    assert policy.should_dead_letter(delivered(5), RateLimitError("slower"))


@pytest.mark.parametrize(("count", "dead"), [(2, False), (3, True), (4, True)])
def test_the_count_is_reached_at_the_maximum(count: int, dead: bool) -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD, max_delivery_count=3)

    assert policy.should_dead_letter(delivered(count), ValueError("no")) is dead


@pytest.mark.parametrize(("count", "dead"), [(1, False), (4, False), (5, True), (6, True)])
def test_errors_that_are_not_listed_are_counted(count: int, dead: bool) -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD)

    for error in (ValueError("no"), ValidationError("no"), RateLimitError("no")):
        assert policy.should_dead_letter(delivered(count), error) is dead


def test_included_errors_dead_letter_at_once() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(
        mailbox=DEAD, include_errors=frozenset({ValidationError, ContentPolicyViolation})
    )

    assert policy.should_dead_letter(delivered(1), ValidationError("no"))
    assert policy.should_dead_letter(delivered(1), ContentPolicyViolation("no"))
    assert not policy.should_dead_letter(delivered(1), ValueError("no"))


def test_excluded_errors_never_dead_letter() -> None:
    never = frozenset({MailboxConnectionError, RateLimitError, TimeoutError})
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD, exclude_errors=never)

    for error in never:
        assert not policy.should_dead_letter(delivered(1000), error("away"))
    assert policy.should_dead_letter(delivered(5), ValueError("no"))


def test_all_three_rules_work_in_one_policy() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(
        mailbox=DEAD,
        include_errors=frozenset({ValidationError}),
        exclude_errors=frozenset({RateLimitError}),
    )

    assert policy.should_dead_letter(delivered(1), ValidationError("no"))
    assert not policy.should_dead_letter(delivered(99), RateLimitError("slower"))
    assert not policy.should_dead_letter(delivered(4), ValueError("no"))
    assert policy.should_dead_letter(delivered(5), ValueError("no"))


@pytest.mark.parametrize("error", [MailboxConnectionError, RateLimitError, TimeoutError])
def test_transient_errors_can_be_excluded(error: type[Exception]) -> None:
    never = frozenset({MailboxConnectionError, RateLimitError, TimeoutError})
    policy: DLQPolicy[str, int] = DLQPolicy(mailbox=DEAD, exclude_errors=never)

    assert not policy.should_dead_letter(delivered(1000), error("away"))


@pytest.mark.parametrize("error", [ValidationError, ContentPolicyViolation])
def test_validation_and_content_policy_can_be_included(error: type[Exception]) -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(
        mailbox=DEAD, include_errors=frozenset({ValidationError, ContentPolicyViolation})
    )

    assert policy.should_dead_letter(delivered(1), error("no"))


def test_excluded_comes_before_included_and_included_before_the_count() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(
        mailbox=DEAD,
        max_delivery_count=3,
        include_errors=frozenset({ValidationError, RateLimitError}),
        exclude_errors=frozenset({RateLimitError}),
    )

    assert not policy.should_dead_letter(delivered(99), RateLimitError("slower"))
    assert policy.should_dead_letter(delivered(1), ValidationError("no"))
    assert not policy.should_dead_letter(delivered(2), ValueError("no"))
    assert policy.should_dead_letter(delivered(3), ValueError("no"))


def test_error_types_are_matched_exactly() -> None:
    policy: DLQPolicy[str, int] = DLQPolicy(
        mailbox=DEAD,
        include_errors=frozenset({LookupError}),
        exclude_errors=frozenset({RateLimitError}),
    )

    assert not policy.should_dead_letter(delivered(1), KeyError("k"))
    assert policy.should_dead_letter(delivered(5), SlowDown("slower"))


def test_custom_policies_are_subclasses() -> None:
    rates = {"good": 0.1, "bad": 0.9}

    @dataclass(slots=True, frozen=True)
    class Budget(DLQPolicy[T, R]):
        error_budget: float = 0.5

        def should_dead_letter(self, message: Message[T, Any], error: Exception) -> bool:
            if message.delivery_count >= self.max_delivery_count:
                return True
            return rates[str(message.body)] > self.error_budget

    policy: Budget[str, int] = Budget(mailbox=DEAD, max_delivery_count=10, error_budget=0.3)

    assert Budget(mailbox=DEAD).error_budget == 0.5
    assert not policy.should_dead_letter(delivered(9, "good"), ValueError("no"))
    assert policy.should_dead_letter(delivered(10, "good"), ValueError("no"))
    assert policy.should_dead_letter(delivered(1, "bad"), ValueError("no"))


def test_the_error_budget_is_spent_by_the_count_or_by_the_rate() -> None:
    policy: ErrorBudgetPolicy[str, int] = ErrorBudgetPolicy(
        mailbox=DEAD, max_delivery_count=10, error_budget=0.3
    )
    message = delivered(1)

    assert ErrorBudgetPolicy(mailbox=DEAD).error_budget == 0.5
    message.error_rate = 0.3
    assert not policy.should_dead_letter(message, ValueError("no"))
    message.error_rate = 0.31
    assert policy.should_dead_letter(message, ValueError("no"))
    assert policy.should_dead_letter(delivered(10), ValueError("no"))
