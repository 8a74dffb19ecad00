"""
JSON and protobuf: the format of a body, and the format of its reply.

JSON is read strictly, which is fast. What that rejects is read once more by the rules of
protobuf's JSON mapping, as generated clients of any language use it: names in camelCase,
null for a missing field, numbers as texts, base64 of the variant for URLs.

Readers and writers of protobuf are built once for each type; a difference between a type
and its protobuf message fails then, and not when a client sends one. Writers put fields
directly into bytes: making protobuf messages of a hundred leased items takes longer than
storing them.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import UNSET, UnsetType, structs

from deadletter.core.text import encode_document

from . import querator_pb2 as pb
from . import wire
from .wire import LeaseItem, StorageItem, UnreadableBody, UnsupportedFormat, WireMessage

Kind = TypeVar("Kind", bound=WireMessage)
Getter: TypeAlias = Callable[[Any], Any]
Put: TypeAlias = Callable[[Any], bytes]
Field: TypeAlias = Any  # a FieldDescriptor, whichever of protobuf's it is

_MESSAGE_NAMES: Final = MappingProxyType(
    {
        wire.Reply: "Reply",
        wire.QueueName: "QueuesInfoRequest",
        wire.Partition: "Partition",
        wire.QueueInfo: "QueueInfo",
        wire.ListQueues: "QueuesListRequest",
        wire.QueueList: "QueuesListResponse",
        wire.DeleteQueue: "QueuesDeleteRequest",
        wire.ProduceItem: "ProduceItem",
        wire.ProduceRequest: "QueueProduceRequest",
        wire.LeaseRequest: "QueueLeaseRequest",
        wire.LeaseItem: "LeaseItem",
        wire.LeaseReply: "QueueLeaseResponse",
        wire.CompleteRequest: "QueueCompleteRequest",
        wire.RetryItem: "RetryItem",
        wire.RetryRequest: "QueueRetryRequest",
        wire.PartitionStats: "PartitionStats",
        wire.LogicalStats: "LogicalStats",
        wire.Stats: "QueueStatsResponse",
        wire.ClearRequest: "QueueClearRequest",
        wire.StorageItem: "StorageItem",
        wire.ListItems: "StorageItemsListRequest",
        wire.ItemList: "StorageItemsListResponse",
        wire.ImportItems: "StorageItemsImportRequest",
        wire.ImportReply: "StorageItemsImportResponse",
        wire.DeleteItems: "StorageItemsDeleteRequest",
    }
)
"""The protobuf message of each type. All that only name a queue are alike."""


def unpack(body: bytes, kind: type[Kind]) -> Kind:
    """Return the value of a protobuf message; raises ValueError if it is malformed."""
    try:
        message = message_of(kind).FromString(body)
    except DecodeError as error:
        raise ValueError(f"not a protobuf message of the kind expected: {error}") from error
    value: Kind = _reader(kind)(message)
    return value


@cache
def message_of(kind: type[WireMessage]) -> type[Message]:
    """Return the protobuf message of a type."""
    found: type[Message] = getattr(pb, _MESSAGE_NAMES[kind])
    return found


@cache
def fields_of(kind: type[WireMessage]) -> tuple[tuple[str, str], ...]:
    """Return the names of fields, in our type and in the protobuf message."""
    known = message_of(kind).DESCRIPTOR.fields
    by_json = {one.json_name: one.name for one in known} | {one.name: one.name for one in known}
    return tuple((f.name, by_json[f.encode_name]) for f in structs.fields(kind))


def attributes_getter(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Return a function that gets attributes by name, also if there is only one."""
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda thing: (get(thing),)


@cache
def _reader(kind: type[WireMessage]) -> Getter:
    """Return a reader: it gets all plain fields at once, then the others."""
    types = [field.type for field in structs.fields(kind)]
    names = [name for _, name in fields_of(kind)]
    found = [
        _getter(name, type_, message_of(kind)) for name, type_ in zip(names, types, strict=True)
    ]
    getters = [(at, get) for at, get in enumerate(found) if get is not None]
    plain = [name for name, get in zip(names, found, strict=True) if get is None]
    # A plain field takes the place of the others: reading those would create messages.
    take = attributes_getter([name if name in plain else (plain or names)[0] for name in names])

    def read(message: Any) -> Any:
        found = [*take(message)]
        for at, get in getters:
            found[at] = get(message)
        return kind(*found)

    return read


