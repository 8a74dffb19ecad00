"""What the client library raises, in our words."""

import ssl
from typing import Final

from redis import exceptions as theirs

from deadletter.core.errors import BackendError, ConfigError, Refused, Unavailable
from deadletter.tls import disagreement

from .address import Address


class Unsure(Unavailable):
    """The connection broke: it may have been done, or not."""


# First match wins. What the server answered was not done; what was not answered
# may have been.
_TABLE: Final[tuple[tuple[type[Exception], type[BackendError], str], ...]] = (
    (theirs.AuthenticationError, Unavailable, "the server refuses our password"),
    (theirs.BusyLoadingError, Unavailable, "the server is still loading its data"),
    (theirs.MaxConnectionsError, Unavailable, "all connections are in use"),
    (theirs.OutOfMemoryError, Unavailable, "the server is out of memory (maxmemory)"),
    (theirs.ReadOnlyError, Unavailable, "the server is a replica, it takes no writes"),
    (theirs.ClusterDownError, Unavailable, "the cluster is down"),
    (theirs.TryAgainError, Unavailable, "the cluster is moving this mailbox"),
    (theirs.AskError, Unavailable, "the cluster has moved this mailbox"),
    (theirs.NoPermissionError, Refused, "our user lacks a permission"),
    (theirs.ResponseError, Refused, "the server refused"),
    (theirs.RedisClusterException, Unavailable, "the cluster cannot be reached"),
    (theirs.DataError, Refused, "the client refused"),
    (theirs.RedisError, Unsure, "the server cannot be reached"),
    (OSError, Unsure, "the server cannot be reached"),  # TimeoutError is one
)
KNOWN: Final = tuple(kind for kind, _, _ in _TABLE)

# Refusals that the library has no class for, and that pass.
_PASSING: Final = (
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "NOGOODSLAVE",
    "UNKILLABLE",
    "DLQCHANGED",
)


def translated(error: Exception) -> BackendError:
    """The error in our words; it becomes the cause of what is raised."""
    for kind, ours, words in _TABLE:
        if isinstance(error, kind):
            passing = ours is Refused and str(error).startswith(_PASSING)
            return (Unavailable if passing else ours)(f"{words}: {_text(error)}")
    raise error


def at_start(error: Exception, address: Address) -> ConfigError | BackendError:
    """The error of the first call: mostly something was set up wrongly."""
    where = address.where
    if isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        files = "?ssl_certfile= and ?ssl_keyfile="
        return disagreement(where, "?ssl_ca_certs=", files, _text(error))
    match error:
        case theirs.AuthenticationError():
            return ConfigError(
                f"{where} refuses us: put the right user and password into the URL,"
                f" as in redis://user:password@host:6379/0 ({_text(error)})"
            )
        case theirs.NoPermissionError():
            return ConfigError(
                f"our user may not do this on {where}: allow it +@all ~dlq:* or the"
                f" prefix you use ({_text(error)})"
            )
        case theirs.ResponseError() if "DB index" in str(error):
            return ConfigError(
                f"{where} has no such database: name one it has, as in"
                f" redis://host:6379/0 ({_text(error)})"
            )
    ours = translated(error)
    if isinstance(ours, Unsure):
        wishes = " Does it want TLS (rediss://)?"
        if address.tls:
            wishes = (
                " Does it want a certificate of us (?ssl_certfile=, ?ssl_keyfile=)?"
            )
        return Unavailable(
            f"no answer from {where}: is the server running, and is the URL right?"
            f"{wishes} ({_text(error)})"
        )
    return ours


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
