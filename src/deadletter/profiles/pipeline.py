"""
Pipelines of modules called over gRPC.

A module that answers "no success" is a logical failure: raise `LogicalFailure`. Modules that
are unreachable or do not answer are transient. A stream that cannot be decoded, or has been
through too many hops, becomes a dead letter.
"""

import re
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError, LogicalFailure, Malformed
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.core.failure.classify import Rule
from deadletter.core.failure.rules import GRPC, NETWORK
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.core.protobuf import bytes_of, number_of, read_fields, text_of, time_of

from .projection import taken

PIPELINE: Final = (
    Rule(id="module-said-no", trouble=Trouble.LOGICAL, types=(LogicalFailure,)),
    Rule(
        id="too-many-hops",
        trouble=Trouble.LOOP,
        code="MAX_HOPS_EXCEEDED",
        name_parts=("MaxHops", "TooManyHops", "HopLimit"),
    ),
    Rule(
        id="says-too-many-hops",
        trouble=Trouble.LOOP,
        code="MAX_HOPS_EXCEEDED",
        texts=("max hops", "maximum hops", "too many hops", "hop limit"),
    ),
    Rule(id="malformed-stream", trouble=Trouble.MALFORMED, code="MALFORMED", types=(Malformed,)),
    Rule(
        id="called-malformed",
        trouble=Trouble.MALFORMED,
        code="MALFORMED",
        names=(
            "google.protobuf.message.DecodeError",
            "InvalidPipeStream*",
            "*Malformed*",
            "ValidationError",
        ),
    ),
    Rule(
        id="module-unavailable",
        trouble=Trouble.TRANSIENT,
        code="MODULE_UNAVAILABLE",
        name_parts=("ModuleUnavailable", "ServiceUnavailable", "ServiceDiscovery"),
    ),
    Rule(
        id="module-does-not-answer",
        trouble=Trouble.TRANSIENT,
        code="MODULE_UNAVAILABLE",
        grpc=frozenset({"UNAVAILABLE"}),
    ),
    Rule(
        id="module-timeout",
        trouble=Trouble.TRANSIENT,
        code="TIMEOUT",
        grpc=frozenset({"DEADLINE_EXCEEDED"}),
    ),
    *GRPC,
    *NETWORK,
)


# The pipeline's `DlqMessage`, field by field as its protobuf has it, and the names of topics.

NOWHERE: Final = -1  # the offset of a message that has none
_DEAD: Final = "dlq."
_UNKNOWN: Final = datetime(1970, 1, 1, tzinfo=UTC)  # a time that an envelope does not tell
_PARTITION, _LETTER, _RECORD = 20, 22, 23  # fields that deadletter adds
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1


class DlqMessage(Struct, frozen=True, kw_only=True):
    """A stream that could not be processed. Its document stays in the repository."""

    stream: bytes  # 1, with a document_ref in it
    error_type: str  # 2, a code: MODULE_UNAVAILABLE, TIMEOUT …
    error_message: str  # 3
    failed_at: datetime  # 4
    retry_count: int  # 5
    failed_node_id: str  # 6
    original_topic: str  # 7
    original_offset: int = NOWHERE  # 8


class Envelope(Struct, frozen=True, kw_only=True):
    """A `DlqMessage` as read from its topic, with fields that deadletter adds."""

    message: DlqMessage  # its stream is the record that the node read
    partition: int | None = None  # of that record; None: the engine does not say
    letter_id: str = ""  # of the letter that deadletter keeps


