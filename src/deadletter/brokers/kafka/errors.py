"""Errors of the Kafka client as errors of deadletter."""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from deadletter.core.errors import ConfigError, DeadLetterError, NotFound, Refused
from deadletter.kit import ErrorKey, ErrorRow, ErrorTable, NoAnswer, error_text

# Codes of the client library itself begin with an underscore; they are public.
# ruff: noqa: SLF001
PARTITION_EOF: Final = KafkaError._PARTITION_EOF

_NO_TOPIC: Final = "there is no such topic: create it, or leave create=false out of the URL"
_LOGIN: Final = (
    "the broker rejected our login: put the right user and password into the URL, as in"
    " kafka://user:password@host:9092"
)
_TLS: Final = (
    "the TLS handshake with the broker failed: give the certificate of its authority as"
    " ?ssl.ca.location=, and ours as ssl.certificate.location and ssl.key.location if"
    " the broker asks for one"
)
_OTHER: Final = ""  # any other code is taken as temporary
_HINT: Final = "Check security.protocol, and that its advertised.listeners can be reached."
_ROWS: Final[dict[ErrorKey, ErrorRow]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        Refused,
        "the record is larger than its topic allows: raise max.message.bytes there",
    ),
    KafkaError.INVALID_MSG: (Refused, "the broker rejected the record"),
    KafkaError.INVALID_RECORD: (Refused, "the broker rejected the record"),
    KafkaError.INVALID_TIMESTAMP: (Refused, "the broker rejected the record's timestamp"),
    KafkaError.POLICY_VIOLATION: (Refused, "a policy of the broker forbids it"),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (NotFound, _NO_TOPIC),
    KafkaError._UNKNOWN_TOPIC: (NotFound, _NO_TOPIC),
    KafkaError._UNKNOWN_PARTITION: (NotFound, "there is no such partition"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        ConfigError,
        "our user may not use this topic: allow it READ, WRITE, CREATE and DESCRIBE",
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        ConfigError,
        "our user may not use this consumer group: allow it READ, or change ?group=",
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        ConfigError,
        "our user may not do this on the cluster: allow it CREATE and IDEMPOTENT_WRITE",
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: (ConfigError, _LOGIN),
    KafkaError._AUTHENTICATION: (ConfigError, _LOGIN),
    KafkaError._INVALID_ARG: (ConfigError, "the Kafka URL has an invalid setting"),
    KafkaError.TOPIC_EXCEPTION: (ConfigError, "this is not a valid name of a topic"),
    KafkaError.INVALID_REPLICATION_FACTOR: (
        ConfigError,
        "the cluster has fewer brokers: give the URL a smaller replication",
    ),
    KafkaError.INVALID_PARTITIONS: (ConfigError, "this number of partitions is invalid"),
    KafkaError.OFFSET_METADATA_TOO_LARGE: (
        ConfigError,
        "our offset notes do not fit: set the broker's offset.metadata.max.bytes to 4096 or more",
    ),
    _OTHER: (NoAnswer, "Kafka is unavailable"),
    KafkaException: (NoAnswer, "Kafka is unavailable"),
    TimeoutError: (NoAnswer, "Kafka is unavailable"),
}
_FAILED_LOGIN: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
)
_NO_BROKER: Final = KafkaError._ALL_BROKERS_DOWN
UNREACHABLE: Final = frozenset({_NO_BROKER, KafkaError._TRANSPORT, KafkaError._RESOLVE})
# Leaders or coordinators are being elected: a new topic, a broker that came or went.
ELECTING: Final = frozenset(
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
# The group rebalances. A partition stays ours until it is revoked, so requests are
# repeated until then.
REBALANCING: Final = frozenset(
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


def kafka_error(error: BaseException) -> KafkaError | None:
    """Return the client library's error inside an exception; None if there is none."""
    if isinstance(error, KafkaException) and error.args:
        inner = error.args[0]
        return inner if isinstance(inner, KafkaError) else None
    return None


def _codes(error: Exception) -> Sequence[int | str]:
    inner = kafka_error(error)
    return () if inner is None else (inner.code(), _OTHER)


def _text(error: BaseException) -> str:
    inner = kafka_error(error)
    return error_text(error) if inner is None else inner.str()


ERRORS: Final = ErrorTable("Kafka", _ROWS, codes=_codes, text=_text)
translated: Final = ERRORS.translate
translating: Final = ERRORS.translated


def has_code(error: Exception, codes: frozenset[int]) -> bool:
    """Tell whether an exception carries one of these codes of the client library."""
    inner = kafka_error(error)
    return inner is not None and inner.code() in codes


def internal_error(error: Exception) -> KafkaError:
    """Return an unexpected exception as an error of the client library."""
    return KafkaError(KafkaError._FAIL, f"{type(error).__name__}: {error}")


def from_code(error: KafkaError, what: str) -> DeadLetterError:
    """Return our error for a failed operation, `what`."""
    return ERRORS.translate_answer((error.code(), _OTHER), error.str(), what)


def at_start(
    error: Exception, bootstrap: str, reported: Sequence[KafkaError] = ()
) -> DeadLetterError:
    """
    Return our error for a failed first connection.

    The errors that the client `reported` before it gave up name the cause.
    """
    what = f"opening kafka://{bootstrap}"
    for one in reported:
        if one.code() in _FAILED_LOGIN:
            return from_code(one, what)
        # A late TLS alert is reported as a broken transport.
        if one.code() == KafkaError._SSL or "SSL alert" in one.str():
            return ConfigError(f"{what}: {_TLS} ({one.str()})")
    causes = [one for one in reported if one.code() != _NO_BROKER]
    if causes and isinstance(translated(error), NoAnswer):
        error = KafkaException(causes[0])
    return ERRORS.translate_opening(error, bootstrap, _HINT)
