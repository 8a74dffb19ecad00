"""
Messages with odd text, for engines that carry Unicode only.

Applications cannot send lone surrogates, but letters of foreign brokers may hold
them, and are replayed like any other. Their texts travel escaped, marked by a header
that is gone when they are received.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from .escaping import shown, stored
from .message import Headers, Lineage, Message

ESCAPED: Final = "dlq-escaped"


def escaped(message: Message) -> Message:
    """Return the message with every text escaped, and marked so."""
    headers = tuple((stored(name), value) for name, value in message.headers)
    return replace(
        message,
        id=stored(message.id),
        headers=(*headers, (ESCAPED, b"1")),
        content_type=stored(message.content_type),
        key=stored(message.key),
        reply_to=stored(message.reply_to),
        idempotency_key=stored(message.idempotency_key),
        traceparent=stored(message.traceparent),
        tracestate=stored(message.tracestate),
        lineage=_changed(stored, message.lineage),
    )


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
    return replace(
        message,
        id=shown(message.id),
        headers=_names(headers[:-1]),
        content_type=shown(message.content_type),
        key=shown(message.key),
        reply_to=shown(message.reply_to),
        idempotency_key=shown(message.idempotency_key),
        traceparent=shown(message.traceparent),
        tracestate=shown(message.tracestate),
        lineage=_changed(shown, message.lineage),
    )


def _changed(change: Callable[[str], str], lineage: Lineage | None) -> Lineage | None:
    if lineage is None:
        return None
    return replace(
        lineage,
        letter_id=change(lineage.letter_id),
        campaign=change(lineage.campaign),
    )


def _names(headers: Headers) -> Headers:
    return tuple((shown(name), value) for name, value in headers)
