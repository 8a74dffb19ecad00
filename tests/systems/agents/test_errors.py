"""The classes of errors; only the lists of a policy dead-letter at once."""

import pytest

from agents.errors import (
    AuthenticationError,
    ContentPolicyViolation,
    MailboxConnectionError,
    ProviderError,
    QuotaExceededError,
    RateLimitError,
    ResourceNotFoundError,
    SerializationError,
    ValidationError,
    VisibilityExpansionRequired,
)
from deadletter import PROFILES, ErrorCategory, Trouble
from deadletter.core.events import Retried
from systems.agents.rig import Rig, failing, running

classify = PROFILES["mailbox"].policy.classifier.classify

RETRIABLE = [MailboxConnectionError, RateLimitError, TimeoutError, VisibilityExpansionRequired]
NOT_RETRIABLE = [ValidationError, ContentPolicyViolation, AuthenticationError, QuotaExceededError]
AMBIGUOUS = [ProviderError, SerializationError, ResourceNotFoundError]


@pytest.mark.parametrize("error", RETRIABLE)
def test_retriable(error: type[Exception]) -> None:
    verdict = classify(error("not now"))

    assert verdict.trouble is Trouble.TRANSIENT
    assert verdict.trouble.category is ErrorCategory.RETRYABLE


@pytest.mark.parametrize("error", NOT_RETRIABLE)
def test_not_retriable(error: type[Exception]) -> None:
    verdict = classify(error("never"))

    assert verdict.trouble is Trouble.PERMANENT
    assert verdict.trouble.category is ErrorCategory.NON_RETRYABLE


@pytest.mark.parametrize("error", AMBIGUOUS)
def test_ambiguous(error: type[Exception]) -> None:
    assert classify(error("who knows")).trouble is Trouble.UNKNOWN


@pytest.mark.parametrize("error", [*RETRIABLE, *NOT_RETRIABLE, *AMBIGUOUS])
def test_unlisted_errors_follow_the_delivery_count(timed: Rig, error: type[Exception]) -> None:
    with running(timed.loop(failing(error("no")), dlq=timed.policy(max_delivery_count=3))):
        timed.ask("hello")

        assert timed.letter().delivery_count == 3
    assert len(timed.seen(Retried)) == 2


@pytest.mark.parametrize("error", [*NOT_RETRIABLE, *AMBIGUOUS])
def test_listed_errors_are_dead_lettered_at_once(timed: Rig, error: type[Exception]) -> None:
    policy = timed.policy(include_errors=frozenset({error}))
    with running(timed.loop(failing(error("no")), dlq=policy)):
        timed.ask("hello")

        assert timed.letter().delivery_count == 1
    assert timed.seen(Retried) == []
