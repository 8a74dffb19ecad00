"""Dialects of frameworks: Celery, Dramatiq, RQ, BullMQ, and those of .NET."""

import re
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from deadletter.core.attempts import Attempt, read
from deadletter.core.origin import (
    DeathReport,
    Found,
    count,
    document,
    last_line,
    mapping,
    millis,
    moment,
    named,
    number,
    raised,
    shown,
    stamp,
    words,
)

from .brokers import record

RESULT: Final = "result"
"""Name under which a drain adds the stored result, as JSON"""

STORY: Final = "dlq:story"
"""Name under which earlier attempts are added, where it is known that we wrote them"""

RETRIES: Final = "dlq:retries"
"""Name under which the retries are added of a task that is to count them anew"""

CAUGHT: Final = "dlq:caught"
"""Name under which the worker of a framework that saw a task fail says so"""

ERROR_TYPE: Final = "dlq:error-type"
ERROR_TEXT: Final = "dlq:error-text"
"""Names under which it adds the error, which may have more lines than a stack shows"""

_MARKS: Final = ("task", "id", "root_id")
_FAILED: Final = frozenset({"FAILURE", "RETRY", "REVOKED"})
_SHOWN: Final = ("root_id", "parent_id", "group", "eta", "expires", "origin")


def celery(found: Found) -> DeathReport | None:
    """
    Task, arguments, retries; the error if the result backend has told it.

    All headers are Celery's own and go back with it.
    """
    if not all(found.value(name) for name in _MARKS):
        return None
    task = found.text("task")
    result = _failure(found)
    error = mapping(result.get("result"))
    about = found.about
    return DeathReport(
        dialect="celery",
        source=found.source or about.get("routing_key", ""),
        message_id=found.text("id"),
        reason_text=about.get(CAUGHT, ""),
        error_type=words(error.get("exc_type")),
        error_text=_text(error.get("exc_message")),
        stack=words(result.get("traceback")),
        attempts=_attempts(found, is_run=bool(result)),
        dead_at=moment(words(result.get("date_done"))),
        expires_at=moment(found.text("expires")),
        consumer=task,
        task=task,
        history=_story(about.get(STORY, ""))[0],
        delivery=about.get("delivery_tag", ""),
        fields={"task": task, **_arguments(found), **_others(found)},
    )


def _failure(found: Found) -> dict[str, Any]:
    result = mapping(document(found.about.get(RESULT, "").encode("utf-8", "replace")))
    return result if result.get("status") in _FAILED else {}


def _text(message: object) -> str:
    """Return an exception's arguments as Celery stores them, as one text."""
    if isinstance(message, list):
        return message[0] if len(message) == 1 and words(message[0]) else shown(message)
    return words(message)


def _attempts(found: Found, *, is_run: bool) -> int:
    retries = found.about.get(RETRIES, "") or found.text("retries")
    # A list on Redis may hold tasks that no worker has ever taken.
    is_known = is_run or found.kind != "celery" or count(retries) > 0
    return count(retries) + 1 if retries and is_known else 0


def _arguments(found: Found) -> dict[str, str]:
    body = document(found.body)
    if isinstance(body, list) and len(body) == 3:  # args, kwargs, and callbacks
        return {"args": shown(body[0]), "kwargs": shown(body[1])}
    return {"args": found.text("argsrepr"), "kwargs": found.text("kwargsrepr")}


def _others(found: Found) -> dict[str, str]:
    said = {name: found.text(name) for name in _SHOWN}
    id_ = found.text("id")
    return {k: v for k, v in said.items() if v not in ("", "null", id_)}


# Dramatiq's messages: one JSON document, in the queue `<name>.XQ` when dead.

RUNS: Final = "runs"
"""Name under which a drain adds the options that Dramatiq has changed since sending"""

_DRAMATIQ_MARKS: Final = frozenset({"queue_name", "actor_name", "message_id", "options"})


