"""Dramatiq's messages: one JSON document, in the queue `<name>.XQ` when dead."""

from typing import Final

from .found import Found, Told
from .values import count, document, last_line, mapping, millis, number, raised, words

_MARKS: Final = frozenset({"queue_name", "actor_name", "message_id", "options"})


def dramatiq(found: Found) -> Told | None:
    """Actor, retries and the last traceback, out of the message's options."""
    if b'"actor_name"' not in found.body:
        return None  # not worth reading
    message = mapping(document(found.body))
    if _MARKS - message.keys():
        return None
    options = mapping(message["options"])
    stack = words(options.get("traceback"))
    error_type, error_text = raised(last_line(stack))
    return Told(
        dialect="dramatiq",
        source=words(message["queue_name"]).removesuffix(".DQ"),
        message_id=words(message["message_id"]),
        error_type=error_type,
        error_text=error_text,
        stack=stack,
        attempts=count(words(options.get("retries"))) + 1,
        sent_at=millis(number(words(message.get("message_timestamp")))),
        consumer=words(message["actor_name"]),
    )
