"""NATS URLs: what they say, and what they may say."""

import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError

_SCHEMES: Final = frozenset({"nats", "tls"})
_KNOWN: Final = ("prefix", "replicas", "stream", "consumer")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # safe in every place we put it
_MOST_REPLICAS: Final = 5


class Address(Struct, frozen=True):
    """Where a server is, and what is ours on it."""

    servers: list[str]  # without user and password
    where: str  # for people
    user: str | None = None
    password: str | None = None
    token: str | None = None
    prefix: str = "dlq"
    replicas: int = 1
    stream: str | None = None
    consumer: str | None = None


def read_url(url: str) -> Address:
    """What a URL says."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"this NATS URL cannot be read: {error}") from error
    if parts.scheme not in _SCHEMES:
        raise ConfigError("a NATS URL begins with nats:// or tls://")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(given) - set(_KNOWN))
    if unknown or parts.path.strip("/"):
        odd = unknown[0] if unknown else parts.path
        raise ConfigError(
            f"{odd!a} in the NATS URL is not known; it may have ?{', '.join(_KNOWN)}"
        )
    login, _, hosts = parts.netloc.rpartition("@")
    user, has_password, password = login.partition(":")
    named = [host for host in hosts.split(",") if host] or ["localhost:4222"]
    stream, consumer = given.get("stream"), given.get("consumer")
    if consumer is not None and stream is None:
        raise ConfigError("?consumer= belongs to a stream: name it too, with ?stream=")
    for name in (given.get("prefix", "dlq"), stream, consumer):
        if name is not None and not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!a} in the NATS URL: use 1 to 64 letters, digits, - and _"
            )
    return Address(
        servers=[f"{parts.scheme}://{host}" for host in named],
        where=", ".join(named),
        user=unquote(user) if has_password else None,
        password=unquote(password) if has_password else None,
        token=unquote(user) if user and not has_password else None,
        prefix=given.get("prefix", "dlq"),
        replicas=_replicas(given.get("replicas", "1")),
        stream=stream,
        consumer=consumer,
    )


def _replicas(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_REPLICAS:
        return int(text)
    raise ConfigError(
        f"?replicas={text} in the NATS URL: use a number from 1 to {_MOST_REPLICAS},"
        " no more than the cluster has servers"
    )
