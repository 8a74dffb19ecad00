"""
What went wrong with one attempt, in words that are safe to keep.

Texts are bounded, redacted and free of surprises: an exception whose `str()`
raises, is 10 MB long or holds a secret ends up as a harmless `Failure`.
"""

from enum import StrEnum

from msgspec import Struct


class ErrorCategory(StrEnum):
    """The coarse question: is trying again worth it?"""

    RETRYABLE = "RETRYABLE"
    NON_RETRYABLE = "NON_RETRYABLE"


class Trouble(StrEnum):
    """The finer answer: what kind of trouble it is."""

    TRANSIENT = "transient"  # the world was not ready: network, overload, locks
    PERMANENT = "permanent"  # it will never work as it is
    LOGICAL = "logical"  # the work said no, as it may
    MALFORMED = "malformed"  # the body is not what it should be
    LOOP = "loop"  # it has been going round in circles
    EXPIRED = "expired"  # too late to be of use
    WORKER_LOST = "worker-lost"  # the process that ran it died
    UNKNOWN = "unknown"  # no rule knew; treated as transient unless told

    @property
    def category(self) -> ErrorCategory:
        """The coarse category this kind of trouble belongs to."""
        if self in _RETRYABLE:
            return ErrorCategory.RETRYABLE
        return ErrorCategory.NON_RETRYABLE


_RETRYABLE = frozenset({Trouble.TRANSIENT, Trouble.UNKNOWN, Trouble.WORKER_LOST})


class Verdict(Struct, frozen=True):
    """The classifier's answer for one error."""

    trouble: Trouble
    code: str  # short, stable, upper case: TIMEOUT, HTTP_503, NONCE_TOO_LOW …
    rule: str = ""  # the rule that matched; empty when none did
    retry_after: float | None = None  # seconds the other side asked us to wait
    broken: str = ""  # why a rule could not be asked; then it is unknown


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
    broken: str = ""  # why a rule could not be asked
    cause: str = ""  # the application's own name for it, see `App.fingerprint`

    @property
    def category(self) -> ErrorCategory:
        """Return whether trying again is worth it."""
        return self.trouble.category
