"""What SQS says of a message that it moved to a dead queue by itself."""

from ..decision import Reason
from .found import Found, Told
from .values import count, millis, number


def redriven(found: Found) -> Told | None:
    """The queue it came from and how often it was received; nobody wrote down why."""
    arn = found.about.get("DeadLetterQueueSourceArn", "")
    if not arn:
        return None
    about = found.about
    return Told(
        dialect="sqs",
        source=arn.rpartition(":")[2],
        reason=Reason.ATTEMPTS_EXHAUSTED,
        reason_text="moved by SQS: it was received too often without being deleted",
        attempts=count(about.get("ApproximateReceiveCount", "")),
        sent_at=millis(number(about.get("SentTimestamp", ""))),
        first_failed_at=millis(
            number(about.get("ApproximateFirstReceiveTimestamp", ""))
        ),
    )