def _getter(name: str, kind: Any, message: type[Message]) -> Getter | None:
    """Return how a field is read, or None if its value can be used as it is."""
    get = attrgetter(name)
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        if isinstance(inner, type) and issubclass(inner, WireMessage):
            read = _reader(inner)
            return lambda message: [read(one) for one in get(message)]
        return lambda message: [*get(message)]
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.name == "Timestamp":
        return lambda message: _time(get(message)) if message.HasField(name) else UNSET
    if field.has_presence:
        return lambda message: get(message) if message.HasField(name) else UNSET
    return None


def _time(stamp: Any) -> datetime:
    found: datetime = stamp.ToDatetime(tzinfo=UTC)  # raises ValueError if it is out of range
    return found


_SIZED: Final = 2  # wire type of fields with a length
_NO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)  # the zero time of Go


def pack(value: WireMessage) -> bytes:
    """Return a value as a protobuf message."""
    return _writer(type(value))(value)


@cache
def _writer(kind: type[WireMessage]) -> Put:
    known = message_of(kind).DESCRIPTOR.fields_by_name
    fields = [(known[name], ours) for ours, name in fields_of(kind)]
    fields.sort(key=lambda field: field[0].number)
    take = attributes_getter([ours for _, ours in fields])
    puts = [_put(field) for field, _ in fields]
    optional = [bool(field.has_presence and field.message_type is None) for field, _ in fields]
    always = [_is_deadline(field) for field, _ in fields]
    if any(optional) or any(always):
        return lambda value: b"".join(
            put(one)
            for one, put, if_set, in_any_case in zip(
                take(value), puts, optional, always, strict=True
            )
            if one or in_any_case or (if_set and one is not UNSET)
        )

    def write(value: WireMessage) -> bytes:
        # This runs for every item: it does as little as possible.
        return b"".join([put(one) for one, put in zip(take(value), puts) if one])  # noqa: B905 -- see above

    return write


def _is_deadline(field: Field) -> bool:
    """
    Return whether a field is a deadline that every stored item has, also without a time.

    Clients in Go read a missing time as 1970, and the year 1 as no time.
    """
    in_item = field.containing_type is message_of(StorageItem).DESCRIPTOR
    return in_item and field.name in {"lease_deadline", "expire_deadline"}


def _put(field: Field) -> Put:
    """Return how a value is written as this field."""
    message = field.message_type
    if message is None:
        put = _put_one(field)
        return (lambda given: b"".join(map(put, given))) if field.is_repeated else put
    tag = _varint(field.number << 3 | _SIZED)
    if message.GetOptions().map_entry:
        names, texts = (_put_one(one) for one in message.fields)
        return partial(_put_map, tag, names, texts)
    if message is Timestamp.DESCRIPTOR:
        put_time = partial(_put_time, tag)
        return partial(_put_deadline, put_time) if _is_deadline(field) else put_time
    if message is message_of(LeaseItem).DESCRIPTOR:
        return partial(_put_leased, tag)
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


def _put_messages(tag: bytes, given: Sequence[WireMessage]) -> bytes:
    write = _writer(type(given[0]))
    parts: list[bytes] = []
    for one in given:
        body = write(one)
        parts += (tag, _varint(len(body)), body)
    return b"".join(parts)


def _put_leased(tag: bytes, given: Sequence[LeaseItem]) -> bytes:
    """Write items leased together; fields that they share are written once."""
    put_id, put_payload = _leased_parts()
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
        else:  # empty fields are left out
            body = pack(one)
        parts += (tag, _varint(len(body)), body)
    return b"".join(parts)


@cache
def _leased_parts() -> tuple[Put, Put]:
    fields = message_of(LeaseItem).DESCRIPTOR.fields_by_name
    return _put_one(fields["id"]), _put_one(fields["bytes"])


def _put_map(tag: bytes, name: Put, text: Put, given: Mapping[str, str]) -> bytes:
    pairs = [name(key) + text(value) for key, value in given.items()]
    return b"".join([_put_bytes(tag, pair) for pair in pairs])


def _put_deadline(put: Put, time: datetime | UnsetType | None) -> bytes:
    return put(time or _NO_TIME)


@lru_cache(256)
def _put_time(tag: bytes, time: datetime) -> bytes:
    # Items leased together have one deadline, and making a stamp takes long.
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return _put_bytes(tag, stamp.SerializeToString())


