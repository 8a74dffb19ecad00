"""Kafka URLs: what they say, and what they may say."""

import re
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.urls import unreadable

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]*")
_KNOWN: Final = (
    *("group", "prefix", "retry", "partitions", "replication", "create"),
    *("ordering", "dialect", "prefetch"),
)
_RESERVED: Final = frozenset(  # how these are set is what our promises rest on
    {
        *("bootstrap.servers", "group.id", "enable.auto.commit", "acks"),
        *("enable.auto.offset.store", "enable.idempotence", "auto.offset.reset"),
        *("enable.partition.eof", "partition.assignment.strategy", "isolation.level"),
    }
)


class Address(Struct, frozen=True, kw_only=True):
    """Where a cluster is, and how its topics are used."""

    bootstrap: str
    group: str = "deadletter"  # {mailbox} stands for the mailbox
    prefix: str = ""  # of every topic's name
    retry: str = "{topic}.retry"
    partitions: int | None = None  # of the topics we make
    replication: int | None = None
    create: bool = True  # topics that are missing
    ordering: Literal["none", "key"] = "none"
    dialect: Literal["none", "spring"] = "none"
    prefetch: int = 1000  # records held per partition
    client: dict[str, str] = {}  # settings of the client library, by their own names

    def topic(self, mailbox: str) -> str:
        """The topic that is a mailbox."""
        topic = self.prefix + mailbox
        if not 1 <= len(topic) <= 200 or topic in {".", ".."}:
            raise ConfigError(
                f"{topic!a} cannot be a topic: its name has 1 to 200 characters"
            )
        if not _TOPIC.fullmatch(topic):
            raise ConfigError(
                f"{topic!a} cannot be a topic: use letters, digits and . _ - only"
            )
        return topic

    def retry_topic(self, mailbox: str) -> str:
        """The topic where its records wait for another try."""
        return self.retry.replace("{topic}", self.topic(mailbox))

    def group_of(self, mailbox: str) -> str:
        """The consumer group that works a mailbox."""
        return self.group.replace("{mailbox}", mailbox)

    def retry_group_of(self, mailbox: str) -> str:
        """The one that works its retry topic."""
        group = self.group_of(mailbox)
        return group if self.ordering == "key" else f"{group}.retry"

    @property
    def registry(self) -> str:
        """The topic that has the mailboxes' options."""
        return f"{self.prefix}deadletter.mailboxes"


def read_url(url: str) -> Address:
    """What a URL says."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    if parts.scheme != "kafka" or not hosts or parts.path.strip("/"):
        raise ConfigError(
            "a Kafka URL names brokers, as in kafka://host:9092,other:9092/?group=shop"
        )
    if not all(map(_has_port, hosts.split(","))):
        raise unreadable("Kafka")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    client = {name: given.pop(name) for name in list(given) if "." in name}
    if taken := _RESERVED & client.keys():
        raise ConfigError(f"{min(taken)} is not yours to set in the Kafka URL")
    if unknown := given.keys() - set(_KNOWN):
        raise ConfigError(
            f"unknown parameter {min(unknown)!a} in the Kafka URL; known are:"
            f" {', '.join(_KNOWN)}, and settings of the client by their own names"
        )
    if credentials:
        user, _, password = credentials.partition(":")
        client.setdefault("security.protocol", "SASL_PLAINTEXT")
        client.setdefault("sasl.mechanism", "PLAIN")
        client |= {"sasl.username": unquote(user), "sasl.password": unquote(password)}
    return Address(
        bootstrap=hosts,
        group=given.get("group") or "deadletter",
        prefix=_name("prefix", given.get("prefix", "")),
        retry=_retry(given.get("retry", "{topic}.retry")),
        partitions=_number("partitions", given.get("partitions")),
        replication=_number("replication", given.get("replication")),
        create=_choice("create", given.get("create", "true"), "true", "false")
        == "true",
        ordering=_choice("ordering", given.get("ordering", "none"), "none", "key"),  # type: ignore[arg-type]
        dialect=_choice("dialect", given.get("dialect", "none"), "none", "spring"),  # type: ignore[arg-type]
        prefetch=_number("prefetch", given.get("prefetch")) or 1000,
        client=client,
    )


def _has_port(host: str) -> bool:
    """Whether what follows the host, if anything does, is a port."""
    try:
        parts = urlsplit(f"//{host}")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _name(which: str, text: str) -> str:
    if not _TOPIC.fullmatch(text):
        raise ConfigError(f"{which} in the Kafka URL has letters, digits and . _ -")
    return text


def _retry(text: str) -> str:
    if "{topic}" not in text or text == "{topic}":
        raise ConfigError(
            "retry in the Kafka URL is a name with {topic} in it, as in {topic}.retry"
        )
    _name("retry", text.replace("{topic}", ""))
    return text


def _number(which: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text)):
        raise ConfigError(f"{which} in the Kafka URL is a number above 0, not {text!a}")
    return int(text)


def _choice(which: str, text: str, *allowed: str) -> str:
    if text not in allowed:
        raise ConfigError(
            f"{which} in the Kafka URL is {' or '.join(allowed)}, not {text!a}"
        )
    return text
