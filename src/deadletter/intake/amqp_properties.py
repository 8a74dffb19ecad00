"""
Properties of messages on RabbitMQ: as they came, and as they go back.

They are kept as they travel, without what is about the death or would make the
broker send a copy elsewhere.
"""

from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import msgspec
from pamqp.commands import Basic
from pamqp.exceptions import PAMQPException
from pamqp.header import ContentHeader

from deadletter.core.dialects import lineage_headers, origin_of, unmarked
from deadletter.core.message import Message

_FIXED: Final = 12  # bytes of a content header before its properties
_UNREADABLE: Final = (PAMQPException, ValueError, LookupError, OverflowError)
_DEATH: Final = (
    *("x-death", "x-opt-deaths", "x-first-death-", "x-last-death-"),
    "x-delivery-count",
)
_LEADS_AWAY: Final = frozenset({"CC", "BCC"})
_ABOUT_DELIVERY: Final = frozenset({"x-delivery-count", "x-acquired-count"})


def read(header: bytes) -> Basic.Properties | None:
    """The properties in a content header; None when there is no reading them."""
    found = ContentHeader()
    try:
        found.unmarshal(header)
    except _UNREADABLE:
        return None
    return found.properties


def kept(properties: Basic.Properties) -> bytes:
    """What is needed to send a message back with the same properties."""
    same = Basic.Properties()
    for name, value in properties:
        setattr(same, name, value)
    same.headers = {
        name: _sendable(value)
        for name, value in (properties.headers or {}).items()
        if not name.startswith(_DEATH) and name not in _LEADS_AWAY
    }
    try:
        return ContentHeader(properties=same).marshal()
    except (TypeError, ValueError, OverflowError):
        return b""  # it came in a form that cannot be written: the headers must do


def written(message: Message) -> bytes:
    """The properties of a copy: those it was found with, and the way to its letter."""
    properties = _found_with(message) or Basic.Properties(
        content_type=message.content_type,
        delivery_mode=2,
        reply_to=message.reply_to,
        headers=dict(unmarked(message).headers),
    )
    # What tells of its death was taken off the message, and people may have edited it.
    names = {name for name, _ in message.headers} - _LEADS_AWAY
    headers = {
        name: _sendable(value)
        for name, value in (properties.headers or {}).items()
        if name in names
    }
    for name, told in lineage_headers(message.lineage):
        headers[name] = told.decode()
    properties.headers = headers
    # Without one it would get another letter when it dies again.
    properties.message_id = properties.message_id or message.id
    properties.user_id = None  # the broker lets nobody speak for another
    return ContentHeader(properties=properties).marshal()[_FIXED:]


def _found_with(message: Message) -> Basic.Properties | None:
    origin = origin_of(message)
    return read(origin.raw) if origin is not None and origin.raw else None


def digest(properties: Basic.Properties, body: bytes) -> str:
    """An id for a message without one, the same whenever it comes."""
    about = dict(properties)
    about["headers"] = {
        name: value
        for name, value in sorted((properties.headers or {}).items())
        if name not in _ABOUT_DELIVERY
    }
    told = sha256(repr(about).encode("utf-8", "backslashreplace"))
    told.update(body)
    return f"sha256-{told.hexdigest()[:32]}"


def as_bytes(value: Any) -> bytes:
    """A header's value, whatever its type."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    with suppress(TypeError, ValueError, RecursionError):
        return msgspec.json.encode(value, enc_hook=str)
    return repr(value).encode("utf-8", "backslashreplace")


def _sendable(value: Any) -> Any:
    match value:
        case bytes():
            return bytearray(value)  # the client knows no other form of bytes
        case list():
            return [_sendable(one) for one in value]
        case dict():
            return {name: _sendable(one) for name, one in value.items()}
    return value
