"""The URL: what is ours in it, and what the client library understands."""

from difflib import get_close_matches
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.urls import unreadable
from deadletter.tls import check_files

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
    dsn = urlunsplit(
        ("postgresql", parts.netloc, parts.path, urlencode(theirs), parts.fragment)
    )
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
