"""A loop's policy in the form that deadletter's runtime asks it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from msgspec import structs

from deadletter import PROFILES, Delivery, Failure, Malformed, Route
from deadletter import DLQPolicy as CorePolicy
from deadletter.core.attempts import last_number, read
from deadletter.core.backoff import Backoff
from deadletter.core.errors import Signal
from deadletter.core.failure import Bury, Decision, Reason, Retry, Trouble
from deadletter.core.letter import DeadLetter as Kept
from deadletter.core.message import Message as Sent
from deadletter.core.policy import Situation

from .message import ReceivedMessage
from .policy import DLQPolicy, RuledPolicy

_UNRUN: Final = frozenset({Trouble.EXPIRED, Trouble.WORKER_LOST})

ErrorReply: TypeAlias = Callable[[Any, str], object]
"""Makes the reply that reports an error, for a request."""


class Requests(Protocol):
    """What the policy needs of the mailbox of a loop, whoever wrote it."""

    keeps_history: bool  # a message brings the history of its attempts with it

    def body(self, delivery: Delivery) -> Any:
        """Return the request. Raises SerializationError if it cannot be decoded."""

    def message(self, delivery: Delivery, count: int) -> ReceivedMessage[Any, Any]:
        """Return the message as a policy gets to see it."""

    def announce(self, delivery: Delivery, news: object) -> None:
        """Take note of the error reply that is about to be sent."""


class RuntimePolicy(CorePolicy, frozen=True, kw_only=True):
    """
    The decision on a failed request: that of its loop's policy.

    Without a policy, requests are retried without a limit. Two kinds of messages are not
    put to a policy: bodies that cannot be decoded, and requests that ended the process
    they ran in.
    """

    policy: DLQPolicy[Any, Any] | None
    requests: Requests
    error_reply: ErrorReply
    every_delivery: bool  # counts, also one that was nobody's fault

    def decide(self, situation: Situation, draw: float) -> Decision:
        error, delivery = situation.error, situation.delivery
        if self.policy is None or isinstance(error, Signal | Malformed):
            return super().decide(situation, draw)
        count = self.count(delivery)
        message = self.requests.message(delivery, count)
        message.error_rate = situation.error_rate
        failure = situation.failure
        if self.policy.should_dead_letter(message, error):  # type: ignore[arg-type]
            return self._routed(_burial(count, failure, self.max_attempts), failure)
        return Retry(self._delay(count, failure, draw))

    def before(self, delivery: Delivery, now: datetime) -> Decision | None:
        decision = super().before(delivery, now)
        if isinstance(decision, Bury) and decision.reason is not Reason.EXPIRED:
            # Only lost workers: after every other attempt the policy was asked.
            is_lost = self.requests.keeps_history and _losses(delivery) > 0
            return decision if is_lost else None
        return decision

    def bad_news(self, delivery: Delivery, decision: Decision, failure: Failure) -> object:
        body = self.requests.body(delivery)
        what = "Dead-lettered" if isinstance(decision, Bury) else "Failed"
        # The delivery that found the request expired, or its worker lost, ran nothing.
        unrun = failure.trouble in _UNRUN
        count = delivery.charged - 1 if unrun else self.count(delivery)
        news = self.error_reply(body, f"{what} after {count} attempts: {failure.text}")
        self.requests.announce(delivery, news)
        return news

    def dead_copy(self, letter: Kept) -> Sent:
        received = last_number(letter.history)
        if self.every_delivery and received > letter.head.attempts and not _is_unrun(letter):
            letter = structs.replace(letter, head=structs.replace(letter.head, attempts=received))
        return super().dead_copy(letter)

    def count(self, delivery: Delivery) -> int:
        """Return the delivery count that limits are compared with."""
        return delivery.attempt if self.every_delivery else delivery.charged


def runtime_policy(
    policy: DLQPolicy[Any, Any] | None,
    *,
    requests: Requests,
    error_reply: ErrorReply,
    backoff: Backoff | None,
    every_delivery: bool,
) -> RuntimePolicy:
    """Return the mailbox profile of deadletter with this policy in it."""
    usual = PROFILES["mailbox"].policy
    given = {name: getattr(usual, name) for name in ("classifier", "dispositions", "backoff")}
    if backoff is not None:
        given["backoff"] = backoff
    made = RuntimePolicy(
        policy=policy,
        requests=requests,
        error_reply=error_reply,
        every_delivery=every_delivery,
        max_attempts=0 if policy is None else policy.max_delivery_count,
        dead_queue=None if policy is None else policy.mailbox.name,
        **given,
    )
    return _with_rules(made, policy) if isinstance(policy, RuledPolicy) else made


def _with_rules(made: RuntimePolicy, policy: RuledPolicy[Any, Any]) -> RuntimePolicy:
    routes = tuple(Route(to=box.name, code=code) for code, box in policy.routes.items())
    classifier = made.classifier.extended(*policy.rules)
    return structs.replace(made, routes=routes, classifier=classifier)


def _burial(count: int, failure: Failure, allowed: int) -> Bury:
    if count >= allowed:
        return Bury(Reason.ATTEMPTS_EXHAUSTED, f"failed {count} of {allowed} attempts")
    return Bury(Reason.FATAL_ERROR, f"the policy gave up on {failure.error_type}")


def _is_unrun(letter: Kept) -> bool:
    return letter.head.trouble in _UNRUN


def _losses(delivery: Delivery) -> int:
    """Return how many of its attempts ended with the process they ran in."""
    ended = sum(
        attempt.number if attempt.outcome == "cut" else 1 for attempt in read(delivery.history)
    )
    return delivery.charged - 1 - ended
