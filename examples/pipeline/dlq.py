"""
A node's policy, and the `DlqMessage` that its dead-letter topic gets.

The letter itself is kept in the office first, whatever becomes of the topic.
"""

from typing import Final

from msgspec.structs import replace

from deadletter import DLQPolicy, Linear, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.core.policy import Disposition
from deadletter.profiles.pipeline import export

from .graph import PROFILE, Node
from .pipestream_pb2 import DlqMessage
from .streams import parsed

LONGEST_WAIT: Final = 86_400.0  # seconds
CONTENT_TYPE: Final = "application/x-protobuf; messageType=pipestream.DlqMessage"


class NodePolicy(DLQPolicy, frozen=True, kw_only=True):
    """The profile's policy, whose dead letters are published as `DlqMessage`."""

    def dead_copy(self, letter: DeadLetter) -> Message:
        """The envelope; those of one stream share a partition."""
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
    How a node treats failures.

    As many tries as it is told, the waits between them growing linearly. What nobody
    knows is not tried again: only a module that is away or late is.
    """
    patience = node.patience
    return NodePolicy(
        max_attempts=patience.tries,
        backoff=Linear(patience.backoff, cap=LONGEST_WAIT),
        classifier=PROFILE.policy.classifier,
        dispositions={Trouble.UNKNOWN: Disposition.DEAD_LETTER},
        dead_queue=patience.topic if patience.enabled else None,
    )


def envelope_of(letter: DeadLetter) -> DlqMessage:
    """A letter as readers of the dead-letter topic know it."""
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
    if stream is None:
        envelope.unreadable = told.stream
    else:
        envelope.stream.CopyFrom(stream)
    return envelope


def _partition(told: str) -> int:
    return int(told) if told.isascii() and told.isdigit() else 0
