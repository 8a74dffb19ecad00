"""A policy of this package, as deadletter's runtime asks it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec import structs

from deadletter import PROFILES, Delivery, Failure, Malformed, Route
from deadletter import DLQPolicy as Patience
from deadletter.core.attempts import read
from deadletter.core.backoff import Backoff
from deadletter.core.errors import Signal
from deadletter.core.failure import Bury, Decision, Reason, Retry, Trouble
from deadletter.core.policy import Situation

from .mailbox import PostMailbox
from .policy import DLQPolicy, RuledPolicy

_UNRUN: Final = frozenset({Trouble.EXPIRED, Trouble.WORKER_LOST})

News: TypeAlias = Callable[[Any, str], object]
"""The result that tells of an error, for a request."""


class Ruling(Patience, frozen=True, kw_only=True):
    """
    What becomes of a request whose attempt failed: what its loop's policy says.

    Where there is no policy it is tried for ever. Two things are not put to a policy:
    bodies that cannot be read, and requests that killed the process they ran in.
    """

    policy: DLQPolicy[Any, Any] | None
    requests: PostMailbox[Any, Any]
    news: News

    def decide(self, situation: Situation, draw: float) -> Decision:
        error, delivery = situation.error, situation.delivery
        if self.policy is None or isinstance(error, Signal | Malformed):
            return super().decide(situation, draw)
        message = self.requests.message(delivery, count=delivery.charged)
        message.error_rate = situation.error_rate
        failure = situation.failure
        if self.policy.should_dead_letter(message, error):  # type: ignore[arg-type]
            return self._routed(_burial(delivery, failure, self.max_attempts), failure)
        return Retry(self._delay(delivery.charged, failure, draw))

    def before(self, delivery: Delivery, now: datetime) -> Decision | None:
        decision = super().before(delivery, now)
        if isinstance(decision, Bury) and decision.reason is not Reason.EXPIRED:
            # Only for the dead: where an attempt had its end, the policy had its say.
            return decision if _losses(delivery) > 0 else None
        return decision

    def bad_news(self, delivery: Delivery, decision: Decision, failure: Failure) -> object:
        body = self.requests.decode(delivery.message.body)
        what = "Dead-lettered" if isinstance(decision, Bury) else "Failed"
        # The claim that found it expired or its worker dead was no attempt at it.
        count = delivery.charged - (failure.trouble in _UNRUN)
        return self.news(body, f"{what} after {count} attempts: {failure.text}")


def ruling(
    policy: DLQPolicy[Any, Any] | None,
    *,
    requests: PostMailbox[Any, Any],
    news: News,
    backoff: Backoff | None,
) -> Ruling:
    """The mailbox profile of deadletter, with this policy in it."""
    usual = PROFILES["mailbox"].policy
    given = {name: getattr(usual, name) for name in ("classifier", "dispositions", "backoff")}
    if backoff is not None:
        given["backoff"] = backoff
    if policy is None:
        return Ruling(policy=None, requests=requests, news=news, max_attempts=0, **given)
    made = Ruling(
        policy=policy,
        requests=requests,
        news=news,
        max_attempts=policy.max_delivery_count,
        dead_queue=requests.beside(policy.mailbox).name,
        **given,
    )
    return _with_rules(made, policy) if isinstance(policy, RuledPolicy) else made


def _with_rules(made: Ruling, policy: RuledPolicy[Any, Any]) -> Ruling:
    routes = tuple(
        Route(to=made.requests.beside(mailbox).name, code=code)
        for code, mailbox in policy.routes.items()
    )
    classifier = made.classifier.extended(*policy.rules)
    return structs.replace(made, routes=routes, classifier=classifier)


def _burial(delivery: Delivery, failure: Failure, allowed: int) -> Bury:
    count = delivery.charged
    if count >= allowed:
        return Bury(Reason.ATTEMPTS_EXHAUSTED, f"failed {count} of {allowed} attempts")
    return Bury(Reason.FATAL_ERROR, f"the policy gave up on {failure.error_type}")


def _losses(delivery: Delivery) -> int:
    """How many of its attempts ended with the process they ran in."""
    ended = sum(
        attempt.number if attempt.outcome == "cut" else 1 for attempt in read(delivery.history)
    )
    return delivery.charged - 1 - ended
