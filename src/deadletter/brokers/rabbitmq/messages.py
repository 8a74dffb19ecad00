"""
Messages as AMQP properties and headers, and back.

Fields that AMQP has are stored there, readable for other programs. The rest, and what
AMQP would not restore exactly, is packed into `dlq-more`. Headers of their own store
earlier attempts, readable for people. They are signed: without a valid signature they
count as headers of the user, and no attempt was made.

Properties (AMQP 0-9-1, section 4.2.6.1) are read and written byte for byte. pamqp decodes
values of the header table that are not text, bytes or whole numbers.
"""

import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from struct import Struct as Layout
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, structs
from pamqp import decode

from deadletter.core.ids import body_digest, checksum
from deadletter.core.message import Headers, Lineage, Message, escaped, restored
from deadletter.core.signing import Keys, Part
from deadletter.kit import micros, when

Table: TypeAlias = list[tuple[str, Any]]
_size: Final = Layout(">I")
_int_layout: Final = Layout(">i")
_long: Final = Layout(">q")
_time: Final = Layout(">Q")
_flags: Final = Layout(">H")
LONGEST: Final = 255  # bytes of a short string


# Bit of each property, highest first: the order they are written in.
CONTENT_TYPE, CONTENT_ENCODING, HEADERS = 1 << 15, 1 << 14, 1 << 13
DELIVERY_MODE, PRIORITY, CORRELATION_ID = 1 << 12, 1 << 11, 1 << 10
REPLY_TO, EXPIRATION, MESSAGE_ID = 1 << 9, 1 << 8, 1 << 7
TIMESTAMP, TYPE, USER_ID = 1 << 6, 1 << 5, 1 << 4
APP_ID, CLUSTER_ID = 1 << 3, 1 << 2
_ORDER: Final = tuple(1 << bit for bit in range(15, 1, -1))
_OCTETS: Final = frozenset({DELIVERY_MODE, PRIORITY})
UNREADABLE: Final = (ValueError, struct.error, IndexError, OverflowError)
"""Errors of reading malformed properties."""


def read(header: bytes) -> dict[int, Any]:
    """
    Return the properties of a content header, by their bits.

    Short strings are bytes, the header table is a list in its order.
    """
    (flags,) = _flags.unpack_from(header, 12)
    at = 14
    found: dict[int, Any] = {}
    for bit in _ORDER:
        if not flags & bit:
            continue
        if bit == HEADERS:
            (size,) = _size.unpack_from(header, at)
            found[bit] = _table(header, at + 4, at + 4 + size)
            at += 4 + size
        elif bit in _OCTETS:
            found[bit] = header[at]
            at += 1
        elif bit == TIMESTAMP:
            (found[bit],) = _time.unpack_from(header, at)
            at += 8
        else:
            end = at + 1 + header[at]
            found[bit] = header[at + 1 : end]
            at = end
    return found


def write(properties: dict[int, bytes], table: Iterable[bytes]) -> bytes:
    """Encode properties: short strings by their bits, and entries of the header table."""
    entries = b"".join(table)
    flags = HEADERS | DELIVERY_MODE
    parts: list[bytes] = []
    for bit in _ORDER:
        if bit == HEADERS:
            parts.append(_size.pack(len(entries)) + entries)
        elif bit == DELIVERY_MODE:
            parts.append(b"\x02")
        elif bit in properties:
            value = properties[bit]
            flags |= bit
            fixed = bit == TIMESTAMP or bit in _OCTETS
            parts.append(value if fixed else bytes((len(value),)) + value)
    return _flags.pack(flags) + b"".join(parts)


def text(name: bytes, value: bytes) -> bytes:
    """Encode a table entry of text."""
    return bytes((len(name),)) + name + b"S" + _size.pack(len(value)) + value


def binary(name: bytes, value: bytes) -> bytes:
    """Encode a table entry of bytes."""
    return bytes((len(name),)) + name + b"x" + _size.pack(len(value)) + value


def number(name: bytes, value: int) -> bytes:
    """Encode a table entry of a number."""
    return bytes((len(name),)) + name + b"l" + _long.pack(value)


def timestamp(seconds: int) -> bytes:
    """Encode a time as a property."""
    return _time.pack(max(0, seconds))


