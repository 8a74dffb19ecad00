"""RabbitMQ URLs: what they say, and what they may say."""

from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.urls import unreadable

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_TLS: Final = ("cafile", "certfile", "keyfile")
_HEARTBEAT: Final = 20  # seconds; twice that without a word, and it is gone


class Address(Struct, frozen=True, kw_only=True):
    """Where a broker is, and who we are there."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool = False
    heartbeat: int = _HEARTBEAT
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    management: int | None = None  # the port of its HTTP API

    @property
    def where(self) -> str:
        """For people, without the password."""
        return f"{self.host}:{self.port}"


def read_url(url: str) -> Address:
    """What a URL says."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise unreadable("RabbitMQ") from error
    if parts.scheme not in _PORTS:
        raise ConfigError("a RabbitMQ URL begins with amqp:// or amqps://")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    heartbeat = _seconds(given.pop("heartbeat", str(_HEARTBEAT)))
    management = _port(given.pop("management", None))
    tls = parts.scheme == "amqps"
    files = {name: given.pop(name) for name in _TLS if tls and name in given}
    if given:
        raise ConfigError(
            f"unknown parameter {min(given)!a} in the RabbitMQ URL; known are:"
            f" heartbeat, management, and with amqps:// {', '.join(_TLS)}"
        )
    return Address(
        host=parts.hostname or "localhost",
        port=port or _PORTS[parts.scheme],
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        vhost=unquote(parts.path.removeprefix("/")) or "/",
        tls=tls,
        heartbeat=heartbeat,
        management=management,
        **files,
    )


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 3600:
        raise ConfigError(
            "heartbeat in the RabbitMQ URL must be a number of seconds up to 3600,"
            f" got {text!a}"
        )
    return int(text)


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 65_536:
        raise ConfigError(
            f"management={text} in the RabbitMQ URL is no port, such as 15672"
        )
    return int(text)
