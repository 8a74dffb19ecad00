"""
Protobuf read as values, by the names of their fields.

How each type is read is worked out once; what differs between a type and its message
is found out then, not by a client.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin

from google.protobuf.message import DecodeError, Message
from msgspec import UNSET, structs

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
        message = message_of(kind).FromString(body)
    except DecodeError as error:
        raise ValueError(
            f"not a protobuf message of the kind expected: {error}"
        ) from error
    value: S = _reader(kind)(message)
    return value


@cache
def message_of(kind: type[said.Said]) -> type[Message]:
    """The message of a type."""
    found: type[Message] = getattr(pb, _NAMES[kind])
    return found


@cache
def fields_of(kind: type[said.Said]) -> tuple[tuple[str, str], ...]:
    """Names in a type of ours and in its message."""
    known = message_of(kind).DESCRIPTOR.fields
    by_json = {one.json_name: one.name for one in known} | {
        one.name: one.name for one in known
    }
    return tuple((f.name, by_json[f.encode_name]) for f in structs.fields(kind))


def taking(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """What gets the attributes of these names, however many they are."""
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda thing: (get(thing),)


@cache
def _reader(kind: type[said.Said]) -> Getter:
    """Reads all fields at once; then those that take more than that."""
    types = [field.type for field in structs.fields(kind)]
    names = [name for _, name in fields_of(kind)]
    found = [
        _getter(name, type_, message_of(kind))
        for name, type_ in zip(names, types, strict=True)
    ]
    getters = [(at, get) for at, get in enumerate(found) if get is not None]
    plain = [name for name, get in zip(names, found, strict=True) if get is None]
    # Another field keeps their places: reading them would make messages of nothing.
    take = taking([name if name in plain else (plain or names)[0] for name in names])

    def read(message: Any) -> Any:
        found = [*take(message)]
        for at, get in getters:
            found[at] = get(message)
        return kind(*found)

    return read


def _getter(name: str, kind: Any, message: type[Message]) -> Getter | None:
    """What a field is read by, if it is not as it is in the message."""
    get = attrgetter(name)
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        if isinstance(inner, type) and issubclass(inner, said.Said):
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
    found: datetime = stamp.ToDatetime(tzinfo=UTC)  # a ValueError if there is none such
    return found
