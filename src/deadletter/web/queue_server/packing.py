"""
Values as protobuf, written field by field.

No messages are made first: of a hundred leased items that takes longer than storing
them does. How each type is written is worked out once.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import UNSET, structs

from .protobuf import fields_of, message_of, taking
from .said import LeaseItem, Said

Put: TypeAlias = Callable[[Any], bytes]
Field: TypeAlias = Any  # a FieldDescriptor, whichever of protobuf's it is

_SIZED: Final = 2  # of a wire type: the length comes first


def pack(value: Said) -> bytes:
    """A value as a message."""
    return _writer(type(value))(value)


@cache
def _writer(kind: type[Said]) -> Put:
    known = message_of(kind).DESCRIPTOR.fields_by_name
    fields = [(known[name], ours) for ours, name in fields_of(kind)]
    fields.sort(key=lambda field: field[0].number)
    take = taking([ours for _, ours in fields])
    puts = [_put(field) for field, _ in fields]
    empties = [_tells_empty(field) for field, _ in fields]
    if any(empties):
        return lambda value: b"".join(
            put(one)
            for one, put, is_told in zip(take(value), puts, empties, strict=True)
            if one or (is_told and one is not UNSET)
        )

    def write(value: Said) -> bytes:
        # For every item: what can be left out of this line is.
        return b"".join([put(one) for one, put in zip(take(value), puts) if one])  # noqa: B905 -- see above

    return write


def _tells_empty(field: Field) -> bool:
    """Whether what is empty is sent all the same, since it matters that it is."""
    return bool(field.has_presence and field.message_type is None)


def _put(field: Field) -> Put:
    """How a value is written as this field."""
    message = field.message_type
    if message is None:
        put = _put_one(field)
        return (lambda given: b"".join(map(put, given))) if field.is_repeated else put
    tag = _varint(field.number << 3 | _SIZED)
    if message.GetOptions().map_entry:
        names, texts = (_put_one(one) for one in message.fields)
        return partial(_put_map, tag, names, texts)
    if message is Timestamp.DESCRIPTOR:
        return partial(_put_time, tag)
    if message is message_of(LeaseItem).DESCRIPTOR:
        return partial(_put_lent, tag)
    return partial(_put_messages, tag)


def _put_one(field: Field) -> Put:
    if field.type == FieldDescriptor.TYPE_STRING:
        return partial(_put_text, _varint(field.number << 3 | _SIZED))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return partial(_put_bytes, _varint(field.number << 3 | _SIZED))
    assert field.type in {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_BOOL}
    return partial(_put_number, _varint(field.number << 3))


def _put_bytes(tag: bytes, given: bytes) -> bytes:
    return tag + _varint(len(given)) + given


def _put_text(tag: bytes, given: str) -> bytes:
    text = given.encode()
    return tag + _varint(len(text)) + text


def _put_number(tag: bytes, given: int) -> bytes:
    return tag + _varint(given)


def _put_messages(tag: bytes, given: Sequence[Said]) -> bytes:
    write = _writer(type(given[0]))
    parts: list[bytes] = []
    for one in given:
        body = write(one)
        parts += (tag, _varint(len(body)), body)
    return b"".join(parts)


def _put_lent(tag: bytes, given: Sequence[LeaseItem]) -> bytes:
    """Items leased together, which share all but ids and payloads: written once."""
    put_id, put_payload = _lent_parts()
    parts: list[bytes] = []
    known, shared = None, b""
    for one in given:
        same = (
            one.lease_deadline, one.attempts, one.reference, one.kind, one.encoding
        )  # fmt: skip
        if same != known:
            known = same
            shared = pack(structs.replace(one, id="", payload=b""))
        if one.id and one.payload:
            body = shared + put_id(one.id) + put_payload(one.payload)
        else:  # what is empty is left out
            body = pack(one)
        parts += (tag, _varint(len(body)), body)
    return b"".join(parts)


@cache
def _lent_parts() -> tuple[Put, Put]:
    fields = message_of(LeaseItem).DESCRIPTOR.fields_by_name
    return _put_one(fields["id"]), _put_one(fields["bytes"])


def _put_map(tag: bytes, name: Put, text: Put, given: Mapping[str, str]) -> bytes:
    pairs = [name(key) + text(value) for key, value in given.items()]
    return b"".join([_put_bytes(tag, pair) for pair in pairs])


@lru_cache(256)
def _put_time(tag: bytes, time: datetime) -> bytes:
    # What is leased together has one deadline, and making a stamp takes long.
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return _put_bytes(tag, stamp.SerializeToString())


@lru_cache(4096)
def _varint(number: int) -> bytes:
    left = number & 0xFFFF_FFFF_FFFF_FFFF  # a negative one as a very large one
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
