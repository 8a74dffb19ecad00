"""
Jobs that failed in place: RQ's failed registry, BullMQ's failed set.

Whoever drains hands over the job's own fields as what the engine says of it. What
a job would run (a pickle, for RQ) is bytes here and stays bytes.
"""

import re
from typing import Final

import msgspec

from ..attempts import Attempt, read
from .found import Found, Told
from .values import (
    count,
    document,
    last_line,
    mapping,
    millis,
    moment,
    number,
    raised,
    stamp,
    words,
)

_LONGEST_STORY: Final = 512 * 1024  # characters; no worker of ours writes more
_CALL: Final = re.compile(r"([A-Za-z_][\w.]*)\(")  # as RQ describes a job


def rq(found: Found) -> Told | None:
    """RQ: description, times, and the traceback of the last run."""
    if found.kind != "rq":
        return None
    about = found.about
    stack = about.get("exc_info", "")
    error_type, error_text = raised(last_line(stack))
    ended = moment(about.get("ended_at", ""))
    description = about.get("description", "")
    call = _CALL.match(description)
    function = call[1] if call else ""
    worker = about.get("worker_name", "")
    retried = about.get("number_of_retries", "")
    queued = ("enqueued_at", "timeout", "retries_left", "group_id", "dependency_ids")
    return Told(
        dialect="rq",
        source=found.source,
        message_id=found.id,
        reason_text=description,
        error_type=error_type,
        error_text=error_text,
        stack=stack,
        # RQ counts down what is left of the retries, and not what was there.
        attempts=0 if about.get("retries_left") else count(retried) + 1,
        sent_at=moment(about.get("created_at", "")),
        first_failed_at=ended,
        dead_at=ended,
        consumer=function or worker,
        task=function,
        fields={
            "function": function,
            "call": description,
            "worker": worker,
            **{name: about.get(name, "") for name in queued},
        },
    )


def bullmq(found: Found) -> Told | None:
    """
    BullMQ: the reason, the last stack, and how often it was tried.

    A job that a worker of ours gave up has the whole story: it is the same death as
    the letter that was kept then, and changes nothing there.
    """
    if found.kind != "bullmq":
        return None
    about = found.about
    history, last = _story(about.get("dlq:story", ""))
    is_whole = last is not None and "dlq:fate" in about
    stacks = document(about.get("stacktrace", "").encode("utf-8", "replace"))
    stack = words(stacks[-1]) if isinstance(stacks, list) and stacks else ""
    error_type, _ = raised(stack.partition("\n")[0])
    error_text = about.get("failedReason", "")
    # Version 5 made the names shorter.
    attempts = count(about.get("atm", "") or about.get("attemptsMade", ""))
    dead_at = millis(number(about.get("finishedOn", "")))
    if last is not None and is_whole:
        error_type, error_text, stack = last.error_type, last.text, last.stack
        attempts, dead_at = last.number, last.at
    return Told(
        dialect="bullmq",
        source=found.source,
        message_id=found.id,
        trouble=last.trouble if last is not None and is_whole else None,
        error_type=error_type or "Error",
        error_text=error_text,
        stack=stack,
        attempts=attempts,
        sent_at=millis(number(about.get("timestamp", ""))),
        dead_at=dead_at,
        consumer=about.get("name", ""),
        history=history,
        is_told_whole=is_whole,
        task=about.get("name", ""),
        fields=_job_fields(about),
    )


def _job_fields(about: dict[str, str]) -> dict[str, str]:
    """Return what BullMQ says of a job, under names that people know from its docs."""
    options = mapping(document(about.get("opts", "").encode("utf-8", "replace")))
    return {
        "job": about.get("name", ""),
        "attempts_made": about.get("atm", "") or about.get("attemptsMade", ""),
        "attempts_started": about.get("ats", ""),
        "max_attempts": words(options.get("attempts")),
        "stalled": about.get("stc", ""),
        "progress": _unless_zero(about.get("progress", "")),
        "priority": _unless_zero(about.get("priority", "")),
        "delay": _unless_zero(about.get("delay", "")),
        "processed_at": stamp(millis(number(about.get("processedOn", "")))),
        "processed_by": about.get("pb", ""),
        "parent": about.get("parentKey", ""),
        "scheduler": about.get("rjk", ""),
        "deduplication_id": about.get("deid", ""),
    }


def _unless_zero(text: str) -> str:
    return "" if text == "0" else text


def _story(text: str) -> tuple[str, Attempt | None]:
    """A story of ours and its last attempt; nothing if that is not what it is."""
    if len(text) > _LONGEST_STORY:
        return "", None
    try:
        attempts = read(text)
    except (msgspec.MsgspecError, UnicodeError):
        return "", None
    return (text, attempts[-1]) if attempts else ("", None)
