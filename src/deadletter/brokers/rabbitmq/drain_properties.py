"""
Properties of messages on RabbitMQ: as they came, and as they go back.

They are kept as the bytes that they travel as, so that every type is the same again.
Left out is what is about the death, or would make the broker send a copy elsewhere.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from struct import Struct as Layout
from struct import error as layout_error
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, field

from deadletter.core.message import Message
from deadletter.intake.dialects import lineage_headers, origin_of, unmarked
from deadletter.intake.dialects.brokers import Way
from deadletter.kit import EPOCH

_FIXED: Final = 12  # bytes of a content header before its flags
_NAMES: Final = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority"),
    *("correlation_id", "reply_to", "expiration", "message_id", "timestamp", "type"),
    *("user_id", "app_id", "cluster_id"),
)
_SIZES: Final = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
_DEATH: Final = (
    *("x-death", "x-opt-deaths", "x-first-death-", "x-last-death-"),
    "x-delivery-count",
)
_LEADS_AWAY: Final = frozenset({"CC", "BCC"})
_ABOUT_DELIVERY: Final = frozenset({"x-delivery-count", "x-acquired-count"})
_DEEPEST: Final = 50  # tables within tables that are shown to people
_MARK: Final = b"\x01"  # before `_Kept`: letters of older versions have a header here

_length: Final = Layout(">I")
_flags: Final = Layout(">H")
_long: Final = Layout(">Q")
_PLAIN: Final = {  # fields of one size, by the letter of their type
    b"t": Layout(">?"),
    b"b": Layout(">b"),
    b"B": Layout(">B"),
    b"s": Layout(">h"),
    b"u": Layout(">H"),
    b"I": Layout(">i"),
    b"i": Layout(">I"),
    b"l": Layout(">q"),
    b"L": Layout(">Q"),
    b"f": Layout(">f"),
    b"d": Layout(">d"),
    b"T": Layout(">Q"),
    b"D": Layout(">Bi"),
    b"V": Layout(">"),
}
_SIZED: Final = frozenset((b"S", b"x", b"F", b"A"))

PERSISTENT: Final = b"\x10\0\x02"
"""Properties of a message that survives its broker, as they travel."""

Fields: TypeAlias = Sequence[tuple[str, bytes]]
"""Names with values as they travel: the letter of the type, then the value."""


class Properties(Struct, kw_only=True):
    """All properties of one message, as they travel."""

    plain: dict[str, bytes] = field(default_factory=dict)
    headers: Fields | None = None

    def text(self, name: str) -> str | None:
        """Return a short text; None if the message has none."""
        value = self.plain.get(name)
        return None if value is None else _text(value[1:])

    def set_text(self, name: str, text: str | None) -> None:
        """Set a short text, cut to what fits; with None, take it away."""
        if text is None:
            self.plain.pop(name, None)
            return
        value = text.encode("utf-8", "surrogateescape")[:255]
        self.plain[name] = bytes((len(value),)) + value

    @property
    def timestamp(self) -> datetime | None:
        """Return the time that its producer wrote on it."""
        value = self.plain.get("timestamp")
        return None if value is None else _time(*_long.unpack(value))

    def written(self) -> bytes:
        """Return flags and values as they travel."""
        flags, parts = 0, []
        for place, name in enumerate(_NAMES):
            value = self.plain.get(name)
            if name == "headers" and self.headers is not None:
                entries = b"".join(_short(key) + value for key, value in self.headers)
                value = _length.pack(len(entries)) + entries
            if value is not None:
                flags |= 1 << (15 - place)
                parts.append(value)
        return _flags.pack(flags) + b"".join(parts)


class _Kept(Struct, frozen=True, array_like=True):
    """Properties and way of a message, kept to send it back unchanged."""

    properties: bytes
    way: Way


def read(header: bytes) -> Properties | None:
    """Read the properties in a content header; None if they are malformed."""
    try:
        return _read(header[_FIXED:])
    except (layout_error, LookupError, ValueError):
        return None


def _read(data: bytes) -> Properties:
    (flags,) = _flags.unpack_from(data)
    properties, at = Properties(), _flags.size
    for place, name in enumerate(_NAMES):
        if not flags & 1 << (15 - place):
            continue
        if name == "headers":
            (size,) = _length.unpack_from(data, at)
            size += _length.size
            properties.headers = list(_entries(_piece(data, at, size)[4:]))
        else:
            size = _SIZES.get(name) or 1 + data[at]
            properties.plain[name] = _piece(data, at, size)
        at += size
    if at != len(data):
        raise ValueError("bytes behind the last property")
    return properties


def kept(properties: Properties, way: Way) -> bytes:
    """
    Return what is needed to send a message back with the same properties.

    RabbitMQ takes the expiration off a message that dies, and writes it down.
    """
    same = Properties(plain=dict(properties.plain))
    if way.expiration and "expiration" not in same.plain:
        same.set_text("expiration", way.expiration)
    if properties.headers is not None:
        same.headers = [(name, value) for name, value in properties.headers if _goes_back(name)]
    return _MARK + msgspec.msgpack.encode(_Kept(same.written(), way))


def way_back(message: Message) -> Way:
    """Return the way that a message came to its queue; an empty one if unknown."""
    found = _found_with(message)
    return Way() if found is None else found.way


def written(message: Message) -> bytes:
    """Return the properties of a copy: the original ones, and the lineage of its letter."""
    properties = _properties(message)
    # What tells of its death was taken off the message, and people may have edited it.
    left = [one for one in unmarked(message).headers if _goes_back(one[0])]
    headers: list[tuple[str, bytes]] = []
    for name, value in properties.headers or ():
        shown = name, as_bytes(value_of(value))
        if shown in left:
            left.remove(shown)
            headers.append((name, value))
    headers += [(name, _long_text(value)) for name, value in left]
    lineage = lineage_headers(message.lineage)
    headers += [(name, _long_text(value)) for name, value in lineage]
    if headers or properties.headers is not None:
        properties.headers = headers
    # Without one it would get another letter when it dies again.
    if "message_id" not in properties.plain:
        properties.set_text("message_id", message.id)
    properties.set_text("user_id", None)  # the broker lets nobody speak for another
    return properties.written()


def replayed_letter(header: bytes) -> str:
    """Return the letter that a returned message is a copy of; empty if it has none."""
    properties = read(header)
    headers = (properties.headers if properties is not None else None) or ()
    values = [value for name, value in headers if name == "dlq-replay-of"]
    return _text(as_bytes(value_of(values[-1]))) if values else ""


def _goes_back(name: str) -> bool:
    return not name.startswith(_DEATH) and name not in _LEADS_AWAY


def _properties(message: Message) -> Properties:
    found = _found_with(message)
    if found is not None:
        with suppress(layout_error, LookupError, ValueError):
            return _read(found.properties)
    properties = Properties(plain={"delivery_mode": b"\x02"})
    properties.set_text("content_type", message.content_type)
    properties.set_text("reply_to", message.reply_to)
    return properties


def _found_with(message: Message) -> _Kept | None:
    origin = origin_of(message)
    if origin is None or not origin.raw:
        return None
    if not origin.raw.startswith(_MARK):
        return _Kept(origin.raw[_FIXED:], Way())
    try:
        return msgspec.msgpack.decode(origin.raw[1:], type=_Kept)
    except msgspec.MsgspecError:
        return None


def digest(properties: Properties | None, header: bytes, body: bytes) -> str:
    """Return what equal messages have in common, however often they are delivered."""
    told = sha256()
    if properties is None:
        told.update(header)
    else:
        for name, value in sorted(properties.plain.items()):
            told.update(f"{name}:{len(value)}:".encode() + value)
        for name, value in properties.headers or ():
            if name not in _ABOUT_DELIVERY:
                told.update(_length.pack(len(value)) + _short(name) + value)
    told.update(body)
    return f"sha256-{told.hexdigest()[:32]}"


def as_bytes(value: Any) -> bytes:
    """Return a header's value of any type as bytes."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    with suppress(TypeError, ValueError, RecursionError):
        return msgspec.json.encode(value, enc_hook=str)
    return repr(value).encode("utf-8", "backslashreplace")


