"""
Properties of AMQP messages (AMQP 0-9-1, section 4.2.6.1), read and written byte for byte.

pamqp decodes values of the header table that are not text, bytes or whole numbers.
"""

import struct
from collections.abc import Iterable
from struct import Struct as Layout
from typing import Any, Final, TypeAlias

from pamqp import decode

Table: TypeAlias = list[tuple[str, Any]]


_size: Final = Layout(">I")


_int: Final = Layout(">i")


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
            found.append((name, _int.unpack_from(data, at)[0]))
            at += 4
        else:
            consumed, value = decode.embedded_value(data[name_end:end])
            found.append((name, value))
            at = name_end + consumed
    return found
