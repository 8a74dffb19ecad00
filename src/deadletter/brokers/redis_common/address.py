"""Redis URLs, and the errors of the client library in our words."""

from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct
from redis import exceptions as theirs

from deadletter.core.errors import ConfigError, DeadLetterError, Refused, Unavailable
from deadletter.kit import ErrorTable, NoAnswer, ServerUrl, UrlForm

_TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_EXAMPLE: Final = "redis://host:6379/0"


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Parameters of every URL of a Redis server."""

    db: Annotated[int, Meta(ge=0)] = 0
    ssl_ca_certs: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None


OptionsT = TypeVar("OptionsT", bound=ServerOptions)


def url_form(service: str, options: type[OptionsT], *schemes: str) -> UrlForm[OptionsT]:
    """Return the form of URLs with these schemes; `s` adds TLS, `+unix` is a socket."""
    secure = [f"{scheme}s" for scheme in schemes]
    sockets = [f"{scheme}+unix" for scheme in schemes]
    return UrlForm(
        service,
        dict.fromkeys((*schemes, *secure, *sockets), 6379),
        options,
        example=f"{schemes[0]}://host:6379/0",
        tls_schemes=secure,
        tls_options=_TLS_FILES,
        socket_schemes=sockets,
    )


class Address(Struct, frozen=True):
    """A server, and how the client library connects to it."""

    where: str  # for people, without the password
    options: dict[str, Any]
    tls: bool = False


def address_of(url: ServerUrl[OptionsT]) -> Address:
    """Return how to connect to the server of a URL."""
    options: dict[str, Any] = {"db": url.options.db}
    if url.user:
        options["username"] = url.user
    if url.password:
        options["password"] = url.password
    if not url.hosts:
        options["path"] = url.path
    else:
        options |= {"host": url.host.name, "port": url.host.port}
        if database := url.path.strip("/"):
            options["db"] = _database(database)
    for name in _TLS_FILES:
        if file := getattr(url.options, name):
            options[name] = file
    return Address(url.where, options, tls=url.is_tls)


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(
            f"the database {text!a} in the Redis URL is not a number: write it as in {_EXAMPLE}"
        )
    return int(text)


# Refusals that are temporary, and for which the client library has no class.
_TEMPORARY: Final = ("MISCONF", "NOREPLICAS", "BUSY", "NOGOODSLAVE", "UNKILLABLE", "DLQCHANGED")
_CODES: Final = (*_TEMPORARY, "WRONGTYPE", "DB index")


def _codes(error: Exception) -> list[str]:
    text = str(error)
    return [code for code in _CODES if text.startswith(code)]


# A command that the server has answered with an error was not run. One that it has not
# answered may have been.
ERRORS: Final = ErrorTable(
    "Redis",
    {
        **dict.fromkeys(_TEMPORARY, (Unavailable, "the server refuses this for now")),
        theirs.AuthenticationError: (Unavailable, "the server rejects our password"),
        theirs.BusyLoadingError: (Unavailable, "the server is still loading its data"),
        theirs.MaxConnectionsError: (Unavailable, "all connections are in use"),
        theirs.OutOfMemoryError: (Unavailable, "the server is out of memory (maxmemory)"),
        theirs.ReadOnlyError: (Unavailable, "the server is a replica, it takes no writes"),
        theirs.ClusterDownError: (Unavailable, "the cluster is down"),
        theirs.TryAgainError: (Unavailable, "the cluster is moving this mailbox"),
        theirs.AskError: (Unavailable, "the cluster has moved this mailbox"),
        theirs.NoPermissionError: (Refused, "our user lacks a permission"),
        theirs.ResponseError: (Refused, "the server refused"),
        theirs.RedisClusterException: (Unavailable, "the cluster cannot be reached"),
        theirs.DataError: (Refused, "the client refused"),
        theirs.RedisError: (NoAnswer, "the server cannot be reached"),
        OSError: (NoAnswer, "the server cannot be reached"),  # TimeoutError is one
    },
    opening={
        theirs.AuthenticationError: (
            ConfigError,
            (
                "{where} rejects us: put the right user and password into the URL, as in"
                " redis://user:password@host:6379/0"
            ),
        ),
        theirs.NoPermissionError: (
            ConfigError,
            "our user may not do this on {where}: allow it +@all ~dlq:* or the prefix you use",
        ),
        "DB index": (
            ConfigError,
            f"{{where}} has no such database: name one it has, as in {_EXAMPLE}",
        ),
    },
    codes=_codes,
    tls_options=("?ssl_ca_certs=", "?ssl_certfile= and ?ssl_keyfile="),
)


def opening_error(error: Exception, address: Address) -> DeadLetterError:
    """Return our error for one of the first call."""
    hint = "Does it want TLS (rediss://)?"
    if address.tls:
        hint = "Does it want a certificate of us (?ssl_certfile=, ?ssl_keyfile=)?"
    return ERRORS.translate_opening(error, address.where, hint)
