"""What SQS says of a message that it moved to a dead queue by itself."""

from ..decision import Reason
from .found import Found, Told
from .values import count, millis, number


def moved_from(found: Found) -> str:
    """The queue that SQS moved it from; empty when it does not say so."""
    return found.about.get("DeadLetterQueueSourceArn", "").rpartition(":")[2]


def redriven(found: Found) -> Told | None:
    """The queue it came from and how often it was received; nobody wrote down why."""
    source = moved_from(found)
    if not source:
        return None
    about = found.about
    return Told(
        dialect="sqs",
        source=source,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        reason_text="moved by SQS: it was received too often without being deleted",
        attempts=count(about.get("ApproximateReceiveCount", "")),
        sent_at=millis(number(about.get("SentTimestamp", ""))),
        first_failed_at=millis(
            number(about.get("ApproximateFirstReceiveTimestamp", ""))
        ),
    )