def _table(data: bytes, at: int, end: int) -> Table:
    if end > len(data):
        raise ValueError("a header table is longer than its frame")
    found: Table = []
    while at < end:
        name_end = at + 1 + data[at]
        name = data[at + 1 : name_end].decode("utf-8", "replace")
        kind = data[name_end]
        at = name_end + 1
        if kind in b"Sx":
            (size,) = _size.unpack_from(data, at)
            at += 4
            found.append((name, data[at : at + size]))
            at += size
        elif kind in b"lL":
            found.append((name, _long.unpack_from(data, at)[0]))
            at += 8
        elif kind == ord("I"):
            found.append((name, _int_layout.unpack_from(data, at)[0]))
            at += 4
        else:
            consumed, value = decode.embedded_value(data[name_end:end])
            found.append((name, value))
            at = name_end + consumed
    return found


PERSISTENT: Final = 2
_FIRST: Final = micros(datetime.min.replace(tzinfo=UTC))
_LAST: Final = micros(datetime.max.replace(tzinfo=UTC))
_MORE: Final = "dlq-more"
_SIGNATURE: Final = "dlq-attempt-signature"
_PURPOSE: Final = "amqp attempts"
_STORY: Final = (
    *("dlq-attempt", "dlq-spared", "dlq-first-received", "dlq-history", "dlq-left"),
    _SIGNATURE,
)
_CRC: Final = "dlq-crc"
_NAMED: Final = (MESSAGE_ID, CONTENT_TYPE, REPLY_TO)
_RESERVED: Final = ("x-", "dlq-", "amqp-")
_NAME: Final = 128  # bytes of a header's name that every client can read

# Properties without a field of ours: shown as headers.
_AS_HEADERS: Final = {
    CONTENT_ENCODING: "amqp-content-encoding",
    PRIORITY: "amqp-priority",
    CORRELATION_ID: "amqp-correlation-id",
    EXPIRATION: "amqp-expiration",
    TYPE: "amqp-type",
    USER_ID: "amqp-user-id",
    APP_ID: "amqp-app-id",
}
# Headers that become properties again. Not the user, which the broker checks, and not the
# expiration, by which a message would vanish silently.
_RESTORED: Final = {
    name: bit for bit, name in _AS_HEADERS.items() if bit not in (PRIORITY, EXPIRATION, USER_ID)
}


class More(Struct, omit_defaults=True):
    """Fields that AMQP has no property for."""

    at: int  # sent, in microseconds
    key: str | None = None
    expires: int | None = None
    once: str | None = None
    trace: str | None = None
    state: str | None = None
    lineage: Lineage | None = None
    headers: Headers | None = None  # if AMQP would not restore them exactly
    id: str | None = None  # this and the following: too long for AMQP
    type: str | None = None
    reply: str | None = None


class Story(Struct, frozen=True, kw_only=True):
    """Earlier attempts of a message."""

    attempts: int = 0
    spared: int = 0
    first_at: int | None = None
    history: str = ""
    left: int = 0  # microseconds still to wait after a split delay
    copied: bool = False  # sent by us, not by its producer


class Unpacked(Struct, frozen=True):
    """A decoded message, and its story."""

    message: Message
    story: Story
    lost: int  # number of lost deliveries
    unsigned: bool = False  # it has an unsigned story, which is ignored
    crc: int | None = None  # its checksum
    is_whole: bool = True  # the message matches its checksum


NEW: Final = Story()
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(More).decode
_json: Final = msgspec.json.Encoder(order="sorted").encode


def packed(
    message: Message,
    story: Story = NEW,
    *,
    to: str,
    keys: Keys,
    wait: int = 0,
    crc: int | None = None,
) -> bytes:
    """
    Encode the properties of a message for a mailbox.

    `wait` is in milliseconds, for a delay queue. A corrupt message keeps its checksum
    `crc`, so that its copies stay corrupt.
    """
    signature = _signature(message, story, to, keys) if story.copied else ""
    try:
        return _packed(message, story, wait, signature, crc)
    except UnicodeEncodeError:
        return _packed(escaped(message), story, wait, signature, crc)


