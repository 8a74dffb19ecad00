"""Kafka URLs: brokers, login, and the options of the engine and of its drain."""

import re
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from deadletter.core.errors import ConfigError
from deadletter.kit import UrlForm

GROUP: Final = "deadletter"  # the consumer group of workers
DRAIN_GROUP: Final = "deadletter-drain"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]*")
_Number = Annotated[
    int, Meta(ge=1, le=999_999, extra_json_schema={"description": "a number above 0"})
]
_RETRY: Final = "{topic}.retry"
_KEEP: Final = frozenset({"partition", "timestamp"})
_RESERVED: Final = frozenset(  # our promises depend on these settings
    {
        *("bootstrap.servers", "group.id", "enable.auto.commit", "acks"),
        *("enable.auto.offset.store", "enable.idempotence", "auto.offset.reset"),
        *("enable.partition.eof", "partition.assignment.strategy", "isolation.level"),
    }
)


class Options(Struct, frozen=True):
    """Parameters of a URL."""

    group: str = ""
    prefix: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9._-]*$",
            extra_json_schema={"description": "letters, digits and . _ -"},
        ),
    ] = ""
    retry: str = _RETRY
    partitions: _Number | None = None
    replication: _Number | None = None
    create: bool = True
    ordering: Literal["none", "key"] = "none"
    dialect: Literal["none", "spring"] = "none"
    prefetch: _Number = 1000
    keep: str = ""
    consumer: str = ""


class Address(Struct, frozen=True, kw_only=True):
    """Location of a cluster, and how its topics are used."""

    bootstrap: str
    group: str = GROUP  # {mailbox} stands for the mailbox
    prefix: str = ""  # of every topic's name
    retry: str = _RETRY
    partitions: int | None = None  # of the topics we create
    replication: int | None = None
    create: bool = True  # create missing topics
    ordering: Literal["none", "key"] = "none"
    dialect: Literal["none", "spring"] = "none"
    prefetch: int = 1000  # records held per partition
    keep: frozenset[str] = frozenset()  # of a replayed record: partition, timestamp
    consumer: str = ""  # the group whose offsets confirm replayed records
    client: dict[str, str] = {}  # settings of the client library, by their own names

    def topic(self, mailbox: str) -> str:
        """Return the topic of a mailbox."""
        topic = self.prefix + mailbox
        if not 1 <= len(topic) <= 200 or topic in {".", ".."}:
            raise ConfigError(f"{topic!a} cannot be a topic: its name has 1 to 200 characters")
        if not _TOPIC.fullmatch(topic):
            raise ConfigError(f"{topic!a} cannot be a topic: use letters, digits and . _ - only")
        return topic

    def retry_topic(self, mailbox: str) -> str:
        """Return the topic where records of a mailbox wait for their next attempt."""
        return self.retry.replace("{topic}", self.topic(mailbox))

    def group_of(self, mailbox: str) -> str:
        """Return the consumer group that works a mailbox."""
        return self.group.replace("{mailbox}", mailbox)

    def retry_group_of(self, mailbox: str) -> str:
        """Return the consumer group that works the retry topic of a mailbox."""
        group = self.group_of(mailbox)
        return group if self.ordering == "key" else f"{group}.retry"

    @property
    def registry(self) -> str:
        """The topic that stores the options of mailboxes."""
        return f"{self.prefix}deadletter.mailboxes"


URL: Final = UrlForm(
    "Kafka",
    {"kafka": None},
    Options,
    example="kafka://host:9092,other:9092/?group=shop",
    many_hosts=True,
    default_host=None,
    is_client_option=lambda name: "." in name,
)


def read_url(url: str, *, group: str = GROUP) -> Address:
    """Read a Kafka URL; `group` is the consumer group if the URL names none."""
    read = URL.read(url)
    options, client = read.options, dict(read.client_options)
    if not read.hosts or read.path.strip("/"):
        raise ConfigError(f"a Kafka URL names brokers and no path, as in {URL.example}")
    if taken := _RESERVED & client.keys():
        raise ConfigError(
            f"{min(taken)} cannot be set in the Kafka URL: deadletter sets it itself; remove it"
        )
    if read.user is not None:
        client.setdefault("security.protocol", "SASL_PLAINTEXT")
        client.setdefault("sasl.mechanism", "PLAIN")
        client |= {"sasl.username": read.user, "sasl.password": read.password or ""}
    return Address(
        bootstrap=",".join(map(str, read.hosts)),
        group=options.group or group,
        prefix=options.prefix,
        retry=_retry(options.retry),
        partitions=options.partitions,
        replication=options.replication,
        create=options.create,
        ordering=options.ordering,
        dialect=options.dialect,
        prefetch=options.prefetch,
        keep=_keep(options.keep),
        consumer=options.consumer,
        client=client,
    )


def _retry(text: str) -> str:
    if "{topic}" not in text or text == _RETRY.partition(".")[0]:
        raise ConfigError(
            f"retry in the Kafka URL must be a name with {{topic}} in it, as in {_RETRY}, got"
            f" {text!a}"
        )
    if not _TOPIC.fullmatch(text.replace("{topic}", "")):
        raise ConfigError(
            f"retry in the Kafka URL must have letters, digits and . _ - only, got {text!a}"
        )
    return text


def _keep(text: str) -> frozenset[str]:
    keep = frozenset(word for word in text.split(",") if word)
    if wrong := keep - _KEEP:
        raise ConfigError(
            f"keep={','.join(sorted(wrong))} is unknown in a Kafka URL: use partition,"
            " timestamp or both, as in ?keep=partition,timestamp"
        )
    return keep