def open_envelope(data: bytes) -> Envelope:
    """
    Read a `DlqMessage` in protobuf.

    Raises `Malformed` for other bytes, and for an envelope without error, node or stream.
    """
    fields = read_fields(data)
    record = bytes_of(fields, _RECORD) or bytes_of(fields, 1)
    error, node, at = text_of(fields, 2), text_of(fields, 6), time_of(fields, 4)
    letter_id = text_of(fields, _LETTER)
    if not ({1, _RECORD} & fields.keys() and error and node):
        raise Malformed("a DlqMessage must have stream, error_type and failed_node_id")
    message = DlqMessage(
        stream=record,
        error_type=error,
        error_message=text_of(fields, 3),
        failed_at=at or _UNKNOWN,
        retry_count=max(0, number_of(fields, 5)),
        failed_node_id=node,
        original_topic=text_of(fields, 7),
        original_offset=number_of(fields, 8),
    )
    # Zero is not on the wire: partition 0 of ours looks like the missing one of others.
    is_told = _PARTITION in fields or letter_id
    partition = number_of(fields, _PARTITION) if is_told else None
    return Envelope(message=message, partition=partition, letter_id=letter_id)


class NodeTopics(Struct, frozen=True):
    """The topics of one node."""

    input: str
    dead: str  # where its dead letters are published


class _Dlq(Struct, rename="camel"):
    topic: str = ""


class _Node(Struct, rename="camel"):
    node_id: str
    kafka_input_topic: str = ""
    dlq_config: _Dlq = msgspec.field(default_factory=_Dlq)


class _Graph(Struct, rename="camel"):
    cluster_id: str
    nodes: list[_Node] = []


def topics_in(graph: bytes) -> dict[str, NodeTopics]:
    """
    Return the topics of the nodes of a graph, in protobuf's JSON.

    Raises ConfigError if it is invalid.
    """
    try:
        read = msgspec.json.decode(graph, type=_Graph)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"the graph of the pipeline is invalid: {error}") from error
    return {node.node_id: _topics(read.cluster_id, node) for node in read.nodes}


def _topics(cluster: str, node: _Node) -> NodeTopics:
    usual = f"{cluster}.{node.node_id}"
    return NodeTopics(node.kafka_input_topic or usual, node.dlq_config.topic or f"{_DEAD}{usual}")


def input_topic(dead: str) -> str:
    """Return the input topic that `dlq.{cluster}.{node-uuid}` is named after, else nothing."""
    home = dead.removeprefix(_DEAD)
    cluster, _, node = home.rpartition(".")
    return home if home != dead and cluster and _UUID.fullmatch(node) else ""


def export(letter: DeadLetter) -> DlqMessage:
    """Return the message for the node's dead-letter topic."""
    head = letter.head
    return DlqMessage(
        stream=letter.message.body,
        error_type=head.code,
        error_message=head.error_text,
        failed_at=head.dead_at,
        retry_count=min(head.attempts, _INT32),
        failed_node_id=head.consumer,
        original_topic=head.source,
        original_offset=_offset(letter.position),
    )


def import_(message: DlqMessage, *, message_id: str | None = None, trouble: Trouble) -> DeadLetter:
    """
    Return the letter of a `DlqMessage`; a replay sends only the inner stream.

    The form has no id: without one, topic and offset identify the message.
    """
    topic, offset = message.original_topic, message.original_offset
    original = Message(
        id=message_id or f"{topic}@{offset}", body=message.stream, sent_at=message.failed_at
    )
    retried = trouble in (Trouble.TRANSIENT, Trouble.UNKNOWN)
    return taken(
        original,
        Failure(
            trouble=trouble, code=message.error_type, error_type="", text=message.error_message
        ),
        source=topic,
        reason=Reason.ATTEMPTS_EXHAUSTED if retried else Reason.FATAL_ERROR,
        attempts=message.retry_count,
        dead_at=message.failed_at,
        position=None if offset == NOWHERE else str(offset),
        consumer=message.failed_node_id,
    )


def node_of(mailbox: str) -> str:
    """
    Return the node that reads a mailbox: topics are named `{cluster}.{node-uuid}`.

    A mailbox with another name is its own node.
    """
    last = mailbox.rpartition(".")[2]
    return last if _UUID.fullmatch(last) else mailbox


def _offset(position: str | None) -> int:
    """Return the offset in a position such as `42`, `3:42` or `topic/3/42`."""
    last = (position or "").replace("/", ":").rpartition(":")[2]
    if not (last.isascii() and last.isdigit() and len(last) <= 19):
        return NOWHERE
    return min(int(last), _INT64)
