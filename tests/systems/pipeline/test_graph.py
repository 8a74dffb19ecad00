"""Graphs, their defaults, and the policy that comes of a node."""

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from deadletter import ConfigError, Delivery, DLQPolicy, Message
from deadletter.core.failure import Bury, Decision, Retry
from deadletter.core.failure.capture import capture
from deadletter.core.policy import Situation
from deadletter.profiles import OUTAGE_BRAKE
from office.making import NOW
from pipeline import graph
from pipeline import pipestream_pb2 as pb
from pipeline.dlq import brake_of, policy_of
from pipeline.errors import (
    DocumentMissing,
    MalformedStream,
    MaxHopsExceeded,
    ModuleFailed,
    ModuleTimeout,
    ModuleUnavailable,
)

FIELD = FieldDescriptor
NODE = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b10"
OTHER = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b11"


def node(**described: object) -> graph.Node:
    one = pb.GraphNode(node_id=NODE, **described)  # type: ignore[arg-type]
    return graph.read(pb.Graph(cluster_id="prod", nodes=[one])).nodes[NODE]


def config(**fields: object) -> graph.DlqSettings:
    return node(dlq_config=pb.DlqConfig(**fields)).dlq  # type: ignore[arg-type]


def decided(policy: DLQPolicy, error: Exception, attempt: int) -> Decision:
    message = Message(id="m", body=b"", sent_at=NOW)
    failed = Situation(
        delivery=Delivery(message=message, mailbox="prod.x", attempt=attempt),
        failure=capture(error, policy.classifier),
        error=error,
    )
    return policy.decide(failed, draw=0.5)


def test_a_node_without_a_config_has_all_defaults() -> None:
    assert node().dlq == graph.DlqSettings(
        enabled=True, topic=f"dlq.prod.{NODE}", tries=3, backoff=1.0
    )
    assert node().dlq == config()


@pytest.mark.parametrize(
    ("name", "number", "kind"),
    [
        ("enabled", 1, FIELD.TYPE_BOOL),
        ("topic", 2, FIELD.TYPE_STRING),
        ("max_retries", 3, FIELD.TYPE_INT32),
        ("retry_backoff", 4, FIELD.TYPE_MESSAGE),
    ],
)
def test_fields_of_the_config_have_the_documented_numbers(
    name: str, number: int, kind: int
) -> None:
    field = pb.DlqConfig.DESCRIPTOR.fields_by_name[name]

    assert (field.number, field.type) == (number, kind)


def test_fields_added_to_the_config_leave_room_for_those_of_others() -> None:
    numbers = {field.number for field in pb.DlqConfig.DESCRIPTOR.fields}

    assert {number for number in numbers if number < 20} == {1, 2, 3, 4}


def test_the_backoff_is_a_duration() -> None:
    field = pb.DlqConfig.DESCRIPTOR.fields_by_name["retry_backoff"]

    assert field.message_type.full_name == "google.protobuf.Duration"


def test_each_node_has_a_config_of_its_own() -> None:
    field = pb.GraphNode.DESCRIPTOR.fields_by_name["dlq_config"]

    assert field.message_type.full_name == "pipestream.DlqConfig"
    assert not field.is_repeated


def test_dead_letters_are_published_by_default() -> None:
    assert node().dlq.enabled
    assert config(max_retries=1).enabled
    assert policy_of(node()).dead_queue == f"dlq.prod.{NODE}"


def test_publishing_can_be_switched_off() -> None:
    assert config(enabled=True).enabled
    assert not config(enabled=False).enabled
    assert policy_of(node(dlq_config=pb.DlqConfig(enabled=False))).dead_queue is None
    # False is on the wire, too: a bool without presence would be left out.
    assert pb.DlqConfig(enabled=False).SerializeToString() == b"\x08\x00"
    assert pb.DlqConfig.FromString(b"\x08\x00").HasField("enabled")


def test_three_attempts_are_made_by_default() -> None:
    assert node().dlq.tries == 3
    assert config().tries == 3
    assert policy_of(node()).max_attempts == 3


def test_the_backoff_is_a_second_by_default() -> None:
    assert node().dlq.backoff == 1.0
    assert decided(policy_of(node()), ModuleUnavailable("away"), 1) == Retry(1.0)


def test_the_default_topic_is_named_after_cluster_and_node() -> None:
    assert node().dlq.topic == f"dlq.prod.{NODE}"


def test_nodes_do_not_brake_by_default() -> None:
    assert brake_of(node()) is None
    assert brake_of(node(dlq_config=pb.DlqConfig(brake=False))) is None


def test_the_brake_is_a_switch_of_each_node() -> None:
    assert brake_of(node(dlq_config=pb.DlqConfig(brake=True))) == OUTAGE_BRAKE


def test_the_dead_letter_topic_can_have_another_name() -> None:
    assert config(topic="graveyard").topic == "graveyard"
    assert config(topic="").topic == f"dlq.prod.{NODE}"
    assert policy_of(node(dlq_config=pb.DlqConfig(topic="graveyard"))).dead_queue == ("graveyard")


@pytest.mark.parametrize(
    ("told", "tries"), [({}, 3), ({"max_retries": 5}, 5), ({"max_retries": 1}, 1)]
)
def test_max_retries_is_the_number_of_attempts(told: dict[str, int], tries: int) -> None:
    policy = policy_of(node(dlq_config=pb.DlqConfig(**told)))  # type: ignore[arg-type]
    away = ModuleUnavailable("away")

    for attempt in range(1, tries):
        assert isinstance(decided(policy, away, attempt), Retry)
    assert isinstance(decided(policy, away, tries), Bury)


def test_max_retries_of_zero_makes_one_attempt() -> None:
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


def test_unavailable_modules_and_timeouts_are_retried() -> None:
    policy = policy_of(node())

    for error in (ModuleUnavailable("away"), ModuleTimeout("late")):
        assert isinstance(decided(policy, error, 1), Retry)


def test_no_other_error_is_retried() -> None:
    policy = policy_of(node())

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


def test_input_topics_are_named_after_cluster_and_node() -> None:
    assert node().topic == f"prod.{NODE}"


def test_an_input_topic_can_have_another_name() -> None:
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
    assert loaded.nodes[NODE].dlq.tries == 2
    assert loaded.nodes[NODE].dlq.backoff == 0.5
    assert loaded.nodes[OTHER].timeout == 2.5
    assert loaded.nodes[OTHER].dlq.tries == 3
    assert graph.read(pb.Graph(cluster_id="prod")).max_hops == 50


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ([{"nodez": 1}], "is not a graph"),
        ([{"nodeId": "ocr"}], "must be a UUID, got 'ocr'"),
        ([{"nodeId": NODE}, {"nodeId": NODE.upper()}], "the same node_id"),
        ([{"nodeId": NODE, "nextNodeIds": [OTHER]}], f"{OTHER}, which is not a node"),
        ([{"nodeId": NODE, "dlqConfig": {"maxRetries": -1}}], "below 0"),
        ([{"nodeId": NODE, "dlqConfig": {"retryBackoff": "-1s"}}], "below 0"),
    ],
)
def test_invalid_graphs_are_rejected(tmp_path: Path, nodes: list[object], complaint: str) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"clusterId": "prod", "nodes": nodes}))

    with pytest.raises(ConfigError, match=complaint):
        graph.load(file)


def test_a_graph_without_a_cluster_is_rejected() -> None:
    with pytest.raises(ConfigError, match="cluster_id"):
        graph.read(pb.Graph())
