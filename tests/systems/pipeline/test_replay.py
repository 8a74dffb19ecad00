"""Replays from the office: the stream alone goes back to its node, within the bounds."""

from typing import Any

import httpx
import pytest

from pipeline.pipestream_pb2 import PipeStream
from systems.pipeline.rig import Rig, away, well, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")


def killed(rig: Rig, node: str, *acts: Any) -> PipeStream:
    """Return a stream that died at a node; `acts` are what its module does afterwards."""
    stream = rig.stream(node, wrong, *acts)
    rig.send(node, stream)
    rig.death_of(node, stream)
    return stream


def replay(rig: Rig, dlq: httpx.Client, node: str, **request: Any) -> Any:
    path = f"/admin/dlq/{rig.ids[node]}/replay"
    return dlq.post(path, json=request).raise_for_status().json()


def letter_of(rig: Rig, dlq: httpx.Client, node: str, stream: PipeStream) -> Any:
    (letter,) = rig.letters(dlq, node, f"key:{stream.stream_id}")
    return letter


def in_state(rig: Rig, dlq: httpx.Client, node: str, stream: PipeStream, state: str) -> Any:
    """Wait until the letter of a stream is in a state."""

    def there() -> Any:
        letter = letter_of(rig, dlq, node, stream)
        return letter if letter["state"] == state else None

    return rig.wait_for(f"a letter that is {state}", there)


def sent_to(rig: Rig, node: str, stream: PipeStream, topic: str = "") -> list[bytes]:
    """Return the records of a stream in the input topic of a node."""
    records = rig.records(topic or rig.topic(node))
    return [r.value() for r in records if stream.stream_id.encode() in r.value()]


def test_dead_documents_are_kept_for_inspection(rig: Rig, dlq: httpx.Client) -> None:
    stream = killed(rig, "again")
    letter = letter_of(rig, dlq, "again", stream)

    shown = dlq.get(f"/api/v1/letters/{letter['id']}").json()
    body = dlq.get(f"/api/v1/letters/{letter['id']}/body").content

    assert letter["state"] == "pending"
    assert letter["code"] == "GRPC_INVALID_ARGUMENT"
    assert [attempt["number"] for attempt in shown["attempts"]] == [1]
    assert PipeStream.FromString(body) == stream
    assert rig.death_of("again", stream).message.letter_id == letter["id"]


def test_only_the_inner_stream_goes_back_and_is_processed(rig: Rig, dlq: httpx.Client) -> None:
    stream = killed(rig, "again", well)
    envelope = rig.death_of("again", stream).value

    asked = f"key:{stream.stream_id}"
    answer = replay(rig, dlq, "again", filter=asked, reason="the module is mended")

    assert answer["plan"]["targets"] == {rig.topic("again"): 1}
    in_state(rig, dlq, "again", stream, "replayed")
    original = stream.SerializeToString()
    assert sent_to(rig, "again", stream) == [original, original]
    assert envelope != original
    first, second = rig.modules.of(stream.stream_id)
    assert second.request == first.request
    assert len(rig.dead("again")) == len({d.value for d in rig.dead("again")})
    rig.death_of("again", stream)  # ...still the one


