"""
Values to protobuf and back, by the names of their fields.

How each type is read and written is worked out once; what differs between a type
and its message is found out then, not by a client.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import UNSET, Struct, structs

from . import querator_pb2 as pb
from . import said

S = TypeVar("S", bound=said.Said)
Getter: TypeAlias = Callable[[Any], Any]

_NAMES: Final = MappingProxyType(
    {
        said.Reply: "Reply",
        said.Named: "QueuesInfoRequest",
        said.Partition: "Partition",
        said.QueueInfo: "QueueInfo",
        said.ListQueues: "QueuesListRequest",
        said.Queues: "QueuesListResponse",
        said.DeleteQueue: "QueuesDeleteRequest",
        said.ProduceItem: "ProduceItem",
        said.Produce: "QueueProduceRequest",
        said.Lease: "QueueLeaseRequest",
        said.LeaseItem: "LeaseItem",
        said.Lent: "QueueLeaseResponse",
        said.Complete: "QueueCompleteRequest",
        said.RetryItem: "RetryItem",
        said.Retry: "QueueRetryRequest",
        said.PartitionStats: "PartitionStats",
        said.LogicalStats: "LogicalStats",
        said.Stats: "QueueStatsResponse",
        said.Clear: "QueueClearRequest",
        said.StorageItem: "StorageItem",
        said.ListItems: "StorageItemsListRequest",
        said.Items: "StorageItemsListResponse",
        said.ImportItems: "StorageItemsImportRequest",
        said.Imported: "StorageItemsImportResponse",
        said.DeleteItems: "StorageItemsDeleteRequest",
    }
)

"""The message of each type. Those that only name a queue are all alike."""


def unpack(body: bytes, kind: type[S]) -> S:
    """The value a message stands for; a ValueError if it is none."""
    try:
        message = _class(kind).FromString(body)
    except DecodeError as error:
        raise ValueError(
            f"not a protobuf message of the kind expected: {error}"
        ) from error
    value: S = _reader(kind)(message)
    return value


def pack(value: said.Said) -> bytes:
    """A value as a message."""
    return _writer(type(value))(value).SerializeToString()


@cache
def _writer(kind: type[said.Said]) -> Callable[[said.Said], Message]:
    make = _class(kind)
    told = {field.name: field.has_presence for field in make.DESCRIPTOR.fields}
    fields = [(attrgetter(ours), name, told[name]) for ours, name in _fields(kind)]

    def write(value: said.Said) -> Message:
        found: dict[str, Any] = {}
        for get, name, is_told in fields:
            given = get(value)
            if not given and (given is UNSET or not is_told):
                continue  # what is empty is not sent, unless it matters that it is
            if isinstance(given, datetime):
                given = _stamp(given)
            elif isinstance(given, list) and isinstance(given[0], Struct):
                given = [*map(_writer(type(given[0])), given)]
            found[name] = given
        return make(**found)

    return write


@lru_cache(256)
def _stamp(time: datetime) -> Timestamp:
    # What is leased together has one deadline, and making a stamp takes long.
    stamp = Timestamp()
    stamp.FromDatetime(time)
    return stamp


@cache
def _class(kind: type[said.Said]) -> type[Message]:
    found: type[Message] = getattr(pb, _NAMES[kind])
    return found


@cache
def _fields(kind: type[said.Said]) -> tuple[tuple[str, str], ...]:
    """Names in our type and in the message."""
    known = _class(kind).DESCRIPTOR.fields
    by_json = {one.json_name: one.name for one in known} | {
        one.name: one.name for one in known
    }
    return tuple((f.name, by_json[f.encode_name]) for f in structs.fields(kind))


@cache
def _reader(kind: type[said.Said]) -> Getter:
    named = dict(_fields(kind))
    getters = {
        field.name: _getter(named[field.name], field.type, _class(kind))
        for field in structs.fields(kind)
    }

    def read(message: Any) -> Any:
        return kind(**{name: get(message) for name, get in getters.items()})

    return read


def _getter(name: str, kind: Any, message: type[Message]) -> Getter:
    get = attrgetter(name)
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        if isinstance(inner, type) and issubclass(inner, said.Said):
            read = _reader(inner)
            return lambda message: [read(one) for one in get(message)]
        return lambda message: list(get(message))
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.name == "Timestamp":
        return lambda message: _time(get(message)) if message.HasField(name) else UNSET
    if field.has_presence:
        return lambda message: get(message) if message.HasField(name) else UNSET
    return get


def _time(stamp: Any) -> datetime:
    found: datetime = stamp.ToDatetime(tzinfo=UTC)  # a ValueError if there is none such
    return found