def _packed(message: Message, story: Story, wait: int, signature: str, crc: int | None) -> bytes:
    more = More(
        micros(message.sent_at),
        message.key,
        None if message.expires_at is None else micros(message.expires_at),
        message.idempotency_key,
        message.traceparent,
        message.tracestate,
        message.lineage,
    )
    properties = {TIMESTAMP: timestamp(more.at // 1_000_000)}
    if wait:
        properties[EXPIRATION] = str(wait).encode()
    more.id = _fitted(properties, MESSAGE_ID, message.id)
    more.type = _fitted(properties, CONTENT_TYPE, message.content_type)
    more.reply = _fitted(properties, REPLY_TO, message.reply_to)
    entries: list[bytes] = []
    if message.headers:
        names = [name.encode() for name, _ in message.headers]
        if not _is_plain(message.headers, names):
            more.headers = message.headers
            properties |= _restored(message.headers)
        else:
            values = (value for _, value in message.headers)
            entries = [text(*pair) for pair in zip(names, values, strict=True)]
    told = _encode(more)
    entries.append(binary(b"dlq-more", told))
    if crc is None:
        plain = message.headers if more.headers is None else ()
        crc = _checksum(message.body, told, story, properties, plain)
    entries.append(number(b"dlq-crc", crc))
    if story.copied:
        entries += _told(story)
        entries.append(text(_SIGNATURE.encode(), signature.encode()))
    return write(properties, entries)


def _fitted(properties: dict[int, bytes], bit: int, text: str | None) -> str | None:
    """Set a property, or return a text that is too long for it."""
    if text is None:
        return None
    short = text.encode()
    if len(short) > LONGEST:
        return text
    properties[bit] = short
    return None


def unpacked(header: bytes, body: bytes, now: datetime, *, mailbox: str, keys: Keys) -> Unpacked:
    """
    Decode a message of any sender.

    Malformed properties are left out: the body counts.
    """
    damaged = False
    try:
        found = read(header)
    except UNREADABLE:
        found, damaged = {}, _CRC.encode() in header
    native: Table = found.get(HEADERS, [])
    ours = {name: value for name, value in native if name.startswith(("dlq-", "x-"))}
    more = _more(ours)
    plain = _plain(native) if more is None or more.headers is None else ()
    if more is None:
        message = _foreign(found, native, header, body, now)
    else:
        message = _ours(more, found, more.headers or plain, body)
    story, unsigned = _story(ours), False
    crc = -1 if damaged else _crc(ours)
    whole = None
    if crc is not None:
        told = ours.get(_MORE)
        told = told if isinstance(told, bytes) else b""
        whole = _checksum(body, told, story, found, plain)
    if story is not NEW and not _is_signed(ours, message, story, mailbox, keys):
        # The delay is up to the producer, who may have the key of another office.
        unsigned = story != Story(left=story.left, copied=True)
        story = Story(left=story.left)
        if unsigned and more is not None:
            extra = tuple((n, _as_bytes(ours[n])) for n in _STORY if n in ours)
            message = structs.replace(message, headers=(*message.headers, *extra))
    lost = max(_int(ours, "x-delivery-count"), _int(ours, "x-acquired-count"))
    return Unpacked(message, story, lost, unsigned, crc, is_whole=crc == whole)


def _crc(ours: Mapping[str, Any]) -> int | None:
    crc = ours.get(_CRC)
    return crc if isinstance(crc, int) else None


def _ours(more: More, found: Mapping[int, Any], headers: Headers, body: bytes) -> Message:
    message = Message(
        id=_text(found.get(MESSAGE_ID)) or "" if more.id is None else more.id,
        body=body,
        sent_at=when(more.at),
        headers=headers,
        content_type=more.type or _text(found.get(CONTENT_TYPE)),
        key=more.key,
        expires_at=None if more.expires is None else when(more.expires),
        reply_to=more.reply or _text(found.get(REPLY_TO)),
        idempotency_key=more.once,
        traceparent=more.trace,
        tracestate=more.state,
        lineage=more.lineage,
    )
    return restored(message) if headers else message


def _checksum(
    body: bytes, more: bytes, story: Story, properties: Mapping[int, Any], plain: Headers
) -> int:
    parts = [body, more, *[properties[bit] for bit in _NAMED if bit in properties]]
    if story.copied:
        parts.append(_encode(story))
    return checksum(*parts, headers=plain)


def _is_plain(headers: Headers, names: list[bytes]) -> bool:
    """Tell whether AMQP headers can store these: unique names, none reserved."""
    return (
        len(set(names)) == len(names)
        and all(0 < len(name) <= _NAME for name in names)
        and not any(name.startswith(_RESERVED) for name, _ in headers)
    )


def _plain(native: Table) -> Headers:
    return tuple(
        (name, value if isinstance(value, bytes) else _as_bytes(value))
        for name, value in native
        if not name.startswith(_RESERVED)
    )


def _restored(headers: Headers) -> dict[int, bytes]:
    return {
        _RESTORED[name]: value
        for name, value in headers
        if name in _RESTORED and len(value) <= LONGEST
    }


def _told(story: Story) -> list[bytes]:
    entries = [number(b"dlq-attempt", story.attempts), number(b"dlq-spared", story.spared)]
    if story.first_at is not None:
        entries.append(number(b"dlq-first-received", story.first_at))
    if story.history:
        entries.append(text(b"dlq-history", story.history.encode()))
    if story.left:
        entries.append(number(b"dlq-left", story.left))
    return entries


def _story(ours: Mapping[str, Any]) -> Story:
    if "dlq-attempt" not in ours:
        return NEW
    first_at = ours.get("dlq-first-received")
    history = ours.get("dlq-history", b"")
    return Story(
        attempts=_int(ours, "dlq-attempt"),
        spared=_int(ours, "dlq-spared"),
        first_at=first_at if isinstance(first_at, int) else None,
        history=history.decode("utf-8", "replace") if type(history) is bytes else "",
        left=_int(ours, "dlq-left"),
        copied=True,
    )


def _signature(message: Message, story: Story, mailbox: str, keys: Keys) -> str:
    return keys.sign(_PURPOSE, *_signed(message, story, mailbox))


def _is_signed(
    ours: Mapping[str, Any], message: Message, story: Story, mailbox: str, keys: Keys
) -> bool:
    signature = _as_bytes(ours.get(_SIGNATURE, b"")).decode("utf-8", "replace")
    return keys.verifies(signature, _PURPOSE, *_signed(message, story, mailbox))


def _signed(message: Message, story: Story, mailbox: str) -> tuple[Part, ...]:
    return (
        mailbox,
        message.id,
        body_digest(message.body),
        f"{story.attempts} {story.spared} {story.first_at} {story.left}",
        story.history,
    )


def _more(ours: Mapping[str, Any]) -> More | None:
    packed_more = ours.get(_MORE)
    if not isinstance(packed_more, bytes):
        return None
    try:
        more = _decode(packed_more)
    except msgspec.MsgspecError:
        return None
    is_time = all(_FIRST <= at <= _LAST for at in (more.at, more.expires or 0))
    return more if is_time else None


def _foreign(
    found: Mapping[int, Any], native: Table, header: bytes, body: bytes, now: datetime
) -> Message:
    """Decode a message of another program."""
    headers = [(name, _as_bytes(value)) for name, value in native]
    headers += [(name, _as_bytes(found[bit])) for bit, name in _AS_HEADERS.items() if bit in found]
    # Headers that change with each delivery are left out.
    headers = [pair for pair in headers if pair[0] not in _ABOUT_DELIVERY]
    stamp = found.get(TIMESTAMP)
    message = Message(
        id=_text(found.get(MESSAGE_ID)) or "",
        body=body,
        sent_at=now if stamp is None else _stamped(stamp, now),
        headers=tuple(headers),
        content_type=_text(found.get(CONTENT_TYPE)),
        reply_to=_text(found.get(REPLY_TO)),
    )
    traced = {
        field: text
        for field in ("traceparent", "tracestate")
        if (text := message.header(field)) is not None
    }
    # Without an id it gets one from its content, the same for each delivery.
    named = message.id or _digest(headers, stamp, body)
    return structs.replace(message, id=named, **traced)


_ABOUT_DELIVERY: Final = frozenset({"x-delivery-count", "x-acquired-count"})


def _digest(headers: list[tuple[str, bytes]], stamp: object, body: bytes) -> str:
    digest = sha256(repr((headers, stamp)).encode("utf-8", "backslashreplace"))
    digest.update(body)
    return f"sha256-{digest.hexdigest()[:32]}"


def _stamped(stamp: int, now: datetime) -> datetime:
    try:
        return when(stamp * 1_000_000)
    except OverflowError:
        return now


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return _json(value)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _int(ours: Mapping[str, Any], name: str) -> int:
    value = ours.get(name, 0)
    return value if isinstance(value, int) else 0