def test_the_request_sets_the_bounds_and_the_graph_the_topic(rig: Rig, dlq: httpx.Client) -> None:
    intake = f"{rig.cluster}-intake"  # not the usual one of node `named`
    streams = [rig.stream("named", wrong) for _ in range(3)]
    other = rig.stream("named", away)
    for stream in (*streams, other):
        rig.send("named", stream, intake)
        rig.death_of("named", stream, f"{rig.cluster}-graveyard")
    mine = "key:[" + ",".join(s.stream_id for s in (*streams, other)) + "]"

    def states() -> list[str]:
        return [letter["state"] for letter in rig.letters(dlq, "named", mine)]

    planned = replay(rig, dlq, "named", filter=mine, dry_run=True)
    assert planned["plan"]["targets"] == {intake: 4}
    assert (planned["sendable"], planned["replay"]) == (4, None)
    assert states() == ["pending"] * 4

    by_code = f"{mine} code:MODULE_UNAVAILABLE"
    assert replay(rig, dlq, "named", filter=by_code)["sendable"] == 1
    in_state(rig, dlq, "named", other, "replayed")
    assert replay(rig, dlq, "named", filter=mine, limit=2)["sendable"] == 2
    rig.wait_for("both", lambda: states().count("replayed") == 3)
    assert states().count("pending") == 1

    unexpected = {"filter": mine, "expect": 7}
    refused = dlq.post(f"/admin/dlq/{rig.ids['named']}/replay", json=unexpected)
    assert refused.status_code == 409
    calls = [len(rig.modules.of(stream.stream_id)) for stream in streams]
    assert sorted(calls) == [1, 2, 2]
    sent = [len(sent_to(rig, "named", stream, intake)) for stream in streams]
    assert sent == calls


def test_other_nodes_are_left_alone(rig: Rig, dlq: httpx.Client) -> None:
    bystander = killed(rig, "embed")
    stream = killed(rig, "again")

    replay(rig, dlq, "again", filter=f"key:[{bystander.stream_id},{stream.stream_id}]")

    in_state(rig, dlq, "again", stream, "replayed")
    assert letter_of(rig, dlq, "embed", bystander)["state"] == "pending"


def test_an_administrator_replays_from_a_terminal(rig: Rig, dlq: httpx.Client) -> None:
    stream = killed(rig, "again", well)

    command = rig.stage.process(
        "deadletter.cli",
        *("--url", rig.url, "--office", rig.office, "replay"),
        *(f"consumer:{rig.ids['again']} key:{stream.stream_id}", "--limit", "1"),
        *("--reason", "the module is mended", "--wait", "20"),
    )
    rig.wait_for("the command", lambda: command.code is not None)

    assert command.code == 0, command.said()
    assert "1  handled" in command.said()
    original = stream.SerializeToString()
    assert sent_to(rig, "again", stream) == [original, original]


def test_documents_that_keep_failing_return_to_their_letter_and_are_quarantined(
    rig: Rig, dlq: httpx.Client
) -> None:
    stream = killed(rig, "again", wrong, wrong, well)
    asked = {"filter": f"key:{stream.stream_id}", "cap": 2}

    replay(rig, dlq, "again", **asked)
    rig.wait_for("its second death", lambda: deaths(rig, stream) == [0, 1])
    in_state(rig, dlq, "again", stream, "pending")
    replay(rig, dlq, "again", **asked)
    rig.wait_for("its third death", lambda: deaths(rig, stream) == [0, 1, 2])

    letter = in_state(rig, dlq, "again", stream, "quarantined")
    assert letter["replays"] == 2
    refused = dlq.post(f"/admin/dlq/{rig.ids['again']}/replay", json=asked)
    assert refused.status_code == 404
    shown = dlq.get(f"/api/v1/letters/{letter['id']}").json()
    assert len(shown["attempts"]) == 3
    assert len(rig.modules.of(stream.stream_id)) == 3


def deaths(rig: Rig, stream: PipeStream) -> list[int]:
    """Return the number of earlier replays at each death of a stream."""
    messages = [dead.message for dead in rig.dead("again")]
    return [
        message.reprocess_count
        for message in messages
        if message.stream.stream_id == stream.stream_id
    ]


def test_letters_are_counted_by_node(rig: Rig, dlq: httpx.Client) -> None:
    before = counted(rig, dlq)
    killed(rig, "embed")

    assert counted(rig, dlq) == before + 1


def counted(rig: Rig, dlq: httpx.Client) -> int:
    sources = dlq.get("/api/v1/stats").raise_for_status().json()
    return int(sources["sources"].get(rig.topic("embed"), {}).get("pending", 0))
