"""NATS URLs: what they say, and what they may say."""

import re
from typing import Final
from urllib.parse import parse_qsl

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.nats_login import CREDS, TLS, Login, read_login, split

_KNOWN: Final = ("prefix", "replicas", "stream", "consumer", CREDS)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # safe in every place we put it
_MOST_REPLICAS: Final = 5


class Address(Struct, frozen=True):
    """Where a server is, and what is ours on it."""

    login: Login
    prefix: str = "dlq"
    replicas: int = 1
    stream: str | None = None
    consumer: str | None = None


def read_url(url: str) -> Address:
    """What a URL says."""
    parts = split(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    login = read_login(parts, given)
    unknown = sorted(set(given) - set(_KNOWN))
    if unknown or parts.path.strip("/"):
        odd = unknown[0] if unknown else parts.path
        raise ConfigError(
            f"{odd!a} in the NATS URL is not known; it may have ?{', '.join(_KNOWN)},"
            f" and with tls:// {', '.join(TLS)}"
        )
    stream, consumer = given.get("stream"), given.get("consumer")
    if consumer is not None and stream is None:
        raise ConfigError("?consumer= belongs to a stream: name it too, with ?stream=")
    for name in (given.get("prefix", "dlq"), stream, consumer):
        if name is not None and not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!a} in the NATS URL: use 1 to 64 letters, digits, - and _"
            )
    return Address(
        login=login,
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
