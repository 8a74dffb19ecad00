"""Redis URLs: what they say, and what they may say."""

from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.urls import unreadable
from deadletter.tls import check_files

_PLAIN: Final = frozenset({"redis", "valkey"})
_TLS: Final = frozenset({"rediss", "valkeys"})
_UNIX: Final = frozenset({"redis+unix", "valkey+unix"})
_TLS_PARAMETERS: Final[tuple[str, ...]] = (
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
)


class Address(Struct, frozen=True):
    """Where a server is, as the client library wants to be told."""

    where: str  # for people, without the password
    options: dict[str, Any]
    prefix: str
    tls: bool = False


def read_url(url: str, *, prefix: str = "dlq") -> Address:
    """What a URL says; the prefix is this one unless it says another."""
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
    except ValueError as error:
        raise unreadable("Redis") from error
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = given.pop("prefix", prefix)
    options: dict[str, Any] = {}
    if parts.username:
        options["username"] = unquote(parts.username)
    if parts.password:
        options["password"] = unquote(parts.password)
    if parts.scheme in _UNIX:
        if not parts.path.strip("/") or parts.hostname:
            raise ConfigError(
                f"a {parts.scheme} URL names a socket, as in"
                f" {parts.scheme}:///run/redis.sock"
            )
        options["path"] = unquote(parts.path)
        options["db"] = _number(given.pop("db", "0"))
        where = parts.path
    elif parts.scheme in _PLAIN | _TLS:
        options["host"] = parts.hostname or "localhost"
        options["port"] = port
        options["db"] = _number(parts.path.strip("/") or given.pop("db", "0"))
        where = f"{options['host']}:{port}"
    else:
        raise ConfigError("a Redis URL begins with redis://, rediss:// or valkey://")
    if parts.scheme in _TLS:
        files = {name: given.pop(name) for name in _TLS_PARAMETERS if name in given}
        check_files("Redis", files)
        options |= files
    if given:
        raise ConfigError(
            f"unknown parameter {min(given)!a} in the Redis URL; known are: prefix,"
            f" and with rediss:// {', '.join(_TLS_PARAMETERS)}"
        )
    return Address(where, options, prefix, tls=parts.scheme in _TLS)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(
            f"the database {text!a} in the Redis URL is not a number: write it as in"
            " redis://host:6379/0"
        )
    return int(text)
