"""Triggers: failures that send a stream to the dead-letter topic, and those that do not."""

from pathlib import Path

import httpx
import pytest
from msgspec import Struct

from pipeline.pipestream_pb2 import STEP_STATUS_FAILURE, DlqMessage, PipeStream
from servers.common import free_port
from systems.pipeline.rig import Act, Call, Rig, away, buggy, late, says_no, well, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")


def at(rig: Rig, node: str, calls: list[Call]) -> Call:
    """The one call of a node's module."""
    (one,) = [c for c in calls if c.request.stream.current_node_id == rig.ids[node]]
    return one


def ids_of_dead(rig: Rig, node: str) -> list[str]:
    return [dead.message.stream.stream_id for dead in rig.dead(node)]


def test_each_node_passes_on_the_document_it_made(rig: Rig) -> None:
    stream = rig.stream("parse")
    rig.send("parse", stream)

    calls = rig.calls(stream, 3)

    by_parse = f"once upon a time {rig.ids['parse'][:8]}"
    assert at(rig, "parse", calls).request.document.body == "once upon a time"
    assert at(rig, "chunk", calls).request.document.body == by_parse
    assert at(rig, "embed", calls).request.document.body == by_parse
    onward = at(rig, "chunk", calls).request.stream
    assert [step.node_id for step in onward.history] == [rig.ids["parse"]]
    assert onward.hop_count == 1


class Refusal(Struct, frozen=True):
    """A stream whose module answered `success=false`, and one that died behind it."""

    stream: PipeStream
    calls: list[Call]
    doomed: PipeStream


@pytest.fixture(scope="module")
def refusal(rig: Rig) -> Refusal:
    stream, doomed = rig.stream("parse", says_no), rig.stream("parse", wrong)
    rig.send("parse", stream)
    calls = rig.calls(stream, 3)
    rig.send("parse", doomed)
    rig.death_of("parse", doomed)
    return Refusal(stream, calls, doomed)


def test_success_false_is_not_a_dead_letter(rig: Rig, dlq: httpx.Client, refusal: Refusal) -> None:
    stream, doomed = refusal.stream, refusal.doomed

    assert stream.stream_id not in ids_of_dead(rig, "parse")
    assert rig.letters(dlq, "parse", f"key:{stream.stream_id}") == []
    assert len(rig.letters(dlq, "parse", f"key:{doomed.stream_id}")) == 1
    assert len(rig.modules.of(stream.stream_id)) == 3  # nothing was retried


def test_success_false_is_logged_with_its_error(rig: Rig, refusal: Refusal) -> None:
    (told,) = rig.logged("module-said-no", f"stream_id={refusal.stream.stream_id}")

    assert "[warning" in told
    assert "no text in this document" in told
    assert f"node_id={rig.ids['parse']}" in told
    assert rig.logged("module-said-no", f"stream_id={refusal.doomed.stream_id}") == []


@pytest.mark.parametrize("node", ["chunk", "embed"])
def test_the_error_of_success_false_is_in_the_history(
    rig: Rig, refusal: Refusal, node: str
) -> None:
    (said,) = at(rig, node, refusal.calls).request.stream.history

    assert said.node_id == rig.ids["parse"]
    assert said.status == STEP_STATUS_FAILURE
    assert said.error_message == "no text in this document"


def test_the_stream_goes_on_to_all_next_nodes_after_success_false(
    rig: Rig, refusal: Refusal
) -> None:
    nodes = [call.request.stream.current_node_id for call in refusal.calls]

    assert nodes[0] == rig.ids["parse"]
    assert sorted(nodes[1:]) == sorted([rig.ids["chunk"], rig.ids["embed"]])


@pytest.mark.parametrize("node", ["chunk", "embed"])
def test_next_nodes_get_the_original_document_after_success_false(
    rig: Rig, refusal: Refusal, node: str
) -> None:
    onward = at(rig, node, refusal.calls).request

    assert onward.document.body == "once upon a time"
    assert onward.stream.document_ref == refusal.stream.document_ref


def test_unregistered_modules_are_retried_then_dead_lettered(rig: Rig) -> None:
    rig.register("remote", None)
    stream = rig.stream("remote")
    rig.send("remote", stream)

    dead = rig.death_of("remote", stream).message

    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert dead.error_message == "module remote is not registered"
    assert dead.retry_count == 3


def test_streams_are_dead_lettered_while_discovery_is_down(rig: Rig) -> None:
    away_for_now = Path(f"{rig.directory}.away")
    rig.directory.rename(away_for_now)
    try:
        stream = rig.stream("chunk")
        rig.send("chunk", stream)
        dead = rig.death_of("chunk", stream).message
    finally:
        away_for_now.rename(rig.directory)

    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert dead.error_message.startswith("module usual cannot be looked up")
    assert rig.modules.of(stream.stream_id) == []


def test_timeouts_are_retried_then_dead_lettered(rig: Rig) -> None:
    stream = rig.stream("late", late, late, late)
    rig.send("late", stream)

    dead = rig.death_of("late", stream).message

    assert dead.error_type == "TIMEOUT"
    assert "did not answer within 0.3 s" in dead.error_message
    assert dead.retry_count == len(rig.modules.of(stream.stream_id)) == 3


def test_refused_connections_are_retried_then_dead_lettered(rig: Rig) -> None:
    rig.register("remote", f"127.0.0.1:{free_port()}")
    stream = rig.stream("remote")
    rig.send("remote", stream)

    dead = rig.death_of("remote", stream).message

    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert "Connection refused" in dead.error_message
    assert dead.retry_count == 3


