"""Envelopes of pipelines: read from the wire, and unwrapped into letters."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialect_rig import KEYS, NOW, THEN, dialect, found, read, theirs
from deadletter.core.burial import sign_copy
from deadletter.core.errors import ConfigError, Malformed
from deadletter.core.failure import Reason, Trouble
from deadletter.core.protobuf import read_fields
from deadletter.intake.dialects import letter_of
from deadletter.profiles.pipeline import NodeTopics, input_topic, open_envelope, topics_in
from office.making import make_letter
from pipeline import pipestream_pb2 as pb
from pipeline.dlq import policy_of
from pipeline.graph import read as read_graph

NODE = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b10"
PLACE = f"dlq.prod.{NODE}"
TEXTS = st.text(min_size=1, max_size=20)


def envelope(**fields: object) -> pb.DlqMessage:
    message = pb.DlqMessage(
        stream=pb.PipeStream(stream_id="s-1", hop_count=2),
        error_type="TIMEOUT",
        error_message="module did not answer",
        retry_count=3,
        failed_node_id=NODE,
        original_topic=f"prod.{NODE}",
        original_offset=7,
    )
    message.failed_at.FromDatetime(THEN)
    message.MergeFrom(pb.DlqMessage(**fields))  # type: ignore[arg-type]
    return message


@given(TEXTS, TEXTS, TEXTS, st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_fields_are_read_as_the_protobuf_library_writes_them(
    error: str, text: str, node: str, retries: int, offset: int
) -> None:
    written = envelope(
        error_type=error,
        error_message=text,
        failed_node_id=node,
        retry_count=retries,
        original_offset=offset,
        original_partition=4,
    )

    opened = open_envelope(written.SerializeToString())

    message = opened.message
    assert message.stream == written.stream.SerializeToString()
    assert (message.error_type, message.error_message) == (error, text)
    assert message.failed_at == THEN
    assert message.failed_node_id == node
    assert message.retry_count == (retries or 3)  # 0 is not on the wire: it does not merge
    assert message.original_offset == (offset or 7)
    assert opened.partition == 4


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        assert isinstance(read_fields(data), dict)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff not an envelope",
        envelope().SerializeToString()[:-3] + b"\x80",
        pb.DlqMessage(error_type="TIMEOUT", failed_node_id=NODE).SerializeToString(),
        envelope().stream.SerializeToString(),
    ],
)
def test_other_bytes_are_not_an_envelope(data: bytes) -> None:
    with pytest.raises(Malformed):
        open_envelope(data)


def test_the_letter_of_an_envelope_has_the_stream_inside() -> None:
    written = envelope()

    letter = read(kind="kafka", place=PLACE, id=f"{PLACE}/0/5", body=written.SerializeToString())

    head = letter.head
    assert letter.message.body == written.stream.SerializeToString()
    assert dialect(letter) == "pipestream"
    assert head.source == f"prod.{NODE}"
    assert head.message_id == f"{PLACE}/0/5"  # the partition of the original is not known
    assert (head.trouble, head.code) == (Trouble.TRANSIENT, "TIMEOUT")
    assert head.error_text == "module did not answer"
    assert (head.reason, head.attempts) == (Reason.ATTEMPTS_EXHAUSTED, 3)
    assert (head.dead_at, head.consumer) == (THEN, NODE)


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("MAX_HOPS_EXCEEDED", Trouble.LOOP),
        ("MALFORMED", Trouble.MALFORMED),
        ("INVALID_ARGUMENT", Trouble.PERMANENT),
        ("MODULE_UNAVAILABLE", Trouble.TRANSIENT),
        ("SOMETHING_ELSE", Trouble.TRANSIENT),
    ],
)
def test_the_trouble_follows_from_the_error_type(code: str, trouble: Trouble) -> None:
    body = envelope(error_type=code).SerializeToString()

    head = read(kind="kafka", place=PLACE, body=body).head

    assert (head.trouble, head.code) == (trouble, code)


def test_the_name_of_the_topic_counts_before_what_an_envelope_claims() -> None:
    body = envelope(original_topic="payments").SerializeToString()

    assert read(kind="kafka", place=PLACE, body=body).head.source == f"prod.{NODE}"


def test_bodies_in_other_topics_stay_as_they_are() -> None:
    body = envelope().SerializeToString()

    letter = read(kind="kafka", place="orders.dlq", body=body)

    assert letter.message.body == body


def test_a_content_type_marks_envelopes_in_other_topics() -> None:
    written = envelope()
    headers = {"content-type": "application/x-protobuf; messageType=pipestream.DlqMessage"}

    letter = read(
        kind="kafka", place="graveyard", body=written.SerializeToString(), headers=headers
    )

    assert letter.message.body == written.stream.SerializeToString()
    assert theirs(letter) == {}


@pytest.mark.parametrize(
    "body", [b"\xff not a stream", b"", b"{}", pb.PipeStream(hop_count=1).SerializeToString()]
)
def test_a_copy_of_our_own_leads_back_to_its_letter(body: bytes) -> None:
    """The bytes that died come back exactly, whatever the envelope has them in."""
    one = pb.GraphNode(node_id=NODE)
    node = read_graph(pb.Graph(cluster_id="prod", nodes=[one])).nodes[NODE]
    letter = make_letter(1, source=node.topic, body=body)
    copy = sign_copy(policy_of(node).dead_copy(letter), letter, node.dlq.topic, KEYS)
    headers = (
        *copy.headers,
        ("content-type", (copy.content_type or "").encode()),
        ("dlq-message-id", copy.id.encode()),
    )

    again = letter_of(
        found(kind="kafka", place=node.dlq.topic, body=copy.body, headers=headers), NOW, KEYS
    )

    assert copy.body != body
    assert again.id == letter.id
    assert again.message.body == body
    assert again.message.id == letter.message.id


def test_topics_of_nodes_follow_from_the_graph() -> None:
    graph = f"""{{"clusterId": "prod", "maxHops": "3", "nodes": [
        {{"nodeId": "{NODE}", "moduleId": "parser"}},
        {{"nodeId": "b", "kafkaInputTopic": "intake", "dlqConfig": {{"topic": "graveyard"}}}}]}}"""

    assert topics_in(graph.encode()) == {
        NODE: NodeTopics(f"prod.{NODE}", PLACE),
        "b": NodeTopics("intake", "graveyard"),
    }


@pytest.mark.parametrize("graph", [b"", b"[]", b"\xff", b'{"nodes": []}'])
def test_an_invalid_graph_is_rejected(graph: bytes) -> None:
    with pytest.raises(ConfigError, match="the graph of the pipeline is invalid"):
        topics_in(graph)


def test_only_topics_named_after_a_node_have_an_input_topic() -> None:
    assert input_topic(PLACE) == f"prod.{NODE}"
    for other in ("dlq.prod.ocr", f"prod.{NODE}", f"dlq.{NODE}", "orders.dlq"):
        assert input_topic(other) == ""
