"""
What holds everywhere: our own errors, bodies that do not fit, locks, throttling.

Programming errors (TypeError, KeyError, AssertionError …) have no rule: they are
`unknown`, and so retried, because they may be a deploy half way through.
"""

from typing import Final

from ..classify import Rule
from ..errors import (
    GiveUp,
    LogicalFailure,
    LostLease,
    Malformed,
    Refused,
    RetryLater,
    Unavailable,
)
from ..failure import Trouble

GENERAL: Final = (
    Rule(id="malformed", trouble=Trouble.MALFORMED, types=(Malformed,)),
    Rule(id="logical-failure", trouble=Trouble.LOGICAL, types=(LogicalFailure,)),
    Rule(id="gave-up", trouble=Trouble.PERMANENT, types=(GiveUp,)),
    Rule(id="retry-later", trouble=Trouble.TRANSIENT, types=(RetryLater,)),
    Rule(
        id="backend-unavailable",
        trouble=Trouble.TRANSIENT,
        types=(Unavailable, LostLease),
    ),
    Rule(id="backend-refused", trouble=Trouble.PERMANENT, types=(Refused,)),
    Rule(
        id="does-not-validate",
        trouble=Trouble.MALFORMED,
        code="INVALID",
        names=("ValidationError",),  # msgspec's, pydantic's, anybody's
    ),
    Rule(id="out-of-memory", trouble=Trouble.TRANSIENT, types=(MemoryError,)),
    Rule(
        id="database-lock",
        trouble=Trouble.TRANSIENT,
        code="LOCKED",
        error_codes=frozenset(
            {"40001", "40P01", "55P03", "SQLITE_BUSY", "SQLITE_LOCKED"}
        ),
    ),
    Rule(
        id="database-down",
        trouble=Trouble.TRANSIENT,
        code="DATABASE_DOWN",
        error_codes=frozenset(
            {"08000", "08001", "08003", "08004", "08006", "53300", "57P01", "57P02"}
            | {"57P03"}
        ),
    ),
    Rule(
        id="says-locked",
        trouble=Trouble.TRANSIENT,
        code="LOCKED",
        texts=(
            "deadlock detected",
            "deadlock found",
            "database is locked",
            "database table is locked",
            "lock wait timeout",
            "could not serialize access",
            "serialization failure",
        ),
    ),
    Rule(
        id="throttled",
        trouble=Trouble.TRANSIENT,
        code="THROTTLED",
        error_codes=frozenset(
            {"Throttling", "ThrottlingException", "ThrottledException", "SlowDown"}
            | {"RequestThrottled", "RequestLimitExceeded", "TooManyRequestsException"}
            | {"ProvisionedThroughputExceededException", "RequestThrottledException"}
        ),
    ),
)
