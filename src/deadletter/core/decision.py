"""
What becomes of a delivery, as a value.

Deciding and acting are kept apart: `core.policy` returns one of these, the
runtime carries it out, and the two are tested separately.
"""

from enum import StrEnum
from math import inf
from typing import TypeAlias

from msgspec import Struct


class Reason(StrEnum):
    """Why a message became a dead letter: a closed list."""

    FATAL_ERROR = "fatal-error"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    UNDECODABLE = "undecodable"
    EXPIRED = "expired"
    REJECTED = "rejected"
    WORKER_LOST = "worker-lost"
    OPERATOR = "operator"
    ID_CONFLICT = "id-conflict"  # its id or key was handled before, with another body


class Ack(Struct, frozen=True, tag="ack"):
    """Done with it. `note` says why when it was not simply handled."""

    note: str = ""


class Retry(Struct, frozen=True, tag="retry"):
    """Hand it back, to be tried again after `delay` seconds."""

    delay: float
    charged: bool = True  # False: an outage, not this message's fault


class Bury(Struct, frozen=True, tag="bury"):
    """Keep it as a dead letter; `text` is the sentence a person will read."""

    reason: Reason
    text: str
    route: str | None = None  # a dead-letter mailbox other than the usual one


class Fail(Struct, frozen=True, tag="fail"):
    """Record it as failed and forget it: no retry, no dead letter."""

    text: str


class Continue(Struct, frozen=True, tag="continue"):
    """A logical failure: note the error in the history and go on."""

    error: str


Decision: TypeAlias = Ack | Retry | Bury | Fail | Continue


def checked_decision(decision: Decision) -> Decision:
    """Return a decision that can be carried out; raise TypeError or ValueError else."""
    if isinstance(decision, Retry):
        if not 0 <= decision.delay < inf:
            raise ValueError(f"a delay of {decision.delay!r} seconds cannot be waited")
    elif not isinstance(decision, Decision):
        raise TypeError(f"{decision!r} is no decision")
    return decision
