"""
Messages with odd text, for engines that carry Unicode only.

Applications cannot send lone surrogates, but letters of foreign brokers may hold
them, and are replayed like any other. Their texts travel escaped, marked by a header
that is gone when they are received.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from .escaping import shown, stored
from .message import Message

ESCAPED: Final = "dlq-escaped"


def escaped(message: Message) -> Message:
    """Return the message with every text escaped, and marked so."""
    changed = _changed(message, stored)
    return replace(changed, headers=(*changed.headers, (ESCAPED, b"1")))


def as_unicode(message: Message) -> Message:
    """Return the message as it is if all its texts are Unicode, else escaped."""
    texts = (
        *(message.id, message.content_type, message.key, message.reply_to),
        *(message.idempotency_key, message.traceparent, message.tracestate),
        *(name for name, _ in message.headers),
    )
    try:
        "".join(text for text in texts if text).encode()
    except UnicodeEncodeError:
        return escaped(message)
    return message


def restored(message: Message) -> Message:
    """Return the message as it was, if it is one that was escaped."""
    headers = message.headers
    if not headers or headers[-1][0] != ESCAPED:
        return message
    return _changed(replace(message, headers=headers[:-1]), shown)


def _changed(message: Message, change: Callable[[Any], Any]) -> Message:
    """Return the message with `change` applied to each of its texts."""
    lineage = message.lineage
    return replace(
        message,
        id=change(message.id),
        headers=tuple((change(name), value) for name, value in message.headers),
        content_type=change(message.content_type),
        key=change(message.key),
        reply_to=change(message.reply_to),
        idempotency_key=change(message.idempotency_key),
        traceparent=change(message.traceparent),
        tracestate=change(message.tracestate),
        lineage=lineage
        and replace(
            lineage,
            letter_id=change(lineage.letter_id),
            campaign=change(lineage.campaign),
        ),
    )
