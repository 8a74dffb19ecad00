"""Failures of deliveries that are given up without running the handler."""

from datetime import datetime

from .attempts import append, attempt_of
from .decision import Bury, Decision, Fail, Reason
from .failure import Failure, Trouble
from .message import Delivery, Message
from .policy import DLQPolicy

_TROUBLES = {
    Reason.EXPIRED: Trouble.EXPIRED,
    Reason.WORKER_LOST: Trouble.WORKER_LOST,
    Reason.UNDECODABLE: Trouble.MALFORMED,
    Reason.ID_CONFLICT: Trouble.PERMANENT,
}
_CODES = {Reason.ID_CONFLICT: "ID_CONFLICT"}
_OUTCOMES = {Trouble.MALFORMED: "failed", Trouble.PERMANENT: Reason.ID_CONFLICT.value}


def refusal(delivery: Delivery, decision: Bury | Fail, now: datetime) -> Failure:
    """The failure of a delivery that was not run, by `policy.before`'s decision."""
    trouble = Trouble.EXPIRED
    if isinstance(decision, Bury):
        trouble = _TROUBLES.get(decision.reason, Trouble.UNKNOWN)
    code = trouble.name if trouble is not Trouble.UNKNOWN else "ATTEMPTS_EXHAUSTED"
    if isinstance(decision, Bury):
        code = _CODES.get(decision.reason, code)
    if delivery.corrupt and trouble is Trouble.MALFORMED:
        code = "CORRUPT"
    name = "".join(part.title() for part in code.split("_"))
    return Failure(trouble=trouble, code=code, error_type=f"deadletter.{name}", text=decision.text)


def refused_history(delivery: Delivery, failure: Failure, now: datetime) -> str:
    """The story of a delivery that was not run, with that as its last line."""
    outcome = _OUTCOMES.get(failure.trouble, failure.trouble.value)
    attempt = attempt_of(failure, number=delivery.attempt, at=now, outcome=outcome)
    return append(delivery.history, attempt)


def id_conflict(message: Message) -> Bury:
    """Return what becomes of a message whose key was handled before with another body."""
    key = "message id" if message.idempotency_key is None else "idempotency key"
    return Bury(
        Reason.ID_CONFLICT,
        f"its {key} was handled before with another body, so no handler was run:"
        " replay it to have it handled as well, or close it",
    )


def doom(delivery: Delivery, policy: DLQPolicy, now: datetime) -> Bury | Fail:
    """
    Return what becomes of a delivery that the sweep found past saving.

    The policy decides as it would for a worker; where it would still try, the
    mailbox's own limit has spoken.
    """
    decision: Decision | None = policy.before(delivery, now)
    if isinstance(decision, Bury | Fail):
        return decision
    return Bury(
        Reason.WORKER_LOST,
        f"its worker died in {delivery.charged - 1} attempts, which is all its mailbox allows",
    )
