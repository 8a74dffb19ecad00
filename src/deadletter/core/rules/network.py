"""
The network and the machine: by error number, by type, and at last by words.

All of it is transient: a host that is down, a name that cannot be looked up, an
expired certificate or a full disk is no fault of the message.
"""

import socket
from typing import Final

from ..classify import Rule
from ..failure import Trouble

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
    return Rule(
        id=f"says-{code.lower()}", trouble=Trouble.TRANSIENT, code=code, texts=texts
    )


def _type(code: str, kind: type[BaseException]) -> Rule:
    return Rule(
        id=f"type-{code.lower()}", trouble=Trouble.TRANSIENT, code=code, types=(kind,)
    )


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
