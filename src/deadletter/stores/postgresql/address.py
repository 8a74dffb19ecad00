"""PostgreSQL URLs, and the errors of the server and its client library in our words."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Final

import asyncpg
from msgspec import Meta, Struct

from deadletter.core.errors import ConfigError, DeadLetterError, Refused, Unavailable
from deadletter.kit import ErrorTable, NoAnswer, UrlForm

_CLIENT_NAMES: Final = (
    *("user", "password", "passfile", "host", "port", "dbname", "database"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslpassword"),
    *("sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version"),
    *("application_name", "target_session_attrs", "search_path", "options"),
)
_SIMILARITY: Final = 0.85  # of a misspelled name to the right one


class Options(Struct, frozen=True):
    """Parameters of a PostgreSQL URL that are ours."""

    pool: Annotated[int, Meta(ge=1, le=100)] = 4
    pgbouncer: bool = False
    listen: str | None = None


def _is_client_option(name: str) -> bool:
    """Return whether a name is a setting of the client or server, and not misspelled."""
    if name in Options.__struct_fields__:
        return False
    known = (*Options.__struct_fields__, *_CLIENT_NAMES)
    return name in _CLIENT_NAMES or not get_close_matches(name, known, 1, _SIMILARITY)


URL: Final = UrlForm(
    "PostgreSQL",
    {"postgresql": 5432, "postgres": 5432},
    Options,
    example="postgresql://user:password@host:5432/name",
    many_hosts=True,
    is_client_option=_is_client_option,
    client_files=("sslrootcert", "sslcert", "sslkey", "sslcrl"),
    client_names=_CLIENT_NAMES,
)


class Address(Struct, frozen=True, kw_only=True):
    """A server, and how to connect to it."""

    dsn: str
    where: str  # without user and password
    pool: int
    pgbouncer: bool  # no session outlives a transaction
    listen: str | None  # where to listen for notifications; None: poll instead

    @property
    def name(self) -> str:
        """The server as errors name it."""
        return f"PostgreSQL at {self.where}"


def read_url(url: str) -> Address:
    """Read a URL; raises ConfigError."""
    read = URL.read(url)
    options, dsn = read.options, read.client_url
    return Address(
        dsn=dsn,
        where=f"{read.where}{read.path}",
        pool=options.pool,
        pgbouncer=options.pgbouncer,
        listen=_listen(options.listen, dsn, pgbouncer=options.pgbouncer),
    )


def _listen(given: str | None, dsn: str, *, pgbouncer: bool) -> str | None:
    if given is None:
        # Behind pgbouncer a LISTEN would belong to any session.
        return None if pgbouncer else dsn
    if given in {"0", "off"}:
        return None
    if not given.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "listen in the PostgreSQL URL must be off, or a percent-encoded URL of the server"
            f" itself, past pgbouncer (postgresql://…), got {given.rpartition('@')[2][:60]!a}"
        )
    return given


# Errors by SQLSTATE, or by its first two characters.

_TABLES_GONE: Final = "the tables of deadletter are gone: restart this process to create them"
_MISUSE: Final = "misuse"  # an InterfaceError that is not about the connection


def _codes(error: Exception) -> Sequence[str]:
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or "XX000"
        return state, state[:2]
    if isinstance(error, asyncpg.InterfaceError) and "connection" not in str(error):
        return (_MISUSE,)
    return ()


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


ERRORS: Final = ErrorTable(
    "PostgreSQL",
    {
        "08": (NoAnswer, "the connection broke"),
        "23": (Refused, "it violates a constraint of the tables"),
        "25006": (
            Unavailable,
            "the server is read-only: point the URL at the primary, not at a standby",
        ),
        "40": (Unavailable, "too many transactions conflict with each other: try again"),
        "53": (Unavailable, "the server is out of a resource: see its log"),
        "53300": (
            Unavailable,
            "the server accepts no more connections: use a smaller ?pool=, or pgbouncer",
        ),
        "55": (Unavailable, "an object is in use: try again"),
        "57014": (Unavailable, "the statement took too long: ask for less at once"),
        "57": (Unavailable, "the server is starting or stopping, or cancelled the statement"),
        "58": (Unavailable, "the server has an error of its operating system: see its log"),
        "XX": (Unavailable, "the server has an internal error: see its log"),
        asyncpg.PostgresError: (Refused, "the server refuses this"),
        _MISUSE: (Refused, "the client library refuses this"),
        asyncpg.InterfaceError: (NoAnswer, "the connection broke"),
        asyncpg.InternalClientError: (NoAnswer, "the connection broke"),
        OSError: (NoAnswer, "the server cannot be reached"),  # TimeoutError is one
    },
    configuration={
        "28": (
            "the server rejects this user: check user and password in the URL, and"
            " pg_hba.conf on the server"
        ),
        "28000": (
            "the server rejects this connection: check its pg_hba.conf; it may require TLS"
            " (?sslmode=verify-full) or a certificate (?sslcert=, ?sslkey=)"
        ),
        "3D000": "the database does not exist: create it (createdb NAME), or change the URL",
        "3F000": _TABLES_GONE,
        "42P01": _TABLES_GONE,
        "42501": (
            "this user lacks a permission: let it create its tables (GRANT CREATE ON"
            " DATABASE … TO …), or create their schema for it (CREATE SCHEMA deadletter"
            " AUTHORIZATION …)"
        ),
        "42704": (
            "the server does not know a name; if it is a parameter in the URL, remove it:"
            " ours are pool, pgbouncer and listen"
        ),
        asyncpg.ClientConfigurationError: "the URL is invalid: correct its parameters",
    },
    codes=_codes,
    text=_first_line,
    tls_options=("?sslrootcert=", "?sslcert= and ?sslkey="),
)


def running_error(error: Exception, address: Address) -> DeadLetterError:
    """Return our error for one of a call; also for one that garbled bytes have caused."""
    if isinstance(error, ERRORS.known):
        return ERRORS.translate(error, address.name)
    return Unavailable(
        f"{address.name}: the answer is malformed: check that nothing on the network changes"
        " what is sent, or use TLS to detect it (?sslmode=verify-full)"
        f" ({type(error).__name__}: {_first_line(error)})"
    )


def is_broken(error: BaseException) -> bool:
    """Return whether the connection that raised this must not be used again."""
    if isinstance(error, asyncpg.QueryCanceledError):
        return False  # the statement took too long; its connection is as it was
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "XX")[:2] in {"08", "57", "58", "XX"}
    return not isinstance(error, DeadLetterError)


def is_foreign(error: BaseException) -> bool:
    """
    Return whether the server or the client library raised this, and not our own code.

    From garbled bytes the library may raise anything: AssertionError, struct.error,
    UnicodeDecodeError.
    """
    if isinstance(error, ERRORS.known):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    file = "" if trace is None else trace.tb_frame.f_code.co_filename
    return "asyncpg" in file
