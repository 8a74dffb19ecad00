"""Which policy counts for a queue, and which limit is in our way."""

import pytest

from deadletter.brokers.rabbitmq.engine import Policy, _problem

NONE: dict[str, object] = {}


def policy(
    limit: int | None, pattern: str = "^orders$", priority: int = 0, to: str = "queues"
) -> Policy:
    definition = NONE if limit is None else {"delivery-limit": limit}
    return Policy("few", pattern, definition, priority, to)


@pytest.mark.parametrize(
    ("policies", "is_problem"),
    [
        ([], False),
        ([policy(4)], True),
        ([policy(5)], False),
        ([policy(0)], True),
        ([policy(-1)], False),  # the broker's way to say: none
        ([policy(None)], False),
        ([policy(2, "^returns")], False),
        ([policy(2, "ord")], True),  # found anywhere in a name
        ([policy(2, to="exchanges")], False),
        ([policy(2, to="streams")], False),
        ([policy(2, to="quorum_queues")], True),
        ([policy(2, to="all")], True),
        ([policy(2, priority=1), policy(50, priority=2)], False),
        ([policy(50, priority=1), policy(2, priority=2)], True),
        ([policy(2, priority=1), policy(None, priority=2)], False),
        ([policy(2, "(?P<orders")], True),  # nobody knows: better said than lost
    ],
)
def test_a_low_limit_is_in_the_way_if_its_policy_counts(
    policies: list[Policy], is_problem: bool
) -> None:
    assert (_problem("orders", [policies], 3) is not None) == is_problem
    assert (_problem("orders", [[], policies], 3) is not None) == is_problem


@pytest.mark.parametrize(
    ("limit", "attempts", "is_problem"),
    [(4, 1, True), (5, 5, False), (5, 6, True), (20, 20, False), (1000, 0, True)],
)
def test_suspects_need_as_many_as_there_are_attempts(
    limit: int, attempts: int, is_problem: bool
) -> None:
    policies = [[policy(limit, r"\.suspects$")]]

    assert (_problem("orders", policies, attempts) is not None) == is_problem
