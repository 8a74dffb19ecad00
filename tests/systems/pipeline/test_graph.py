"""What a graph says, and what is assumed where it says nothing."""

import json
from pathlib import Path

import pytest

from deadletter import ConfigError, Delivery, DLQPolicy, Message
from deadletter.core.failure import Bury, Decision, Retry
from deadletter.core.failure.capture import capture
from deadletter.core.policy import Situation
from office.making import NOW
from pipeline import graph
from pipeline import pipestream_pb2 as pb
from pipeline.dlq import policy_of
from pipeline.errors import (
    DocumentMissing,
    MalformedStream,
    MaxHopsExceeded,
    ModuleFailed,
    ModuleTimeout,
    ModuleUnavailable,
)

NODE = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b10"
OTHER = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b11"


def node(**described: object) -> graph.Node:
    one = pb.GraphNode(node_id=NODE, **described)  # type: ignore[arg-type]
    return graph.read(pb.Graph(cluster_id="prod", nodes=[one])).nodes[NODE]


def config(**fields: object) -> graph.Patience:
    return node(dlq_config=pb.DlqConfig(**fields)).patience  # type: ignore[arg-type]


def decided(policy: DLQPolicy, error: Exception, attempt: int) -> Decision:
    message = Message(id="m", body=b"", sent_at=NOW)
    failed = Situation(
        delivery=Delivery(message=message, mailbox="prod.x", attempt=attempt),
        failure=capture(error, policy.classifier),
        error=error,
    )
    return policy.decide(failed, draw=0.5)


def test_a_node_without_a_config_has_all_defaults() -> None:
    assert node().patience == graph.Patience(
        enabled=True, topic=f"dlq.prod.{NODE}", tries=3, backoff=1.0
    )
    assert node().patience == config()


def test_enabled_is_true_unless_somebody_says_otherwise() -> None:
    assert config(max_retries=1).enabled
    assert config(enabled=True).enabled
    assert not config(enabled=False).enabled
    # Said on the wire, too: a plain bool would leave its default out.
    assert pb.DlqConfig(enabled=False).SerializeToString() == b"\x08\x00"
    assert pb.DlqConfig.FromString(b"\x08\x00").HasField("enabled")


def test_the_fields_of_the_config_have_the_numbers_agreed_on() -> None:
    fields = pb.DlqConfig.DESCRIPTOR.fields_by_name
    assert {name: field.number for name, field in fields.items()} == {
        "enabled": 1,
        "topic": 2,
        "max_retries": 3,
        "retry_backoff": 4,
    }
    assert fields["retry_backoff"].message_type.full_name == "google.protobuf.Duration"
    in_node = pb.GraphNode.DESCRIPTOR.fields_by_name["dlq_config"]
    assert in_node.message_type.full_name == "pipestream.DlqConfig"


def test_a_topic_of_its_own_takes_the_place_of_the_usual_one() -> None:
    assert config(topic="graveyard").topic == "graveyard"
    assert config(topic="").topic == f"dlq.prod.{NODE}"
    assert policy_of(node(dlq_config=pb.DlqConfig(topic="graveyard"))).dead_queue == ("graveyard")


@pytest.mark.parametrize(
    ("told", "tries"), [({}, 3), ({"max_retries": 5}, 5), ({"max_retries": 1}, 1)]
)
def test_max_retries_is_how_often_a_stream_is_tried(told: dict[str, int], tries: int) -> None:
    policy = policy_of(node(dlq_config=pb.DlqConfig(**told)))  # type: ignore[arg-type]
    away = ModuleUnavailable("away")

    for attempt in range(1, tries):
        assert isinstance(decided(policy, away, attempt), Retry)
    assert isinstance(decided(policy, away, tries), Bury)


def test_no_retries_at_all_is_one_try_and_not_for_ever() -> None:
    assert config(max_retries=0).tries == 1
    policy = policy_of(node(dlq_config=pb.DlqConfig(max_retries=0)))

    assert isinstance(decided(policy, ModuleTimeout("late"), 1), Bury)


def test_the_nth_wait_is_n_times_as_long() -> None:
    told = pb.DlqConfig(max_retries=5)
    told.retry_backoff.FromMilliseconds(250)
    policy = policy_of(node(dlq_config=told))

    waits = [decided(policy, ModuleUnavailable("away"), n) for n in (1, 2, 3, 4)]

    assert waits == [Retry(0.25), Retry(0.5), Retry(0.75), Retry(1.0)]
    assert isinstance(decided(policy, ModuleUnavailable("away"), 5), Bury)


def test_only_modules_that_are_away_or_late_are_tried_again() -> None:
    policy = policy_of(node())

    for error in (ModuleUnavailable("away"), ModuleTimeout("late")):
        assert isinstance(decided(policy, error, 1), Retry)
    for other in (
        MalformedStream("no stream"),
        DocumentMissing("no such document"),
        MaxHopsExceeded("round and round"),
        ModuleFailed("no picture", "INVALID_ARGUMENT"),
        ModuleFailed("a bug", "INTERNAL"),
        KeyError("language"),
        ZeroDivisionError(),
    ):
        assert isinstance(decided(policy, other, 1), Bury)


def test_a_node_reads_the_topic_named_after_it_unless_told_otherwise() -> None:
    assert node().topic == f"prod.{NODE}"
    assert node(kafka_input_topic="intake").topic == "intake"


def test_a_graph_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text(
        f"""{{"clusterId": "eu", "maxHops": 0, "nodes": [
            {{"nodeId": "{NODE}", "moduleId": "parser", "nextNodeIds": ["{OTHER}"],
              "dlqConfig": {{"maxRetries": 2, "retryBackoff": "0.5s"}}}},
            {{"nodeId": "{OTHER}", "moduleId": "chunker", "timeout": "2.5s"}}]}}"""
    )

    loaded = graph.load(file)

    assert loaded.max_hops == 0
    assert loaded.nodes[NODE].next == (OTHER,)
    assert loaded.nodes[NODE].patience.tries == 2
    assert loaded.nodes[NODE].patience.backoff == 0.5
    assert loaded.nodes[OTHER].timeout == 2.5
    assert loaded.nodes[OTHER].patience.tries == 3
    assert graph.read(pb.Graph(cluster_id="prod")).max_hops == 50


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ([{"nodez": 1}], "is no graph"),
        ([{"nodeId": "ocr"}], "'ocr' is no node_id"),
        ([{"nodeId": NODE}, {"nodeId": NODE.upper()}], "the same node_id"),
        ([{"nodeId": NODE, "nextNodeIds": [OTHER]}], f"{OTHER}: no such node"),
        ([{"nodeId": NODE, "dlqConfig": {"maxRetries": -1}}], "below 0"),
        ([{"nodeId": NODE, "dlqConfig": {"retryBackoff": "-1s"}}], "below 0"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(
    tmp_path: Path, nodes: list[object], complaint: str
) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"clusterId": "prod", "nodes": nodes}))

    with pytest.raises(ConfigError, match=complaint):
        graph.load(file)


def test_a_graph_without_a_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match="cluster_id"):
        graph.read(pb.Graph())
