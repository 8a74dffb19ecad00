"""
Pipelines of modules called over gRPC.

A module that answers "no success" is a logical failure: raise `LogicalFailure`. Modules that
are unreachable or do not answer are transient. A stream that cannot be decoded, or has been
through too many hops, becomes a dead letter.
"""

import re
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.errors import LogicalFailure, Malformed
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.core.failure.classify import Rule
from deadletter.core.failure.rules import GRPC, NETWORK
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message

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


# The pipeline's `DlqMessage`, field by field as its protobuf has it.

NOWHERE: Final = -1  # the offset of a message that has none
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

    Any other name is a node by itself.
    """
    last = mailbox.rpartition(".")[2]
    return last if _UUID.fullmatch(last) else mailbox


def _offset(position: str | None) -> int:
    """Return the offset in a position such as `42`, `3:42` or `topic/3/42`."""
    last = (position or "").replace("/", ":").rpartition(":")[2]
    if not (last.isascii() and last.isdigit() and len(last) <= 19):
        return NOWHERE
    return min(int(last), _INT64)