def value_of(data: bytes, depth: int = 0) -> Any:
    """Read a field as a value of Python; what cannot be one stays bytes."""
    kind, rest = data[:1], data[1:]
    layout = _PLAIN.get(kind)
    if layout is None:
        rest = rest[_length.size :]
    if kind == b"x" or depth > _DEEPEST:
        return rest
    if kind == b"S":
        try:
            return rest.decode()
        except UnicodeDecodeError:
            return rest
    if kind == b"F":
        return {name: value_of(one, depth + 1) for name, one in _entries(rest)}
    if kind == b"A":
        return [value_of(one, depth + 1) for one in _fields(rest)]
    if layout is None:
        return rest
    numbers = layout.unpack(rest)
    if kind == b"T":
        return _time(*numbers) or numbers[0]
    if kind == b"D":
        scale, digits = numbers
        return Decimal(digits).scaleb(-scale)
    return numbers[0] if numbers else None


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Split a table into names and fields."""
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        size = _size(data, end)
        yield _text(_piece(data, at, end - at)[1:]), _piece(data, end, size)
        at = end + size


def _fields(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = _size(data, at)
        yield _piece(data, at, size)
        at += size


def _size(data: bytes, at: int) -> int:
    """Return how many bytes a field takes, the letter of its type included."""
    kind = data[at : at + 1]
    if kind in _SIZED:
        (size,) = _length.unpack_from(data, at + 1)
        return 1 + _length.size + int(size)
    return 1 + _PLAIN[kind].size


def _piece(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise ValueError("a property ends too early")
    return piece


def _time(seconds: int) -> datetime | None:
    with suppress(OverflowError):
        return EPOCH + timedelta(seconds=seconds)
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _short(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")[:255]
    return bytes((len(data),)) + data


def _long_text(data: bytes) -> bytes:
    return b"S" + _length.pack(len(data)) + data
