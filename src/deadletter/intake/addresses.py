"""URLs of servers with dead places: the same as those of our engines."""

from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.urls import unreadable


class SqsAddress(Struct, frozen=True, kw_only=True):
    """Where a service is; what is not said is looked up in the usual AWS places."""

    region: str | None = None
    endpoint: str | None = None
    keys: tuple[str, str] | None = None

    @property
    def where(self) -> str:
        """For people; without keys."""
        return self.endpoint or f"SQS in {self.region or 'the configured region'}"


def read_sqs(url: str) -> SqsAddress:
    """`sqs://eu-west-1`, or `sqs+http://key:secret@host:port?region=…`."""
    parts = urlsplit(url)
    region = dict(parse_qsl(parts.query)).get("region")
    if parts.scheme == "sqs":
        if parts.username or parts.port:
            raise ConfigError(
                "an SQS URL is sqs://eu-west-1, or sqs+http://… for another endpoint; "
                "keys belong into the usual AWS places"
            )
        return SqsAddress(region=parts.hostname or region)
    host_and_port(url, 443)  # refuses what is no port
    host = parts.netloc.rpartition("@")[2]
    keys = None
    if parts.username and parts.password:
        keys = unquote(parts.username), unquote(parts.password)
    scheme = parts.scheme.removeprefix("sqs+")
    return SqsAddress(region=region, endpoint=f"{scheme}://{host}", keys=keys)


class KafkaAddress(Struct, frozen=True, kw_only=True):
    """Where a cluster is, and as which group we read."""

    bootstrap: str
    group: str
    client: dict[str, str] = {}


DRAIN_GROUP: Final = "deadletter-drain"


def read_kafka(url: str) -> KafkaAddress:
    """`kafka://host:9092,other:9092/?group=…`, with settings of the client."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    if not hosts:
        raise ConfigError("a Kafka URL names brokers, as in kafka://host:9092")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    client = {name: value for name, value in given.items() if "." in name}
    if credentials:
        user, _, password = credentials.partition(":")
        client.setdefault("security.protocol", "SASL_PLAINTEXT")
        client.setdefault("sasl.mechanism", "PLAIN")
        client |= {"sasl.username": unquote(user), "sasl.password": unquote(password)}
    return KafkaAddress(
        bootstrap=hosts, group=given.get("group") or DRAIN_GROUP, client=client
    )


def redis_address(url: str) -> tuple[str, str]:
    """A Redis URL as the client knows it; and where that is, for people."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.replace("valkey", "redis")
    if scheme == "redis+unix":
        return f"unix://{rest}", urlsplit(url).path
    return f"{scheme}://{rest}", host_and_port(url, 6379)


def host_and_port(url: str, usual: int) -> str:
    """Where a URL leads, for people; the usual port is said too."""
    try:
        parts = urlsplit(url)
        port = parts.port or usual
    except ValueError as error:
        raise unreadable(url.partition("://")[0]) from error
    return f"{parts.hostname or 'localhost'}:{port}"
