"""
Jobs that failed in place: RQ's failed registry, BullMQ's failed set.

Whoever drains hands over the job's own fields as what the engine says of it. What
a job would run (a pickle, for RQ) is bytes here and stays bytes.
"""

from .found import Found, Told
from .values import (
    count,
    document,
    last_line,
    millis,
    moment,
    number,
    raised,
    words,
)


def rq(found: Found) -> Told | None:
    """RQ: description, times, and the traceback of the last run."""
    if found.kind != "rq":
        return None
    about = found.about
    stack = about.get("exc_info", "")
    error_type, error_text = raised(last_line(stack))
    ended = moment(about.get("ended_at", ""))
    return Told(
        dialect="rq",
        source=found.source,
        message_id=found.id,
        reason_text=about.get("description", ""),
        error_type=error_type,
        error_text=error_text,
        stack=stack,
        attempts=count(about.get("number_of_retries", "")) + 1,
        sent_at=moment(about.get("created_at", "")),
        first_failed_at=ended,
        dead_at=ended,
        consumer=about.get("worker_name", ""),
    )


def bullmq(found: Found) -> Told | None:
    """BullMQ: the reason, the last stack, and how often it was tried."""
    if found.kind != "bullmq":
        return None
    about = found.about
    stacks = document(about.get("stacktrace", "").encode("utf-8", "replace"))
    stack = words(stacks[-1]) if isinstance(stacks, list) and stacks else ""
    error_type, _ = raised(stack.partition("\n")[0])
    return Told(
        dialect="bullmq",
        source=found.source,
        message_id=found.id,
        error_type=error_type or "Error",
        error_text=about.get("failedReason", ""),
        stack=stack,
        # Version 5 made the names shorter.
        attempts=count(about.get("atm", "") or about.get("attemptsMade", "")),
        sent_at=millis(number(about.get("timestamp", ""))),
        dead_at=millis(number(about.get("finishedOn", ""))),
        consumer=about.get("name", ""),
    )
