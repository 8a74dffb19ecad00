"""Failures, and the decisions they lead to."""

from enum import StrEnum
from math import inf
from typing import TypeAlias

from msgspec import Struct


class ErrorCategory(StrEnum):
    """The coarse classification: whether a retry can succeed."""

    RETRYABLE = "RETRYABLE"
    NON_RETRYABLE = "NON_RETRYABLE"


class Trouble(StrEnum):
    """The finer classification of an error."""

    TRANSIENT = "transient"  # temporary: network, overload, locks
    PERMANENT = "permanent"  # a retry cannot succeed
    LOGICAL = "logical"  # an expected business error
    MALFORMED = "malformed"  # the body does not fit the handler
    LOOP = "loop"  # the message has looped
    EXPIRED = "expired"  # past its expiry
    WORKER_LOST = "worker-lost"  # the process that ran it died
    UNKNOWN = "unknown"  # no rule matched; transient by default

    @property
    def category(self) -> ErrorCategory:
        """The coarse category of this kind of trouble."""
        if self in _RETRYABLE:
            return ErrorCategory.RETRYABLE
        return ErrorCategory.NON_RETRYABLE


_RETRYABLE = frozenset({Trouble.TRANSIENT, Trouble.UNKNOWN, Trouble.WORKER_LOST})


class Verdict(Struct, frozen=True):
    """The result of classifying one error."""

    trouble: Trouble
    code: str  # short, stable, upper case: TIMEOUT, HTTP_503, NONCE_TOO_LOW …
    rule: str = ""  # the rule that matched; empty when none did
    retry_after: float | None = None  # seconds that the server asked us to wait
    broken: str = ""  # why a rule failed; the error is then unknown


class Failure(Struct, frozen=True, kw_only=True, gc=False):
    """A classified error."""

    trouble: Trouble
    code: str
    error_type: str  # fully qualified
    text: str
    stack: str = ""
    frame: str = ""  # top application frame, module:function#line, for grouping
    rule: str = ""
    retry_after: float | None = None
    trace: str = ""  # W3C traceparent of the span it happened in
    broken: str = ""  # why a rule failed
    cause: str = ""  # the application's own name for it, see `App.fingerprint`

    @property
    def category(self) -> ErrorCategory:
        """Return whether a retry can succeed."""
        return self.trouble.category


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
