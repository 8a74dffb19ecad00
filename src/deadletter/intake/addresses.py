"""URLs of servers with dead places: the same as those of our engines."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.urls import unreadable


class SqsAddress(Struct, frozen=True, kw_only=True):
    """Where a service is; what is not said is looked up in the usual AWS places."""

    region: str | None = None
    endpoint: str | None = None
    keys: tuple[str, str] | None = None
    unmarked: bool = False  # send copies even if there is no room for their lineage

    @property
    def where(self) -> str:
        """For people; without keys."""
        return self.endpoint or f"SQS in {self.region or 'the configured region'}"


def read_sqs(url: str) -> SqsAddress:
    """`sqs://eu-west-1`, or `sqs+http://key:secret@host:port?region=…`."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    region, unmarked = given.get("region"), given.get("unmarked") == "yes"
    if parts.scheme == "sqs":
        if parts.username or parts.port:
            raise ConfigError(
                "an SQS URL is sqs://eu-west-1, or sqs+http://… for another endpoint; "
                "keys belong into the usual AWS places"
            )
        return SqsAddress(region=parts.hostname or region, unmarked=unmarked)
    host_and_port(url, 443)  # refuses what is no port
    host = parts.netloc.rpartition("@")[2]
    keys = None
    if parts.username and parts.password:
        keys = unquote(parts.username), unquote(parts.password)
    scheme = parts.scheme.removeprefix("sqs+")
    return SqsAddress(
        region=region, endpoint=f"{scheme}://{host}", keys=keys, unmarked=unmarked
    )


class KafkaAddress(Struct, frozen=True, kw_only=True):
    """Where a cluster is, as which group we read, and what copies keep."""

    bootstrap: str
    group: str
    client: dict[str, str] = {}
    keep: frozenset[str] = frozenset()  # partition, timestamp
    consumer: str = ""  # the group whose offsets confirm copies


_DEAD: Final = ("dlq", "dlt", "dead", "dead-letters", "dead_letters", "poison")
_DEAD_BEGIN: Final = tuple(
    f"{word}{mark}"
    for word in ("dlq", "dlt", "dead-letter", "poison")
    for mark in ".-_"
)
_KEEPS: Final = frozenset({"partition", "timestamp"})
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
    keep = frozenset(word for word in given.get("keep", "").split(",") if word)
    if wrong := keep - _KEEPS:
        raise ConfigError(
            f"keep={','.join(sorted(wrong))} is unknown in a Kafka URL: use partition,"
            " timestamp or both, as in ?keep=partition,timestamp"
        )
    return KafkaAddress(
        bootstrap=hosts,
        group=given.get("group") or DRAIN_GROUP,
        client=client,
        keep=keep,
        consumer=given.get("consumer", ""),
    )


def split_results(url: str) -> tuple[str, str | None]:
    """
    Take `results` off a Redis URL: where Celery's results are, if it says so.

    `redis://host/0?results=1` is a database of the same server; the URL of another
    one is percent-encoded.
    """
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    named = dict(given).get("results")
    if named is None:
        return url, None
    rest = [(name, value) for name, value in given if name != "results"]
    alone = parts._replace(query=urlencode(rest))
    if not named.isdecimal():
        if not named.partition("://")[1]:
            raise ConfigError(
                f"results={named.rpartition('@')[2][:40]!a} is not a place of Celery's"
                " results: give the number of a database, or a percent-encoded Redis"
                " URL"
            )
        return alone.geturl(), named
    others = [(name, value) for name, value in rest if name != "db"]
    query = urlencode([*others, ("db", named)])
    return alone.geturl(), parts._replace(query=query).geturl()


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


def near_names(name: str, known: Iterable[str]) -> str:
    """Ask, as a sentence of an error's text, whether one of these names was meant."""
    lower = {one.lower(): one for one in known}
    near = [lower[one] for one in get_close_matches(name.lower(), lower, 3)]
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def is_called_dead(name: str) -> bool:
    """Tell whether a topic or stream is called like a dead one: `dlq-orders`."""
    lower = name.lower()
    return lower.startswith(_DEAD_BEGIN) or lower.endswith(_DEAD)
