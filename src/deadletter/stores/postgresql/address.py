"""The URL: what is ours in it, and what the client library understands."""

import ssl
from difflib import get_close_matches
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from msgspec import Struct

from deadletter.core.errors import ConfigError, DeadLetterError, Refused, Unavailable
from deadletter.core.redact import unreadable
from deadletter.kit import check_files, disagreement

_POOL: Final = 4
_MOST: Final = 100
_OURS: Final = ("pool", "pgbouncer", "listen")
_KNOWN: Final = (
    *_OURS,
    *("user", "password", "passfile", "host", "port", "dbname", "database"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslpassword"),
    *("sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version"),
    *("application_name", "target_session_attrs", "search_path", "options"),
)
_ALMOST: Final = 0.85  # how alike a misspelt name is
_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_SWITCH: Final = {"1": True, "true": True, "0": False, "false": False}


class Address(Struct, frozen=True, kw_only=True):
    """Where the server is, and how to talk to it."""

    dsn: str
    shown: str  # without password
    pool: int = _POOL
    pgbouncer: bool = False  # no session outlives a transaction
    listen: str | None = None  # where to listen for wake-ups; None: look instead


def read_url(url: str) -> Address:
    """What a URL says; a ConfigError when it makes no sense."""
    parts = urlsplit(url)
    try:
        shown = f"{parts.hostname or 'localhost'}:{parts.port or 5432}{parts.path}"
    except ValueError as error:
        raise unreadable("PostgreSQL") from error
    ours: dict[str, str] = {}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OURS:
            ours[name] = value
        else:
            _check_name(name)
            theirs.append((name, value))
    named = dict(theirs)
    check_files("PostgreSQL", {one: named[one] for one in _FILES if named.get(one)})
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(theirs), parts.fragment))
    pgbouncer = _switch("pgbouncer", ours.get("pgbouncer", "0"))
    return Address(
        dsn=dsn,
        shown=shown,
        pool=_size(ours.get("pool", str(_POOL))),
        pgbouncer=pgbouncer,
        listen=_listen(ours.get("listen"), dsn, pgbouncer=pgbouncer),
    )


def _check_name(name: str) -> None:
    """Refuse a slip of the pen; other names are settings that the server knows."""
    near = get_close_matches(name, _KNOWN, 1, _ALMOST)
    if near and name not in _KNOWN:
        raise ConfigError(
            f"unknown parameter {name!a} in the PostgreSQL URL: did you mean {near[0]}?"
        )


def _size(value: str) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST):
        raise ConfigError(f"pool is a number from 1 to {_MOST}, not {value!a}")
    return int(value)


def _switch(name: str, value: str) -> bool:
    if value not in _SWITCH:
        raise ConfigError(f"{name} is 1 or 0, not {value!a}")
    return _SWITCH[value]


def _listen(asked: str | None, dsn: str, *, pgbouncer: bool) -> str | None:
    if asked is None:
        # Behind pgbouncer nobody can say to whom a LISTEN would belong.
        return None if pgbouncer else dsn
    if asked in {"0", "off"}:
        return None
    if not asked.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "listen is a URL that leads to the server itself, past pgbouncer"
            f" (postgresql://…, percent-encoded), or off; not {asked!a}"
        )
    return asked


# Errors of the server and its client library, as ours: one table.

TROUBLE: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # with ConnectionError and TimeoutError
)
"""Whatever talking to a server may raise."""

