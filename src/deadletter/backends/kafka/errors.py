"""What the client library raises, in our words."""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    NotFound,
    Refused,
    Unavailable,
)

# What the library itself finds, it names with an underscore: these names are public.
# ruff: noqa: SLF001
PARTITION_EOF: Final = KafkaError._PARTITION_EOF

_NO_TOPIC: Final = (
    "there is no such topic: create it, or leave create=false out of the URL"
)
_NO_ENTRY: Final = (
    "the broker refuses us: put the right user and password into the URL, as in"
    " kafka://user:password@host:9092"
)
_NO_TLS: Final = (
    "the broker and we do not agree on TLS: give its authority's certificate as"
    " ?ssl.ca.location=, and ours as ssl.certificate.location and ssl.key.location if"
    " it wants one"
)
_NO_GROUP: Final = (
    "our user may not use this consumer group: allow it READ, or name another group"
    " in the URL"
)
_NO_ROOM: Final = (
    "the notes beside our offsets do not fit: set the broker's"
    " offset.metadata.max.bytes to 4096 or more"
)
# By the code; what is not here is taken to pass by itself.
_TABLE: Final[dict[int, tuple[type[DeadLetterError], str]]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        Refused,
        "the record is larger than its topic allows: raise max.message.bytes there",
    ),
    KafkaError.INVALID_MSG: (Refused, "the broker refuses the record"),
    KafkaError.INVALID_RECORD: (Refused, "the broker refuses the record"),
    KafkaError.INVALID_TIMESTAMP: (Refused, "the broker refuses the record's time"),
    KafkaError.POLICY_VIOLATION: (Refused, "a policy of the broker forbids it"),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (NotFound, _NO_TOPIC),
    KafkaError._UNKNOWN_TOPIC: (NotFound, _NO_TOPIC),
    KafkaError._UNKNOWN_PARTITION: (NotFound, "there is no such partition"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        ConfigError,
        "our user may not use this topic: allow it READ, WRITE, CREATE and DESCRIBE",
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (ConfigError, _NO_GROUP),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        ConfigError,
        "our user may not do this on the cluster: allow it CREATE and IDEMPOTENT_WRITE",
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: (ConfigError, _NO_ENTRY),
    KafkaError._AUTHENTICATION: (ConfigError, _NO_ENTRY),
    KafkaError._INVALID_ARG: (ConfigError, "the Kafka URL has a wrong setting"),
    KafkaError.TOPIC_EXCEPTION: (ConfigError, "this cannot be a topic's name"),
    KafkaError.INVALID_REPLICATION_FACTOR: (
        ConfigError,
        "there are not so many brokers: give the URL a smaller replication",
    ),
    KafkaError.INVALID_PARTITIONS: (ConfigError, "not a number of partitions"),
    KafkaError.OFFSET_METADATA_TOO_LARGE: (ConfigError, _NO_ROOM),
}
# Said while we connect, these are the reason why nobody answers.
_TELLING: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
)
_EMPTY: Final = frozenset({KafkaError._ALL_BROKERS_DOWN})
AWAY: Final = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE}
)
# Leaders are being found: a new topic, a broker that came or went.
UNSETTLED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
# The group moved on while we were asking. Whether a partition is still ours is told
# by its being taken from us, so these are asked again until then.
MOVED_ON: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._WAIT_COORD,
        KafkaError._STATE,
    }
)


def kafka_error(error: Exception) -> KafkaError | None:
    """What the client library says is wrong, if it is the one that says so."""
    if isinstance(error, KafkaException) and error.args:
        inner = error.args[0]
        return inner if isinstance(inner, KafkaError) else None
    return None


def broken(error: Exception) -> KafkaError:
    """Something that went wrong elsewhere, as if the library had said so."""
    return KafkaError(KafkaError._FAIL, f"{type(error).__name__}: {error}")


def in_our_words(error: KafkaError, what: str) -> DeadLetterError:
    """The error of doing `what`."""
    kind, words = _TABLE.get(error.code(), (Unavailable, "Kafka cannot do this now"))
    return kind(f"{what}: {words} ({error.str()})")


def translated(error: Exception, what: str) -> DeadLetterError:
    """The same of what was raised; what is not the library's is raised as it is."""
    inner = kafka_error(error)
    if inner is not None:
        return in_our_words(inner, what)
    if isinstance(error, KafkaException | TimeoutError):
        return Unavailable(f"{what}: Kafka cannot do this now ({error})")
    raise error


def at_start(
    error: Exception, bootstrap: str, heard: Sequence[KafkaError] = ()
) -> DeadLetterError:
    """The error of the first call, and what was heard before: mostly wrong settings."""
    what = f"opening kafka://{bootstrap}"
    for said in heard:
        if said.code() in _TELLING:
            return in_our_words(said, what)
        # An alert that comes late is told as a transport that broke.
        if said.code() == KafkaError._SSL or "SSL alert" in said.str():
            return ConfigError(f"{what}: {_NO_TLS} ({said.str()})")
    ours = translated(error, what)
    if isinstance(ours, Unavailable):
        reasons = [one.str() for one in heard if one.code() not in _EMPTY]
        return Unavailable(
            f"no answer from kafka://{bootstrap}: is the broker running, is the URL"
            " right (security.protocol, too), and can its advertised.listeners be"
            f" reached from here? ({reasons[0] if reasons else error})"
        )
    return ours
