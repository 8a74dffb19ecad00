"""What SQS says of a message that it moved to a dead queue by itself."""

from typing import Final

from ..decision import Reason
from ..message import Lineage
from .found import Found, Told
from .origin import unpacked_lineage
from .values import count, millis, number, stamp

_SHOWN: Final = {
    "MessageGroupId": "group_id",
    "MessageDeduplicationId": "deduplication_id",
    "SequenceNumber": "sequence",
    "SenderId": "sender",
    "AWSTraceHeader": "AWSTraceHeader",
}


def moved_from(found: Found) -> str:
    """The queue that SQS moved it from; empty when it does not say so."""
    return found.about.get("DeadLetterQueueSourceArn", "").rpartition(":")[2]


def deduplicated(found: Found) -> Lineage | None:
    """
    Return the letter of a copy whose deduplication id says it.

    A copy in a FIFO queue says it there if it has as many attributes as SQS allows.
    """
    return unpacked_lineage(found.about.get("MessageDeduplicationId", ""))


def redriven(found: Found) -> Told | None:
    """
    The queue it came from and how often it was received; nobody wrote down why.

    A message that an application sent to the dead queue has only the fields of SQS.
    """
    if found.kind != "sqs":
        return None
    source, about = moved_from(found), found.about
    shown = {name: about.get(key, "") for key, name in _SHOWN.items()}
    if not source:
        return Told(dialect="", fields=shown)
    received_at = millis(number(about.get("ApproximateFirstReceiveTimestamp", "")))
    return Told(
        dialect="sqs",
        source=source,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        reason_text="moved by SQS: it was received too often without being deleted",
        attempts=count(about.get("ApproximateReceiveCount", "")),
        sent_at=millis(number(about.get("SentTimestamp", ""))),
        first_failed_at=received_at,
        fields={
            "source_arn": about["DeadLetterQueueSourceArn"],
            "receive_count": about.get("ApproximateReceiveCount", ""),
            "first_received_at": stamp(received_at),
            **shown,
        },
    )