def dramatiq(found: Found) -> DeathReport | None:
    """Read actor, arguments, retries and the last traceback from the options."""
    if b'"actor_name"' not in found.body:
        return None  # not worth reading
    message = mapping(document(found.body))
    if _DRAMATIQ_MARKS - message.keys():
        return None
    runs = document(found.about.get(RUNS, "").encode("utf-8", "replace"))
    options = mapping(message["options"]) | mapping(runs)
    stack = words(options.get("traceback"))
    error_type, error_text = _raised(found, stack)
    actor = words(message["actor_name"])
    retries = words(options.get("retries"))
    return DeathReport(
        dialect="dramatiq",
        source=words(message["queue_name"]).removesuffix(".DQ"),
        message_id=words(message["message_id"]),
        reason_text=found.about.get(CAUGHT, ""),
        error_type=error_type,
        error_text=error_text,
        stack=stack,
        # Without retries it may have run once, or never: too old, or not wanted.
        attempts=count(retries) + 1 if retries else 0,
        sent_at=millis(number(words(message.get("message_timestamp")))),
        expires_at=_expiry(message, options),
        consumer=actor,
        task=actor,
        history=_story(found.about.get(STORY, ""))[0],
        fields={
            "actor": actor,
            "args": shown(message.get("args")),
            "kwargs": shown(message.get("kwargs")),
        },
    )


def _raised(found: Found, stack: str) -> tuple[str, str]:
    """Return the error, as whoever saw it was raised has told, or by its stack."""
    if error_type := found.about.get(ERROR_TYPE, ""):
        return error_type, found.about.get(ERROR_TEXT, "")
    return raised(last_line(stack))


def _expiry(message: dict[str, Any], options: dict[str, Any]) -> datetime | None:
    """Return when `max_age` is over: then workers refuse to run the message."""
    sent, age = number(words(message.get("message_timestamp"))), options.get("max_age")
    if sent is None or not isinstance(age, int | float) or not 0 < age < 10**15:
        return None
    return millis(sent + int(age))


# Jobs that failed in place: RQ's failed registry, BullMQ's failed set.
# Whoever drains hands over the job's own fields as what the engine says of it. What
# a job would run (a pickle, for RQ) is bytes here and stays bytes.

_LONGEST_STORY: Final = 512 * 1024  # characters; no worker of ours writes more
_CALL: Final = re.compile(r"([A-Za-z_][\w.]*)\(")  # as RQ describes a job


def rq(found: Found) -> DeathReport | None:
    """Read RQ's description, times, and the traceback of the last run."""
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
    return DeathReport(
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
        history=_story(about.get(STORY, ""))[0],
        fields={
            "function": function,
            "call": description,
            "worker": worker,
            **{name: about.get(name, "") for name in queued},
        },
    )