# By SQLSTATE or its beginning, the longest that fits.
_TABLE: Final[dict[str, tuple[type[DeadLetterError], str]]] = {
    "08": (Unavailable, "the connection broke"),
    "23": (Refused, "it breaks a rule of the tables"),
    "25006": (Unavailable, "the server only reads: point the URL at the primary, not at a standby"),
    "28": (
        ConfigError,
        (
            "the server refuses this user: check user and password in the URL, and"
            " pg_hba.conf on the server"
        ),
    ),
    "28000": (
        ConfigError,
        (
            "the server does not let us in: see who may come how in its pg_hba.conf;"
            " it may want TLS (?sslmode=verify-full) or a certificate (?sslcert=,"
            " ?sslkey=)"
        ),
    ),
    "3D000": (
        ConfigError,
        "there is no such database: create it (createdb NAME), or change the URL",
    ),
    "3F000": (
        ConfigError,
        "the tables of deadletter are gone: restart this process to make them anew",
    ),
    "40": (Unavailable, "too many transactions are in each other's way"),
    "42501": (
        ConfigError,
        (
            "this user may not do that: let it make its tables (GRANT CREATE ON"
            " DATABASE … TO …), or make their place for it (CREATE SCHEMA deadletter"
            " AUTHORIZATION …)"
        ),
    ),
    "42704": (
        ConfigError,
        (
            "something that was named is not there; if it is a parameter in the URL,"
            " take it out: ours are pool, pgbouncer and listen"
        ),
    ),
    "42P01": (
        ConfigError,
        "the tables of deadletter are gone: restart this process to make them anew",
    ),
    "53": (Unavailable, "the server has run out of something: see what it says"),
    "53300": (
        Unavailable,
        "the server takes no more connections: use a smaller ?pool=, or pgbouncer",
    ),
    "55": (Unavailable, "something is in use"),
    "57014": (Unavailable, "this took longer than it may: ask for less at once"),
    "57": (Unavailable, "the server is stopping, starting, or was told to stop this"),
    "58": (Unavailable, "the server has trouble with its system"),
    "XX": (Unavailable, "the server is in trouble with itself: see its log"),
}
_OTHERS: Final = (Refused, "the server refuses this")


def explained(error: BaseException, where: str) -> DeadLetterError:
    """Our error for one of theirs, saying what to do."""
    if isinstance(error, asyncpg.PostgresError):
        kind, saying = _entry(error.sqlstate or "XX000")
        return kind(f"PostgreSQL at {where}: {saying} ({_first_line(error)})")
    if isinstance(error, ssl.SSLError):
        ours, said = "?sslcert= and ?sslkey=", _first_line(error)
        return disagreement(f"PostgreSQL at {where}", "?sslrootcert=", ours, said)
    if isinstance(error, asyncpg.ClientConfigurationError):
        return ConfigError(f"the PostgreSQL URL cannot be read: {_first_line(error)}")
    if isinstance(error, asyncpg.InterfaceError) and "connection" not in str(error):
        return Refused(f"PostgreSQL at {where}: {_first_line(error)}")
    said = _first_line(error) or type(error).__name__
    if not isinstance(error, TROUBLE):
        return Unavailable(
            f"PostgreSQL at {where} sent what cannot be read"
            f" ({type(error).__name__}: {said}): see that nothing on the way to it"
            " changes what is sent; TLS would tell (?sslmode=verify-full)"
        )
    return Unavailable(
        f"PostgreSQL at {where} cannot be reached ({said}): see that it runs, and that"
        " host and port in the URL are right"
    )


def while_running(error: DeadLetterError) -> DeadLetterError:
    """
    The same, for a process that has been working before.

    What it was told worked once, so whatever has changed may change back: it goes
    on trying, and says why it cannot.
    """
    if isinstance(error, ConfigError):
        return Unavailable(str(error))
    return error


def is_broken(error: BaseException) -> bool:
    """Whether the connection it came from must not be used again."""
    if isinstance(error, asyncpg.QueryCanceledError):
        return False  # the statement took too long; its connection is as it was
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "XX")[:2] in {"08", "57", "58", "XX"}
    return not isinstance(error, DeadLetterError)


def is_theirs(error: BaseException) -> bool:
    """
    Whether the server or the client library raised this, and not our own code.

    From bytes that were changed on their way the library makes whatever it can: an
    AssertionError, a struct.error, a text that is none.
    """
    if isinstance(error, TROUBLE):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else trace.tb_frame.f_code.co_filename
    return "asyncpg" in where


def _entry(sqlstate: str) -> tuple[type[DeadLetterError], str]:
    return _TABLE.get(sqlstate) or _TABLE.get(sqlstate[:2]) or _OTHERS


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
