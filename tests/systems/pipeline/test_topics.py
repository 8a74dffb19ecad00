"""Dead-letter topics themselves: replayed over HTTP, drained, and piped with console tools."""

import json
import os
import re
import shlex
import subprocess
import sys
from typing import Any

import httpx
import pytest

from pipeline.pipestream_pb2 import DlqMessage, PipeStream
from pipeline.streams import parsed
from servers import Kafka, Missing, Server
from servers.common import ROOT
from servers.fixtures import do_without
from systems.pipeline.rig import Rig, well, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")
PAGE = ROOT / "docs/systems/pipeline.md"


def publish(rig: Rig, node: str, *acts: Any, topic: str = "") -> PipeStream:
    """Publish a stream to the dead-letter topic of a node, as another engine does."""
    stream = rig.stream(node, *acts)
    envelope = DlqMessage(
        stream=stream,
        error_type="TIMEOUT",
        error_message="module did not answer",
        retry_count=3,
        failed_node_id=rig.ids[node],
        original_topic="a-topic-that-does-not-exist",
        original_offset=7,
    )
    envelope.failed_at.GetCurrentTime()
    rig.send(node, envelope.SerializeToString(), topic or rig.dlq_topic(node))
    return stream


def replay(rig: Rig, dlq: httpx.Client, node: str, **request: Any) -> httpx.Response:
    return dlq.post(f"/admin/dlq/{rig.ids[node]}/replay", json=request)


def sent_to(rig: Rig, node: str, stream: PipeStream, topic: str = "") -> list[bytes]:
    """Return the records of a stream in the input topic of a node."""
    records = rig.records(topic or rig.topic(node))
    return [r.value() for r in records if stream.stream_id.encode() in r.value()]


def killed(rig: Rig, node: str, *acts: Any) -> PipeStream:
    """Return a stream that our own engine gave up on."""
    stream = rig.stream(node, wrong, *acts)
    rig.send(node, stream)
    rig.death_of(node, stream)
    return stream


def test_a_replay_sends_what_is_in_the_topic_and_not_in_the_office(
    rig: Rig, dlq: httpx.Client
) -> None:
    own = killed(rig, "foreign", well)
    streams = [publish(rig, "foreign") for _ in range(2)]
    rig.send("foreign", b"\xff not an envelope", rig.dlq_topic("foreign"))
    assert rig.letters(dlq, "foreign", f"key:{streams[0].stream_id}") == []

    answer = replay(rig, dlq, "foreign", filter="code:TIMEOUT").raise_for_status().json()

    assert answer["taken_in"] == 3  # the two streams, and the malformed record
    assert answer["plan"]["targets"] == {rig.topic("foreign"): 2}
    for stream in streams:
        assert rig.calls(stream, 1)[0].request.stream == stream
        assert sent_to(rig, "foreign", stream) == [stream.SerializeToString()]
    assert len(rig.letters(dlq, "foreign", f"key:{own.stream_id}")) == 1


def test_a_topic_that_is_read_again_brings_nothing_new(rig: Rig, dlq: httpx.Client) -> None:
    own = killed(rig, "reread", well)
    publish(rig, "reread")

    first = replay(rig, dlq, "reread").raise_for_status().json()
    assert (first["taken_in"], first["sendable"]) == (1, 2)
    rig.wait_for("both", lambda: len(rig.letters(dlq, "reread", "is:[replayed,closed]")) == 2)
    second = replay(rig, dlq, "reread")

    assert second.status_code == 404  # nothing is open
    assert len(rig.letters(dlq, "reread")) == 2
    assert len(rig.modules.of(own.stream_id)) == 2


def test_closed_letters_stay_closed_when_their_topic_is_read(rig: Rig, dlq: httpx.Client) -> None:
    own = killed(rig, "closed")
    (letter,) = rig.letters(dlq, "closed")
    path = f"/api/v1/letters/{letter['id']}/close"
    dlq.post(path, json={"reason": "not needed any more"}).raise_for_status()

    assert replay(rig, dlq, "closed").status_code == 404

    (letter,) = rig.letters(dlq, "closed")
    assert (letter["state"], letter["attempts"]) == ("closed", 1)
    assert len(rig.modules.of(own.stream_id)) == 1


def test_a_dry_run_counts_what_is_in_the_topic(rig: Rig, dlq: httpx.Client) -> None:
    stream = publish(rig, "dry")

    answer = replay(rig, dlq, "dry", dry_run=True)

    assert answer.status_code == 200
    assert answer.json()["sendable"] == 1
    assert sent_to(rig, "dry", stream) == []


def test_other_names_of_topics_come_from_the_graph(rig: Rig, dlq: httpx.Client) -> None:
    stream = publish(rig, "named", topic=f"{rig.cluster}-graveyard")

    answer = replay(rig, dlq, "named", filter="code:TIMEOUT").raise_for_status().json()

    assert answer["plan"]["targets"] == {f"{rig.cluster}-intake": 1}
    rig.calls(stream, 1)
    sent = sent_to(rig, "named", stream, f"{rig.cluster}-intake")
    assert sent == [stream.SerializeToString()]


def test_the_drain_command_makes_letters_of_envelopes(rig: Rig, dlq: httpx.Client) -> None:
    """Without, it made letters of whole envelopes, which no node can read."""
    stream = publish(rig, "drained")
    command = rig.stage.process(
        "deadletter.cli",
        *("--url", rig.office, "--json", "drain", rig.broker, rig.dlq_topic("drained")),
    )
    rig.wait_for("the command", lambda: command.code is not None)

    assert command.code == 0, command.said()
    (place,) = json.loads(command.said()[command.said().index("{") :])["places"]
    assert (place["dialect"], place["source"]) == ("pipestream", rig.topic("drained"))
    (letter,) = rig.letters(dlq, "drained")
    body = dlq.get(f"/api/v1/letters/{letter['id']}/body").content
    assert PipeStream.FromString(body) == stream
    assert letter["code"] == "TIMEOUT"
    assert letter["attempts"] == 3


def test_console_tools_of_kafka_pipe_a_topic_back(rig: Rig, kafka_server: Server) -> None:
    """The command of the page, as it is documented."""
    assert isinstance(kafka_server, Kafka)
    try:
        consumer = kafka_server.console_tool("consumer.ConsoleConsumer")
        producer = kafka_server.console_tool("ConsoleProducer")
    except Missing as missing:
        do_without(missing)
    streams = [killed(rig, "piped", well) for _ in range(2)]
    (command,) = re.findall(r"^\$ (kafka-console-consumer\.sh .*)$", PAGE.read_text(), re.MULTILINE)
    for documented, here in {
        "kafka-console-consumer.sh": shlex.join(consumer),
        "kafka-console-producer.sh": shlex.join(producer),
        "python -m": f"{sys.executable} -m",
        "HOST": rig.bootstrap,
        "dlq.prod.NODE": rig.dlq_topic("piped"),
        "prod.NODE": rig.topic("piped"),
    }.items():
        assert documented in command
        command = command.replace(documented, here)
    piped = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT / "examples")},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )

    assert piped.returncode == 0, piped.stderr
    for stream in streams:
        first, second = rig.calls(stream, 2)
        assert second.request == first.request
        original, copy = sent_to(rig, "piped", stream)
        assert original == stream.SerializeToString()
        assert parsed(copy) == stream