def test_crashes_of_a_module_are_retried_then_dead_lettered(rig: Rig) -> None:
    port, mood = free_port(), rig.stage.place / "mood"
    mood.write_text("crash")
    module = rig.stage.process(
        "pipeline.module_server",
        "capitals",
        env={"MODULE_PORT": str(port), "MODULE_MOOD": str(mood)},
    )
    rig.wait_for("the module", lambda: "listening" in module.said())
    rig.register("remote", f"127.0.0.1:{port}")
    stream = rig.stream("remote")
    rig.send("remote", stream)

    dead = rig.death_of("remote", stream).message

    assert module.code == 1
    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert dead.retry_count == 3


def test_transient_failures_are_dead_lettered_after_the_last_attempt(rig: Rig) -> None:
    stream = rig.stream("chunk", away, away, away)
    rig.send("chunk", stream)

    dead = rig.death_of("chunk", stream).message

    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert "restarting" in dead.error_message
    assert len(rig.modules.of(stream.stream_id)) == 3


@pytest.mark.parametrize("body", [b"\xff\xff not a stream", b"\x0a\x7fshort"])
def test_records_that_are_not_streams_are_dead_lettered(rig: Rig, body: bytes) -> None:
    offset = rig.send("chunk", body)

    (dead,) = rig.wait_for(
        "a dead letter", lambda: [d for d in rig.dead("chunk") if d.message.original_record == body]
    )

    assert dead.message.error_type == "MALFORMED"
    assert dead.message.original_offset == offset
    assert dead.message.retry_count == 1
    assert not dead.message.HasField("stream")


def test_streams_without_a_document_are_dead_lettered(rig: Rig) -> None:
    stream = rig.stream("chunk")
    stream.ClearField("document_ref")
    rig.send("chunk", stream)

    dead = rig.death_of("chunk", stream).message

    assert dead.error_type == "MALFORMED"
    assert dead.error_message == f"stream {stream.stream_id} refers to no document"
    assert rig.modules.of(stream.stream_id) == []


def test_streams_whose_document_is_missing_are_dead_lettered(rig: Rig) -> None:
    stream = rig.stream("chunk")
    stream.document_ref.doc_id = "../../etc/passwd"
    rig.send("chunk", stream)

    dead = rig.death_of("chunk", stream).message

    assert dead.error_type == "MALFORMED"
    assert "has no document" in dead.error_message
    assert dead.retry_count == 1


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"\xff", "cannot be read"), (b"", "says that it is ''")]
)
def test_streams_whose_document_is_invalid_are_dead_lettered(
    rig: Rig, content: bytes, complaint: str
) -> None:
    stream = rig.stream("chunk")
    rig.documents._path(stream.document_ref).write_bytes(content)
    rig.send("chunk", stream)

    dead = rig.death_of("chunk", stream).message

    assert dead.error_type == "MALFORMED"
    assert complaint in dead.error_message
    assert rig.modules.of(stream.stream_id) == []


def test_streams_with_too_many_hops_are_dead_lettered(rig: Rig) -> None:
    stream = rig.stream("loop")
    rig.send("loop", stream)

    dead = rig.death_of("loop", stream).message

    assert dead.error_type == "MAX_HOPS_EXCEEDED"
    assert "passed on 4 times, at most 3 are allowed" in dead.error_message
    assert dead.retry_count == 1
    assert dead.stream.hop_count == 4
    assert len(rig.modules.of(stream.stream_id)) == 4  # the way in, and three hops


@pytest.mark.parametrize(
    ("act", "code"), [(wrong, "GRPC_INVALID_ARGUMENT"), (buggy, "GRPC_UNKNOWN")]
)
def test_permanent_failures_are_not_retried(rig: Rig, act: Act, code: str) -> None:
    stream = rig.stream("chunk", act, well)
    rig.send("chunk", stream)

    dead = rig.death_of("chunk", stream).message

    assert dead.retry_count == len(rig.modules.of(stream.stream_id)) == 1
    assert dead.error_type == code


def test_streams_that_fail_or_wait_do_not_block_others(rig: Rig) -> None:
    poison = rig.stream("patient", away)  # its second try is an hour off
    hopeless = rig.stream("patient", wrong)
    fine = [rig.stream("patient") for _ in range(20)]
    first = rig.send("patient", poison)
    rig.send("patient", hopeless)
    rig.send("patient", b"\xff\xff not a stream")
    last = [rig.send("patient", stream) for stream in fine][-1]

    for stream in fine:
        rig.calls(stream, 1)
    rig.wait_for("the commit", lambda: rig.committed("patient") > last)

    waits = rig.wait_for("the log", lambda: rig.waits("patient", first))
    assert waits == [3600.0]
    assert len(rig.modules.of(poison.stream_id)) == 1
    rig.death_of("patient", hopeless)
    assert poison.stream_id not in ids_of_dead(rig, "patient")


def test_each_node_publishes_to_a_topic_of_its_own(rig: Rig) -> None:
    died = {node: rig.stream(node, wrong) for node in ("chunk", "embed")}
    for node, stream in died.items():
        rig.send(node, stream)

    for node, stream in died.items():
        dead = rig.death_of(node, stream, f"dlq.{rig.cluster}.{rig.ids[node]}")
        assert dead.message.failed_node_id == rig.ids[node]
    assert died["chunk"].stream_id not in ids_of_dead(rig, "embed")
    assert died["embed"].stream_id not in ids_of_dead(rig, "chunk")


def test_streams_without_an_id_are_dead_lettered(rig: Rig) -> None:
    offset = rig.send("embed", PipeStream(hop_count=1))

    def found() -> list[DlqMessage]:
        dead = [one.message for one in rig.dead("embed")]
        place = (0, offset)
        return [one for one in dead if (one.original_partition, one.original_offset) == place]

    (dead,) = rig.wait_for("a dead letter", found)

    assert dead.error_message == "stream has no stream_id"
