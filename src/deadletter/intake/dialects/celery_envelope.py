"""
Envelopes of Celery, as kombu stores them where it imitates AMQP: on Redis, SQS and others.

An envelope is a JSON document with the body in base64. It is kept byte for byte around the
body, so that the task can go back in it.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.origin import Found, document, mapping, words

from .reading import MALFORMED


class Envelope(Struct, frozen=True, array_like=True):
    """An envelope without its body, and the priority of its queue."""

    before: bytes
    after: bytes
    priority: int = 0
    is_whole: bool = False  # the body is the envelope: it could not be opened


_pack: Final = msgspec.msgpack.Encoder().encode
unpack: Final = msgspec.msgpack.Decoder(Envelope).decode


def found_in(queue: str, envelope: bytes, priority: int) -> Found:
    """Return a task that was found in a queue, in its envelope."""
    told = mapping(document(envelope))
    properties, headers = mapping(told.get("properties")), mapping(told.get("headers"))
    opened = _opened(told, envelope)
    if opened is None:
        body, slip = envelope, Envelope(b"", b"", priority, is_whole=True)
        about = {MALFORMED: "this is not a message of Celery"}
    else:
        body, slip = opened[0], Envelope(opened[1], opened[2], priority)
        sent_to = words(mapping(properties.get("delivery_info")).get("routing_key"))
        about = {
            "delivery_tag": words(properties.get("delivery_tag")),
            # The list it lies in may be one that only dead tasks are sent to.
            "routing_key": "" if sent_to == queue else sent_to,
        }
    return Found(
        kind="celery",
        place=f"celery:{queue}",
        id=words(headers.get("id")) or _digest(envelope),
        body=body,
        headers=tuple((name, _as_bytes(value)) for name, value in headers.items()),
        about=about,
        content_type=words(told.get("content-type")) or None,
        reply_to=words(properties.get("reply_to")) or None,
        raw=_pack(slip),
        receipt=envelope,
    )


def _opened(told: dict[str, Any], envelope: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the body and what surrounds it; None if it is not an envelope."""
    sealed = told.get("body")
    encoding = mapping(told.get("properties")).get("body_encoding")
    if not isinstance(sealed, str) or encoding != "base64":
        return None
    inside = sealed.encode("utf-8", "replace")
    try:
        body = b64decode(inside, validate=True)
    except NotBase64:
        return None
    before, found, after = envelope.partition(b'"' + inside + b'"')
    # It goes back byte for byte, or as a whole.
    if not found or b64encode(body) != inside or not inside:
        return None
    return body, before + b'"', b'"' + after


def _as_bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return msgspec.json.encode(value)


def _digest(envelope: bytes) -> str:
    return f"sha256-{sha256(envelope).hexdigest()[:32]}"
