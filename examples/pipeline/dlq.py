"""
The policy of a node, and the `DlqMessage` in its dead-letter topic.

The letter itself is kept in the office before the message is published.
"""

from typing import Final

from msgspec.structs import replace

from deadletter import DLQPolicy, Linear, Trouble
from deadletter.core.brake import BrakePolicy
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.core.policy import Disposition
from deadletter.profiles import OUTAGE_BRAKE
from deadletter.profiles.pipeline import export

from .graph import PROFILE, Node
from .pipestream_pb2 import DlqMessage
from .streams import parsed

LONGEST_WAIT: Final = 86_400.0  # seconds
CONTENT_TYPE: Final = "application/x-protobuf; messageType=pipestream.DlqMessage"


class NodePolicy(DLQPolicy, frozen=True, kw_only=True):
    """The policy of the profile, with a `DlqMessage` for each dead letter."""

    def dead_copy(self, letter: DeadLetter) -> Message:
        """Return the `DlqMessage` of a letter; those of one stream share a partition."""
        envelope = envelope_of(letter)
        copy = super().dead_copy(letter)
        return replace(
            copy,
            body=envelope.SerializeToString(),
            content_type=CONTENT_TYPE,
            key=envelope.stream.stream_id or copy.key,
        )


def policy_of(node: Node) -> NodePolicy:
    """
    Return the policy of a node: tries with waits that grow linearly.

    Only a module that is unreachable or late is retried: unknown errors are dead letters.
    """
    return NodePolicy(
        max_attempts=node.dlq.tries,
        backoff=Linear(node.dlq.backoff, cap=LONGEST_WAIT),
        classifier=PROFILE.policy.classifier,
        dispositions={Trouble.UNKNOWN: Disposition.DEAD_LETTER},
        dead_queue=node.dlq.topic if node.dlq.enabled else None,
    )


def brake_of(node: Node) -> BrakePolicy | None:
    """Return the brake of a node; None, the default, publishes every stream that fails."""
    return OUTAGE_BRAKE if node.dlq.brake else PROFILE.brake


def envelope_of(letter: DeadLetter) -> DlqMessage:
    """Return the `DlqMessage` of a letter."""
    told = export(letter)
    envelope = DlqMessage(
        error_type=told.error_type,
        error_message=told.error_message,
        retry_count=told.retry_count,
        failed_node_id=told.failed_node_id,
        original_topic=told.original_topic,
        original_offset=told.original_offset,
        original_partition=_partition(letter.head.partition),
        reprocess_count=letter.head.replays,
        letter_id=letter.id,
    )
    envelope.failed_at.FromDatetime(told.failed_at)
    stream = parsed(told.stream)
    if stream is not None:
        envelope.stream.CopyFrom(stream)
    if stream is None or stream.SerializeToString() != told.stream:
        envelope.original_record = told.stream
    return envelope


def _partition(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
