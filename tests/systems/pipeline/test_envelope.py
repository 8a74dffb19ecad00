"""Messages in dead-letter topics."""

import time
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from google.protobuf.descriptor import FieldDescriptor
from msgspec import Struct

from pipeline import pipestream_pb2 as pb
from systems.pipeline.rig import Dead, Rig, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")
FIELD = FieldDescriptor


class Death(Struct, frozen=True):
    """A stream that died, and what its topic has of it."""

    stream: pb.PipeStream
    offset: int
    sent_at: float
    dead: Dead
    seen_at: float

    @property
    def message(self) -> pb.DlqMessage:
        return self.dead.message


@pytest.fixture(scope="module")
def death(rig: Rig) -> Death:
    rig.send("chunk", rig.stream("chunk"))  # so that the offset is not 0
    stream = rig.stream("chunk", wrong, hop_count=2)
    stream.history.add(node_id="somewhere", hop=1)
    sent_at = time.time()
    offset = rig.send("chunk", stream)
    return Death(stream, offset, sent_at, rig.death_of("chunk", stream), time.time())


def described(name: str) -> tuple[int, int]:
    """Return number and type of a field of `DlqMessage`."""
    field = pb.DlqMessage.DESCRIPTOR.fields_by_name[name]
    return field.number, field.type


def test_added_fields_leave_room_for_those_of_others() -> None:
    numbers = {field.number for field in pb.DlqMessage.DESCRIPTOR.fields}

    assert {number for number in numbers if number < 20} == set(range(1, 9))


def test_stream_is_the_stream_that_failed(death: Death) -> None:
    field = pb.DlqMessage.DESCRIPTOR.fields_by_name["stream"]

    assert described("stream") == (1, FIELD.TYPE_MESSAGE)
    assert field.message_type.full_name == "pipestream.PipeStream"
    assert death.message.stream == death.stream
    assert death.dead.key == death.stream.stream_id.encode()


def test_error_type_is_a_code(death: Death) -> None:
    assert described("error_type") == (2, FIELD.TYPE_STRING)
    assert death.message.error_type == "GRPC_INVALID_ARGUMENT"


def test_error_message_is_a_text(death: Death) -> None:
    assert described("error_message") == (3, FIELD.TYPE_STRING)
    assert death.message.error_message.startswith("module usual at 127.0.0.1:")
    assert death.message.error_message.endswith(": this is no picture")


def test_failed_at_is_the_time_of_the_failure(death: Death) -> None:
    field = pb.DlqMessage.DESCRIPTOR.fields_by_name["failed_at"]

    assert described("failed_at") == (4, FIELD.TYPE_MESSAGE)
    assert field.message_type.full_name == "google.protobuf.Timestamp"
    assert death.sent_at <= death.message.failed_at.ToMicroseconds() / 1e6 <= death.seen_at


def test_retry_count_is_the_number_of_attempts(death: Death) -> None:
    assert described("retry_count") == (5, FIELD.TYPE_INT32)
    assert death.message.retry_count == 1


def test_failed_node_id_is_the_node_that_gave_up(rig: Rig, death: Death) -> None:
    assert described("failed_node_id") == (6, FIELD.TYPE_STRING)
    assert death.message.failed_node_id == rig.ids["chunk"]


def test_original_topic_is_the_input_topic(rig: Rig, death: Death) -> None:
    assert described("original_topic") == (7, FIELD.TYPE_STRING)
    assert death.message.original_topic == rig.topic("chunk")


def test_original_offset_is_the_offset_of_the_record(death: Death) -> None:
    assert described("original_offset") == (8, FIELD.TYPE_INT64)
    assert death.message.original_offset == death.offset > 0


def test_a_stream_carries_a_reference_and_never_the_document(rig: Rig) -> None:
    stream = rig.stream("embed", wrong)
    big = pb.PipeDoc(doc_id=stream.document_ref.doc_id, body="x" * 5_000_000)
    rig.documents.put(big)
    rig.send("embed", stream)

    dead = rig.death_of("embed", stream)

    assert len(rig.modules.of(stream.stream_id)[0].request.document.body) == 5_000_000
    assert len(dead.value) < 1_000
    assert dead.message.stream.document_ref == stream.document_ref
    kinds = [field.message_type for field in pb.PipeStream.DESCRIPTOR.fields]
    assert pb.PipeDoc.DESCRIPTOR not in kinds


def test_the_partition_is_an_added_field(rig: Rig) -> None:
    stream = rig.stream("embed", wrong)
    offset = rig.send("embed", stream, partition=2)

    dead = rig.death_of("embed", stream).message

    assert (dead.original_partition, dead.original_offset) == (2, offset)


def test_both_topics_of_a_node_can_have_other_names(rig: Rig) -> None:
    stream = rig.stream("named", wrong)
    rig.send("named", stream, f"{rig.cluster}-intake")

    dead = rig.death_of("named", stream, f"{rig.cluster}-graveyard").message

    assert dead.original_topic == f"{rig.cluster}-intake"
    assert dead.failed_node_id == rig.ids["named"]
    assert rig.dlq_topic("named") not in topics(rig)


def test_the_letter_is_kept_where_publishing_is_off(rig: Rig, dlq: httpx.Client) -> None:
    stream = rig.stream("silent", wrong)
    rig.send("silent", stream)

    (letter,) = rig.wait_for("a letter", lambda: rig.letters(dlq, "silent"))

    assert letter["error_type"] == "pipeline.errors.ModuleFailed"
    assert rig.dlq_topic("silent") not in topics(rig)


def topics(rig: Rig) -> Any:
    return AdminClient({"bootstrap.servers": rig.bootstrap}).list_topics().topics
