"""
Envelopes: dead letters whose body wraps the message that died.

A pipeline publishes a `DlqMessage` in protobuf to the topic `dlq.{cluster}.{node}`. The letter
has the stream inside, as the node's input topic had it: a replay sends nothing else.
"""

from typing import Final

from deadletter.core.errors import Malformed
from deadletter.core.failure import Reason, Trouble
from deadletter.core.origin import DeathReport, Found
from deadletter.profiles.pipeline import Envelope, input_topic, open_envelope

from .brokers import record

_TYPE: Final = "content-type"
_TROUBLES: Final = {
    "MAX_HOPS_EXCEEDED": Trouble.LOOP,
    "MALFORMED": Trouble.MALFORMED,
    "VALIDATION_ERROR": Trouble.MALFORMED,
    "INVALID_ARGUMENT": Trouble.PERMANENT,
    "NOT_FOUND": Trouble.PERMANENT,
}


def dlq_message(found: Found) -> DeathReport | None:
    """
    Read the `DlqMessage` of a pipeline.

    Its topic says so, or its content type, or whoever drains the topic of a node.
    """
    home = input_topic(found.place)
    if not (home or found.source or "messageType=pipestream.DlqMessage" in found.text(_TYPE)):
        return None
    try:
        envelope = open_envelope(found.body)
    except Malformed:
        return None
    return _told(found, envelope, home)


def _told(found: Found, envelope: Envelope, home: str) -> DeathReport:
    message = envelope.message
    trouble = _TROUBLES.get(message.error_type, Trouble.TRANSIENT)
    retried = trouble is Trouble.TRANSIENT
    # What the topic is called counts before what the envelope claims.
    topic = found.source or home or message.original_topic
    return record(
        "pipestream",
        topic,
        envelope.partition if topic == message.original_topic else None,
        message.original_offset,
        reason=Reason.ATTEMPTS_EXHAUSTED if retried else Reason.FATAL_ERROR,
        trouble=trouble,
        code=message.error_type,
        error_text=message.error_message,
        attempts=message.retry_count,
        dead_at=message.failed_at,
        consumer=message.failed_node_id,
        fields={"original_topic": message.original_topic},
        retold=frozenset({_TYPE}),
        drops=frozenset({_TYPE}),
        body=message.stream,
    )
