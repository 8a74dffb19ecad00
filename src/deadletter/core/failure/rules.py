"""
Ready-made rules, as data: combine what you need, the most specific first.

    ErrorClassifier((*my_rules, *HTTP, *NETWORK))      or  DEFAULT.extended(*my_rules)

The rules of each of the five systems are in `deadletter.profiles`.
"""

import socket
from typing import Final

from deadletter.core.errors import (
    GiveUp,
    LogicalFailure,
    LostLease,
    Malformed,
    Refused,
    RetryLater,
    Unavailable,
)
from deadletter.core.failure import Trouble

from .classify import ErrorClassifier, Rule

GENERAL: Final = (
    Rule(id="malformed", trouble=Trouble.MALFORMED, types=(Malformed,)),
    Rule(id="logical-failure", trouble=Trouble.LOGICAL, types=(LogicalFailure,)),
    Rule(id="gave-up", trouble=Trouble.PERMANENT, types=(GiveUp,)),
    Rule(id="retry-later", trouble=Trouble.TRANSIENT, types=(RetryLater,)),
    Rule(id="backend-unavailable", trouble=Trouble.TRANSIENT, types=(Unavailable, LostLease)),
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
        error_codes=frozenset({"40001", "40P01", "55P03", "SQLITE_BUSY", "SQLITE_LOCKED"}),
    ),
    Rule(
        id="database-down",
        trouble=Trouble.TRANSIENT,
        code="DATABASE_DOWN",
        error_codes=frozenset(
            {"08000", "08001", "08003", "08004", "08006", "53300", "57P01", "57P02"} | {"57P03"}
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


# HTTP statuses.
#
# Transient is what may be another answer to the same request later. So are 409 and
# 412 (somebody else was quicker; a handler that looks again may pass), 421, 423
# and 425. 404 and 410 are permanent: the thing is not there, and a dead letter is
# a better place to wait for it than a busy loop. Of the server's own errors only
# those are permanent that say "I cannot do this at all". Below 400 nothing is said.

HTTP: Final = (
    Rule(
        id="http-try-later",
        trouble=Trouble.TRANSIENT,
        statuses=frozenset({408, 409, 412, 421, 423, 425, 429, 499}),
    ),
    Rule(id="http-refused", trouble=Trouble.PERMANENT, statuses=range(400, 500)),
    Rule(
        id="http-cannot",
        trouble=Trouble.PERMANENT,
        statuses=frozenset({501, 505, 506, 508, 510, 511}),
    ),
    Rule(id="http-server-trouble", trouble=Trouble.TRANSIENT, statuses=range(500, 600)),
)


# gRPC statuses. INTERNAL and UNKNOWN may be anything, so they are unknown.

GRPC: Final = (
    Rule(
        id="grpc-try-later",
        trouble=Trouble.TRANSIENT,
        grpc=frozenset(
            {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"} | {"CANCELLED"}
        ),
    ),
    Rule(
        id="grpc-refused",
        trouble=Trouble.PERMANENT,
        grpc=frozenset(
            {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"}
            | {"UNAUTHENTICATED", "FAILED_PRECONDITION", "OUT_OF_RANGE"}
            | {"UNIMPLEMENTED", "DATA_LOSS"}
        ),
    ),
    Rule(
        id="grpc-may-be-anything", trouble=Trouble.UNKNOWN, grpc=frozenset({"INTERNAL", "UNKNOWN"})
    ),
)


# The network and the machine: by error number, by type, and at last by words.
#
# All of it is transient: a host that is down, a name that cannot be looked up, an
# expired certificate or a full disk is no fault of the message.

_CONNECTION: Final = frozenset(
    {"ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ETIMEDOUT", "EPIPE", "ENOTCONN"}
    | {"ESHUTDOWN", "EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN"}
    | {"ENETRESET", "EADDRNOTAVAIL", "EADDRINUSE"}
    | {"ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NONAME", "EAI_NODATA"}
)
_MACHINE: Final = frozenset(
    {"ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "EAGAIN", "EINTR"}
    | {"EWOULDBLOCK", "EBUSY", "EDEADLK", "EDEADLOCK", "ESTALE", "ENOLCK"}
)


def _words(code: str, *texts: str) -> Rule:
    return Rule(id=f"says-{code.lower()}", trouble=Trouble.TRANSIENT, code=code, texts=texts)


def _type(code: str, kind: type[BaseException]) -> Rule:
    return Rule(id=f"type-{code.lower()}", trouble=Trouble.TRANSIENT, code=code, types=(kind,))


NETWORK: Final = (
    Rule(id="connection", trouble=Trouble.TRANSIENT, error_codes=_CONNECTION),
    Rule(id="machine", trouble=Trouble.TRANSIENT, error_codes=_MACHINE),
    _type("ECONNREFUSED", ConnectionRefusedError),
    _type("ECONNRESET", ConnectionResetError),
    _type("ECONNABORTED", ConnectionAbortedError),
    _type("EPIPE", BrokenPipeError),
    _type("CONNECTION", ConnectionError),
    _type("DNS", socket.gaierror),
    _type("TIMEOUT", TimeoutError),  # asyncio's and socket's are the same one
    Rule(
        id="certificate",
        trouble=Trouble.TRANSIENT,
        code="CERTIFICATE",
        names=("ssl.SSLCertVerificationError",),
    ),
    Rule(id="tls", trouble=Trouble.TRANSIENT, code="TLS", names=("ssl.SSLError",)),
    Rule(
        id="called-timeout",
        trouble=Trouble.TRANSIENT,
        code="TIMEOUT",
        name_parts=("Timeout", "TimedOut"),
    ),
    Rule(
        id="called-connection-error",
        trouble=Trouble.TRANSIENT,
        code="CONNECTION",
        name_parts=("ConnectionError", "ConnectError", "Disconnected"),
    ),
    _words("ECONNREFUSED", "connection refused", "econnrefused"),
    _words("ECONNRESET", "connection reset", "econnreset", "socket hang up"),
    _words("EPIPE", "broken pipe"),
    _words("DNS", "name or service not known", "enotfound", "in name resolution"),
    _words("EHOSTUNREACH", "no route to host", "network is unreachable"),
    _words("TIMEOUT", "timed out", "timeout", "etimedout"),
)


DEFAULT: Final = ErrorClassifier((*GENERAL, *HTTP, *GRPC, *NETWORK))
"""The classifier of policies that name no other."""

__all__ = ["DEFAULT", "GENERAL", "GRPC", "HTTP", "NETWORK"]
