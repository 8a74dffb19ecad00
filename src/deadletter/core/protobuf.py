"""
Protobuf on the wire, without its schema or library: the fields of one message.

Only the types that messages of other systems need are here. Groups are not read.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from .errors import Malformed

Value: TypeAlias = int | bytes
Fields: TypeAlias = dict[int, Value]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_SHIFT: Final = 63
_SIGN: Final = 1 << 63


def read_fields(data: bytes) -> Fields:
    """
    Return the fields of a message by number; the last value of a repeated one.

    Raises `Malformed` if the bytes are not a message.
    """
    return dict(_fields(data))


def number_of(fields: Fields, number: int) -> int:
    """Return an integer field, 0 if it is missing. Raises `Malformed` for another type."""
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise Malformed(f"field {number} is not a number")
    return value - 2 * _SIGN if value >= _SIGN else value


def bytes_of(fields: Fields, number: int) -> bytes:
    """Return a bytes field, empty if it is missing. Raises `Malformed` for another type."""
    value = fields.get(number, b"")
    if not isinstance(value, bytes):
        raise Malformed(f"field {number} is not text or bytes")
    return value


def text_of(fields: Fields, number: int) -> str:
    """Return a string field, empty if it is missing. Raises `Malformed` for another type."""
    try:
        return bytes_of(fields, number).decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"field {number} is not UTF-8") from error


def time_of(fields: Fields, number: int) -> datetime | None:
    """Return a `Timestamp` field, None if it is missing. Raises `Malformed` for another type."""
    if number not in fields:
        return None
    stamp = read_fields(bytes_of(fields, number))
    try:
        return _EPOCH + timedelta(
            seconds=number_of(stamp, 1), microseconds=number_of(stamp, 2) // 1000
        )
    except OverflowError as error:
        raise Malformed(f"field {number} is not a time") from error


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise Malformed("field 0 does not exist in protobuf")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise Malformed(f"field {number} is cut off, or of an unknown type")
        part, at = data[at : at + size], at + size
        yield number, part if kind == _BYTES else int.from_bytes(part, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= _MAX_SHIFT:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2 * _SIGN - 1), at
        shift += 7
    raise Malformed("a number is cut off")
