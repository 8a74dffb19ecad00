"""What is said in JSON can be said in protobuf, and the other way round."""

from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deadletter.queue_server import formats, querator_pb2, wire
from deadletter.queue_server.routes import CALLS
from queue_server.wire.wire_rig import PROTO

KINDS = list(formats._MESSAGE_NAMES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_types_and_messages_have_the_same_fields(kind: type[wire.WireMessage]) -> None:
    ours = {theirs for _, theirs in formats.fields_of(kind)}
    theirs = {field.name for field in formats.message_of(kind).DESCRIPTOR.fields}

    assert ours == theirs


def test_every_type_has_a_message() -> None:
    everything = {
        one
        for one in vars(wire).values()
        if isinstance(one, type)
        and issubclass(one, wire.WireMessage)
        and one is not wire.WireMessage
    }

    assert everything == set(KINDS)
    assert {call.request for call in CALLS.values()} <= everything


def test_the_checked_in_module_matches_the_proto_file(messages: ModuleType) -> None:
    checked_in = querator_pb2.DESCRIPTOR.serialized_pb

    assert messages.DESCRIPTOR.serialized_pb == checked_in, f"{PROTO.name} has changed: make proto"


# Numbers that clients in the field rely on.
@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("Reply", {"code": 1, "code_text": 2, "message": 3, "details": 4}),
        ("QueueInfo", {"dead_queue": 4, "max_attempts": 8, "namespace": 11}),
        ("QueuesListRequest", {"pivot": 2, "limit": 3, "namespace": 4}),
        ("ProduceItem", {"enqueue_at": 4, "bytes": 5, "utf8": 6}),
        ("QueueProduceRequest", {"queue_name": 1, "request_timeout": 2, "items": 3}),
        ("QueueLeaseRequest", {"batch_size": 2, "client_id": 3, "request_timeout": 4}),
        ("QueueLeaseResponse", {"queue_name": 1, "partition": 2, "items": 3}),
        ("LeaseItem", {"id": 4, "attempts": 5, "lease_deadline": 6, "bytes": 7}),
        ("QueueCompleteRequest", {"partition": 2, "request_timeout": 3, "ids": 4}),
        ("RetryItem", {"id": 1, "retry_at": 2, "dead": 3}),
        ("QueueClearRequest", {"scheduled": 3, "queue": 4, "destructive": 5}),
        ("LogicalStats", {"produce_waiting": 6, "in_flight": 10, "partitions": 11}),
        ("StorageItem", {"source_id": 2, "is_leased": 3, "payload": 15}),
        ("StorageItemsImportResponse", {"items": 2}),
    ],
)
def test_numbers_are_those_of_the_wire(message: str, numbers: dict[str, int]) -> None:
    fields = getattr(querator_pb2, message).DESCRIPTOR.fields_by_name

    assert {name: fields[name].number for name in numbers} == numbers


def _values(kind: type[wire.WireMessage]) -> st.SearchStrategy[wire.WireMessage]:
    return st.builds(kind, **{field.name: _value(field.type) for field in structs.fields(kind)})


def _value(kind: Any) -> st.SearchStrategy[Any]:
    text = repr(kind)
    if "datetime" in text:
        times = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001
        return times.map(lambda time: time.replace(tzinfo=UTC))
    if "list" in text:
        inner = kind.__args__[0]
        is_said = isinstance(inner, type) and issubclass(inner, wire.WireMessage)
        return st.lists(_values(inner) if is_said else st.text(), max_size=3)
    if "dict" in text:
        return st.dictionaries(st.text(), st.text(), max_size=3)
    if "bool" in text:
        return st.booleans()
    if "bytes" in text:
        return st.binary(max_size=20)
    return st.integers(-(2**31), 2**31 - 1) if "int" in text else st.text(max_size=20)


@pytest.mark.parametrize(
    "kind", [one for one in KINDS if one is not wire.Reply], ids=lambda kind: kind.__name__
)
@given(data=st.data())
def test_nothing_is_lost_on_the_way(kind: type[wire.WireMessage], data: st.DataObject) -> None:
    value = data.draw(_values(kind))

    assert formats.unpack(formats.pack(value), kind) == value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_written_bytes_match_the_protobuf_library(
    kind: type[wire.WireMessage], data: st.DataObject
) -> None:
    written = formats.pack(data.draw(_values(kind)))

    message = formats.message_of(kind).FromString(written)

    again = message.SerializeToString(deterministic=True)
    assert len(again) == len(written)
    if kind not in {wire.Reply, wire.LeaseReply}:  # where the order is another one
        assert again == written


@pytest.mark.parametrize("empty", [{"dead_queue": ""}, {"max_attempts": 0}])
def test_empty_is_told_where_it_matters(empty: dict[str, Any]) -> None:
    given = wire.QueueInfo(queue_name="mail", **empty)

    assert formats.unpack(formats.pack(given), wire.QueueInfo) == given
