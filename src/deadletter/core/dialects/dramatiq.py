"""Dramatiq's messages: one JSON document, in the queue `<name>.XQ` when dead."""

from datetime import datetime
from typing import Any, Final

from .found import Found, Told
from .values import (
    count,
    document,
    last_line,
    mapping,
    millis,
    number,
    raised,
    shown,
    words,
)

RUNS: Final = "runs"
"""Under this name a drain adds the options that Dramatiq has changed since sending."""

_MARKS: Final = frozenset({"queue_name", "actor_name", "message_id", "options"})


def dramatiq(found: Found) -> Told | None:
    """Actor, arguments, retries and the last traceback, out of the options."""
    if b'"actor_name"' not in found.body:
        return None  # not worth reading
    message = mapping(document(found.body))
    if _MARKS - message.keys():
        return None
    runs = document(found.about.get(RUNS, "").encode("utf-8", "replace"))
    options = mapping(message["options"]) | mapping(runs)
    stack = words(options.get("traceback"))
    error_type, error_text = raised(last_line(stack))
    actor = words(message["actor_name"])
    retries = words(options.get("retries"))
    return Told(
        dialect="dramatiq",
        source=words(message["queue_name"]).removesuffix(".DQ"),
        message_id=words(message["message_id"]),
        error_type=error_type,
        error_text=error_text,
        stack=stack,
        # Without retries it may have run once, or never: too old, or not wanted.
        attempts=count(retries) + 1 if retries else 0,
        sent_at=millis(number(words(message.get("message_timestamp")))),
        expires_at=_expiry(message, options),
        consumer=actor,
        task=actor,
        fields={
            "actor": actor,
            "args": shown(message.get("args")),
            "kwargs": shown(message.get("kwargs")),
        },
    )


def _expiry(message: dict[str, Any], options: dict[str, Any]) -> datetime | None:
    """Return when `max_age` is over: then workers refuse to run the message."""
    sent, age = number(words(message.get("message_timestamp"))), options.get("max_age")
    if sent is None or not isinstance(age, int | float) or not 0 < age < 10**15:
        return None
    return millis(sent + int(age))
