"""
Decisions: the next step for a delivery, as a value.

Deciding and acting are kept apart: `core.policy` returns one of these, the
runtime carries it out, and the two are tested separately.
"""

from enum import StrEnum
from math import inf
from typing import TypeAlias

from msgspec import Struct


class Reason(StrEnum):
    """The reasons for which a message becomes a dead letter."""

    FATAL_ERROR = "fatal-error"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    UNDECODABLE = "undecodable"
    EXPIRED = "expired"
    REJECTED = "rejected"
    WORKER_LOST = "worker-lost"
    OPERATOR = "operator"
    ID_CONFLICT = "id-conflict"  # its id or key was handled before, with another body


class Ack(Struct, frozen=True, tag="ack"):
    """Acknowledge the delivery; `note` gives the reason if no handler processed it."""

    note: str = ""


class Retry(Struct, frozen=True, tag="retry"):
    """Release the delivery for another attempt after `delay` seconds."""

    delay: float
    charged: bool = True  # False: an outage, not this message's fault


class Bury(Struct, frozen=True, tag="bury"):
    """Keep the message as a dead letter; `text` is the reason shown to people."""

    reason: Reason
    text: str
    route: str | None = None  # a dead-letter mailbox other than the usual one


class Fail(Struct, frozen=True, tag="fail"):
    """Record the message as failed and acknowledge it: no retry, no dead letter."""

    text: str


class Continue(Struct, frozen=True, tag="continue"):
    """Record a logical failure in the history and acknowledge the delivery."""

    error: str


Decision: TypeAlias = Ack | Retry | Bury | Fail | Continue


def checked_decision(decision: Decision) -> Decision:
    """Return a decision that can be carried out; raise TypeError or ValueError else."""
    if isinstance(decision, Retry):
        if not 0 <= decision.delay < inf:
            raise ValueError(
                f"the delay of a Retry must be >= 0 and finite, got {decision.delay!r}"
            )
    elif not isinstance(decision, Decision):
        raise TypeError(
            f"expected a Decision (Ack, Retry, Bury, Fail or Continue), got {decision!r}"
        )
    return decision
