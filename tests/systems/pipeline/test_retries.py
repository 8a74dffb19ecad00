"""Retries: their number, the waits between them, and the message after the last."""

from itertools import pairwise

import pytest

from systems.pipeline.rig import BACKOFF, Rig, away, late, well, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def test_waits_grow_linearly(rig: Rig) -> None:
    stream = rig.stream("four", *[away] * 4)  # its retry_backoff is 0.2 s
    offset = rig.send("four", stream)

    rig.death_of("four", stream)

    assert rig.waits("four", offset) == [0.2, 0.4, 0.6]
    first, second, third = gaps([call.at for call in rig.modules.of(stream.stream_id)])
    assert first >= 0.2
    assert second >= 0.4
    assert third >= 0.6


def test_after_the_last_attempt_the_stream_is_published(rig: Rig) -> None:
    stream = rig.stream("four", *[away] * 4, well)
    rig.send("four", stream)

    dead = rig.death_of("four", stream).message

    assert dead.stream == stream
    assert dead.failed_node_id == rig.ids["four"]
    assert dead.error_type == "MODULE_UNAVAILABLE"
    assert dead.error_message.endswith(": restarting")
    assert dead.retry_count == len(rig.modules.of(stream.stream_id)) == 4


def test_each_node_waits_as_its_own_config_says(rig: Rig) -> None:
    waits = {"four": 0.2, "chunk": BACKOFF, "usual": 1.0}
    offsets = {node: rig.send(node, rig.stream(node, away)) for node in waits}

    for node, offset in offsets.items():
        told = rig.wait_for("a retry", lambda node=node, at=offset: rig.waits(node, at))  # type: ignore[misc]
        assert told == [waits[node]]


def test_there_is_no_wait_after_the_last_attempt(rig: Rig) -> None:
    stream = rig.stream("again", away)  # one attempt; a wait would take an hour
    offset = rig.send("again", stream)

    dead = rig.death_of("again", stream)

    assert dead.message.error_type == "MODULE_UNAVAILABLE"  # an error that is retried
    assert dead.message.retry_count == 1
    assert rig.waits("again", offset) == []


def test_nodes_make_three_attempts_by_default(rig: Rig) -> None:
    stream = rig.stream("usual", away, away, away)
    offset = rig.send("usual", stream)

    dead = rig.death_of("usual", stream)

    assert rig.waits("usual", offset) == [1.0, 2.0]
    first, second = gaps([call.at for call in rig.modules.of(stream.stream_id)])
    assert first >= 1.0
    assert second >= 2.0
    assert dead.message.retry_count == 3


def test_each_node_makes_the_attempts_of_its_own_config(rig: Rig) -> None:
    tries = {"once": 1, "again": 1, "chunk": 3}
    streams = {node: rig.stream(node, *[away] * 5) for node in tries}
    for node, stream in streams.items():
        rig.send(node, stream)

    for node, stream in streams.items():
        dead = rig.death_of(node, stream).message
        assert dead.retry_count == tries[node]
        assert len(rig.modules.of(stream.stream_id)) == tries[node]


def test_the_first_success_ends_the_retries(rig: Rig) -> None:
    stream = rig.stream("parse", away, away)
    doomed = rig.stream("parse", wrong)
    rig.send("parse", stream)

    calls = rig.calls(stream, 5)  # two failures, then this node and the two behind it
    rig.send("parse", doomed)
    rig.death_of("parse", doomed)

    assert len(calls) == 5
    dead = [one.message.stream.stream_id for one in rig.dead("parse")]
    assert stream.stream_id not in dead


def test_the_message_has_the_last_error_and_the_attempts_made(rig: Rig) -> None:
    stream = rig.stream("four", away, wrong)
    rig.send("four", stream)

    dead = rig.death_of("four", stream).message

    assert dead.retry_count == 2  # of four
    assert dead.error_type == "GRPC_INVALID_ARGUMENT"
    assert dead.error_message.endswith(": this is no picture")


def test_timeouts_and_unavailable_modules_share_one_count(rig: Rig) -> None:
    stream = rig.stream("late", late, away, late)
    rig.send("late", stream)

    dead = rig.death_of("late", stream).message

    assert dead.error_type == "TIMEOUT"
    assert dead.retry_count == 3
