"""What stands in a dead-letter topic."""

import time
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from pipeline import pipestream_pb2 as pb
from systems.pipeline.rig import Rig, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")
KINDS = {  # protobuf's own numbers for the kinds of fields
    "int32": 5,
    "int64": 3,
    "message": 11,
    "string": 9,
}


def test_the_fields_have_the_numbers_and_types_agreed_on() -> None:
    fields = pb.DlqMessage.DESCRIPTOR.fields
    agreed = [(f.number, f.name, f.type) for f in fields if f.number < 20]
    assert agreed == [
        (1, "stream", KINDS["message"]),
        (2, "error_type", KINDS["string"]),
        (3, "error_message", KINDS["string"]),
        (4, "failed_at", KINDS["message"]),
        (5, "retry_count", KINDS["int32"]),
        (6, "failed_node_id", KINDS["string"]),
        (7, "original_topic", KINDS["string"]),
        (8, "original_offset", KINDS["int64"]),
    ]
    kinds = pb.DlqMessage.DESCRIPTOR.fields_by_name
    assert kinds["stream"].message_type.full_name == "pipestream.PipeStream"
    assert kinds["failed_at"].message_type.full_name == "google.protobuf.Timestamp"


def test_every_field_says_what_happened(rig: Rig) -> None:
    before = time.time()
    rig.send("chunk", rig.stream("chunk"))  # so that the offset is not 0
    stream = rig.stream("chunk", wrong, hop_count=2)
    stream.history.add(node_id="somewhere", hop=1)
    offset = rig.send("chunk", stream)

    dead = rig.death_of("chunk", stream)

    message = dead.message
    assert message.stream == stream
    assert message.error_type == "GRPC_INVALID_ARGUMENT"
    assert message.error_message.startswith("module usual at 127.0.0.1:")
    assert before <= message.failed_at.ToMicroseconds() / 1e6 <= time.time()
    assert message.retry_count == 1
    assert message.failed_node_id == rig.ids["chunk"]
    assert message.original_topic == rig.topic("chunk")
    assert message.original_offset == offset > 0
    assert dead.key == stream.stream_id.encode()


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


def test_the_partition_is_told_because_an_offset_alone_finds_nothing(rig: Rig) -> None:
    stream = rig.stream("embed", wrong)
    offset = rig.send("embed", stream, partition=2)

    dead = rig.death_of("embed", stream).message

    assert (dead.original_partition, dead.original_offset) == (2, offset)


def test_a_topic_of_its_own_and_a_dead_letter_topic_of_its_own(rig: Rig) -> None:
    stream = rig.stream("named", wrong)
    rig.send("named", stream, f"{rig.cluster}-intake")

    dead = rig.death_of("named", stream, f"{rig.cluster}-graveyard").message

    assert dead.original_topic == f"{rig.cluster}-intake"
    assert dead.failed_node_id == rig.ids["named"]
    assert rig.dlq_topic("named") not in topics(rig)


def test_where_publishing_is_off_the_letter_is_kept_all_the_same(
    rig: Rig, dlq: httpx.Client
) -> None:
    stream = rig.stream("silent", wrong)
    rig.send("silent", stream)

    (letter,) = rig.wait_for("a letter", lambda: rig.letters(dlq, "silent"))

    assert letter["error_type"] == "pipeline.errors.ModuleFailed"
    assert rig.dlq_topic("silent") not in topics(rig)


def topics(rig: Rig) -> Any:
    return AdminClient({"bootstrap.servers": rig.bootstrap}).list_topics().topics