@lru_cache(4096)
def _varint(number: int) -> bytes:
    left = number & 0xFFFF_FFFF_FFFF_FFFF  # two's complement of negative numbers
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


class WireFormat(Enum):
    """A format of messages."""

    JSON = "application/json"
    PROTOBUF = "application/protobuf"


_NAMES: Final = {form.value: form for form in WireFormat} | {
    "application/x-protobuf": WireFormat.PROTOBUF
}
_ANY: Final = frozenset({"", "*/*", "application/*"})


@lru_cache(64)  # most clients send the same
def format_of_body(content_type: str, encoding: str = "") -> WireFormat:
    """Return the format of a body by its Content-Type; JSON without one."""
    if encoding not in {"", "identity"}:
        raise UnreadableBody(
            f"Content-Encoding {encoding[:100]!a} is not supported; send the body uncompressed"
        )
    name = _plain(content_type)
    if name in _ANY:
        return WireFormat.JSON
    if name not in _NAMES:
        raise UnreadableBody(f"Content-Type {name[:100]!a} is not supported; send {_choice()}")
    return _NAMES[name]


@lru_cache(64)
def format_of_reply(accept: str, body: WireFormat) -> WireFormat:
    """Return the format that a client accepts; that of the body if it accepts any."""
    accepted = [_plain(one) for one in accept.split(",")]
    for name in accepted:
        if name in _NAMES:
            return _NAMES[name]
    if _ANY.isdisjoint(accepted):
        raise UnsupportedFormat(f"Accept {accept[:100]!a} is not supported; accept {_choice()}")
    return body


def read(body: bytes, form: WireFormat, kind: type[Kind]) -> Kind:
    """Return the message in a body."""
    try:
        if form is WireFormat.PROTOBUF:
            return unpack(body, kind)
        try:
            found: Kind = _decoder(kind)(body)
        except msgspec.ValidationError:  # it is JSON, but not as strict as ours
            found = _read_leniently(body, kind)
    except (ValueError, OverflowError) as error:  # errors of msgspec are ValueErrors as well
        raise UnreadableBody(f"the body is not readable; {error}") from error
    return found


def _read_leniently(body: bytes, kind: type[Kind]) -> Kind:
    """Return the value of a message in protobuf's JSON mapping; raises ValueError."""
    try:
        document = _plain_message(msgspec.json.decode(body), message_of(kind).DESCRIPTOR)
        return msgspec.convert(document, kind)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_FROM_URL: Final = str.maketrans("-_", "+/")


def _plain_message(document: Any, descriptor: Any) -> Any:
    """
    Return a JSON document as the strict reader expects it.

    What does not belong to the message stays in place, so that the strict reader rejects
    it. Raises ValueError if a field is given twice.
    """
    if not isinstance(document, Mapping):
        return document
    fields = _fields(descriptor)
    plain: dict[str, Any] = {}
    for name, value in document.items():
        field = fields.get(name)
        if field is not None and value is None:
            continue
        target = name if field is None else field.name
        if target in plain:
            raise ValueError(f"Object has the field `{target}` twice")
        plain[target] = value if field is None else _plain_field(value, field)
    return plain


@cache
def _fields(descriptor: Any) -> Mapping[str, Field]:
    by_json = {field.json_name: field for field in descriptor.fields}
    return by_json | {field.name: field for field in descriptor.fields}


def _plain_field(value: Any, field: Field) -> Any:
    convert = _conversion(field)
    if field.is_repeated and isinstance(value, list):
        return [convert(one) for one in value]
    return convert(value)


def _conversion(field: Field) -> Callable[[Any], Any]:
    if field.type == FieldDescriptor.TYPE_INT32:
        return _plain_number
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _plain_base64
    if field.message_type is not None:
        return lambda value: _plain_message(value, field.message_type)
    return lambda value: value


def _plain_number(value: Any) -> Any:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _plain_base64(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.translate(_FROM_URL).rstrip("=") + "=" * (-len(value.rstrip("=")) % 4)


def write(value: WireMessage, form: WireFormat) -> bytes:
    """Return a message as a body."""
    return pack(value) if form is WireFormat.PROTOBUF else encode_document(value)


@cache
def _decoder(kind: type[Kind]) -> Callable[[bytes], Kind]:
    return msgspec.json.Decoder(kind).decode


def _plain(name: str) -> str:
    return name.partition(";")[0].strip().lower()


def _choice(forms: Iterable[WireFormat] = WireFormat) -> str:
    return " or ".join(form.value for form in forms)
