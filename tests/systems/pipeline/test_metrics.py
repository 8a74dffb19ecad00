"""Metrics by node."""

import httpx
import pytest

from systems.pipeline.rig import Rig, metric, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")


def test_deaths_are_counted_by_node(rig: Rig) -> None:
    def count(node: str) -> float:
        name = f'pipestream_dlq_messages_total{{node_id="{rig.ids[node]}"}}'
        return rig.metric(name)

    before, elsewhere = count("again"), count("usual")
    for _ in range(2):
        stream = rig.stream("again", wrong)
        rig.send("again", stream)
        rig.death_of("again", stream)

    rig.wait_for("both", lambda: count("again") == before + 2)
    assert count("usual") == elsewhere


def test_the_depth_of_a_node_is_what_is_still_open(rig: Rig, dlq: httpx.Client) -> None:
    name = f'pipestream_dlq_depth{{node_id="{rig.ids["again"]}"}}'

    def depth() -> float:
        return metric(dlq.get("/metrics").raise_for_status().text, name)

    stream = rig.stream("again", wrong)
    rig.send("again", stream)
    rig.death_of("again", stream)
    open_ones = rig.letters(dlq, "again", "is:[pending,reviewed,quarantined]")
    rig.wait_for("the depth", lambda: depth() == len(open_ones))

    (letter,) = rig.letters(dlq, "again", f"key:{stream.stream_id}")
    path = f"/api/v1/letters/{letter['id']}/close"
    dlq.post(path, json={"reason": "not needed any more"}).raise_for_status()

    rig.wait_for("one less", lambda: depth() == len(open_ones) - 1)