def bullmq(found: Found) -> DeathReport | None:
    """
    BullMQ: the reason, the last stack, and how often it was tried.

    A job that a worker of ours gave up has the whole story: it is the same death as
    the letter that was kept then, and changes nothing there.
    """
    if found.kind != "bullmq":
        return None
    about = found.about
    history, last = _story(about.get(STORY, ""))
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
    return DeathReport(
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
    """Return our own history and its last attempt; nothing if it is not ours."""
    if len(text) > _LONGEST_STORY:
        return "", None
    try:
        attempts = read(text)
    except (msgspec.MsgspecError, UnicodeError):
        return "", None
    return (text, attempts[-1]) if attempts else ("", None)


# Dialects of .NET: MassTransit, NServiceBus and Wolverine.

_FAULT: Final = "MT-Fault-"
_BUS: Final = "NServiceBus."
_WOLVERINE: Final = frozenset(
    {
        *("exception-type", "exception-message", "exception-stack", "failed-at"),
        *("original-destination", "original-partition", "original-offset", "attempts"),
    }
)


def masstransit(found: Found) -> DeathReport | None:
    """Read MassTransit's `MT-Fault-*`, in the queue `<name>_error` or `<name>_skipped`."""
    names = named(found.headers, _FAULT, "MT-Reason")
    if not names:
        return None
    text = found.text
    address = text(f"{_FAULT}InputAddress").partition("?")[0]
    retries = text(f"{_FAULT}RetryCount")
    return DeathReport(
        dialect="masstransit",
        source=unquote(address.rpartition("/")[2]) or _endpoint(found.place),
        reason_text=text("MT-Reason"),
        error_type=text(f"{_FAULT}ExceptionType"),
        error_text=text(f"{_FAULT}Message"),
        stack=text(f"{_FAULT}StackTrace"),
        attempts=count(retries) + 1 if retries else 0,
        dead_at=moment(text(f"{_FAULT}Timestamp")),
        consumer=text(f"{_FAULT}ConsumerType"),
        fields={
            "input_address": text(f"{_FAULT}InputAddress"),
            "consumer_type": text(f"{_FAULT}ConsumerType"),
            "message_type": text(f"{_FAULT}MessageType"),
            "reason": text("MT-Reason"),
            "retries": retries,
        },
        retold=names
        & {
            *(f"{_FAULT}{n}" for n in ("InputAddress", "ConsumerType", "MessageType")),
            *("MT-Reason", f"{_FAULT}RetryCount"),
        },
        drops=names,
    )


def nservicebus(found: Found) -> DeathReport | None:
    """Read NServiceBus' `FailedQ` and `ExceptionInfo`; the latter is not sent back."""
    info = f"{_BUS}ExceptionInfo."
    names = named(found.headers, info)
    text = found.text
    failed_queue = text(f"{_BUS}FailedQ")
    if not names and not failed_queue:
        return None
    retries = text(f"{_BUS}Retries")
    return DeathReport(
        dialect="nservicebus",
        source=failed_queue.partition("@")[0],
        message_id=text(f"{_BUS}MessageId"),
        error_type=text(f"{info}ExceptionType"),
        error_text=text(f"{info}Message"),
        stack=text(f"{info}StackTrace"),
        attempts=count(retries) + 1 if retries else 0,
        dead_at=moment(text(f"{_BUS}TimeOfFailure")),
        consumer=text(f"{_BUS}ProcessingEndpoint"),
        fields={
            "failed_queue": failed_queue,
            "endpoint": text(f"{_BUS}ProcessingEndpoint"),
            "exception": text(f"{info}ExceptionType"),
            "cause": text(f"{info}InnerExceptionType"),
            "retries": retries,
        },
        retold=frozenset(
            {
                *(f"{_BUS}FailedQ", f"{_BUS}Retries", f"{info}ExceptionType"),
                f"{info}InnerExceptionType",
            }
        ),
        drops=names | {f"{_BUS}{name}" for name in ("FailedQ", "TimeOfFailure", "Retries")},
    )


def wolverine(found: Found) -> DeathReport | None:
    """
    Wolverine's `exception-*` and `failed-at`, the same on every transport.

    Its count of attempts is not sent back: it would go on counting.
    """
    text = found.text
    if not text("exception-type") or not text("failed-at"):
        return None  # names that anybody may use: only together they are its own
    address = text("original-destination").partition("?")[0]
    return record(
        "wolverine",
        unquote(address.rstrip("/").rpartition("/")[2]),
        number(text("original-partition")),
        number(text("original-offset")),
        error_type=text("exception-type"),
        error_text=text("exception-message"),
        stack=text("exception-stack"),
        attempts=count(text("attempts")),
        dead_at=millis(number(text("failed-at"))),
        fields={"destination": text("original-destination")},
        retold=frozenset({"original-destination", "original-partition", "original-offset"}),
        drops=_WOLVERINE,
    )


def _endpoint(place: str) -> str:
    for ending in ("_error", "_skipped"):
        if place.endswith(ending):
            return place.removesuffix(ending)
    return ""
