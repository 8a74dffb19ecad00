"""Situations in which a policy decides: shared by the tests of policies."""

from datetime import UTC, datetime

from deadletter.core.failure import Decision, Failure, Trouble
from deadletter.core.message import Delivery, Message
from deadletter.core.policy import DLQPolicy, Situation

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Timeout(Exception):
    """Some error of an application."""


class SlowTimeout(Timeout):
    """A special case of it."""


def failure(trouble: Trouble = Trouble.TRANSIENT, **more: object) -> Failure:
    given = {"code": "CODE", "error_type": "shop.Timeout", "text": "no answer", **more}
    return Failure(trouble=trouble, **given)  # type: ignore[arg-type]


def delivery(attempt: int = 1, **more: object) -> Delivery:
    message = Message(id="m", body=b"", sent_at=NOW)
    given = {"message": message, "mailbox": "orders", "attempt": attempt, **more}
    return Delivery(**given)  # type: ignore[arg-type]


def decide(
    policy: DLQPolicy,
    attempt: int = 1,
    *,
    trouble: Trouble = Trouble.TRANSIENT,
    error: BaseException | None = None,
    draw: float = 0.0,
    spared: int = 0,
    error_rate: float = 0.0,
    **more: object,
) -> Decision:
    situation = Situation(
        delivery=delivery(attempt, spared=spared),
        failure=failure(trouble, **more),
        error=error or Timeout("no answer"),
        error_rate=error_rate,
    )
    return policy.decide(situation, draw)
