"""Unreachable modules: every stream is published and the alerts fire, or the node waits."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pipeline.pipestream_pb2 import PipeStream
from servers import Missing
from servers.common import ROOT, free_port, program
from servers.fixtures import do_without
from systems.pipeline.rig import Dead, Rig

pytestmark = pytest.mark.xdist_group("kafka_server")
RULES = ROOT / "deploy/prometheus/deadletter.rules.yml"


@pytest.fixture
def gone(rig: Rig) -> Iterator[None]:
    """A module that is registered where nothing listens."""
    rig.register("gone", f"127.0.0.1:{free_port()}")
    yield
    rig.register("gone", None)


@pytest.fixture
def promtool() -> Path:
    try:
        return program("promtool")
    except Missing as missing:
        do_without(missing)


def published(rig: Rig, node: str, count: int) -> list[Dead]:
    """Send streams to a node without a module; return what its topic has in the end."""
    streams: list[PipeStream] = [rig.stream(node) for _ in range(count)]
    for stream in streams:
        rig.send(node, stream)
    sent = {stream.stream_id for stream in streams}

    def found() -> list[Dead]:
        dead = [one for one in rig.dead(node) if one.message.stream.stream_id in sent]
        return dead if len(dead) >= count else []

    return rig.wait_for("dead letters", found)


def test_every_stream_of_an_unreachable_module_is_published(rig: Rig, gone: None) -> None:
    dead = published(rig, "crowded", 20)

    assert len(dead) == 20
    assert len({one.message.stream.stream_id for one in dead}) == 20
    assert {one.message.error_type for one in dead} == {"MODULE_UNAVAILABLE"}
    assert {one.message.retry_count for one in dead} == {3}
    assert rig.metric(f'dlq_breaker_state{{mailbox="{rig.topic("crowded")}"}}') == 0


def test_the_alerts_fire_for_a_node_whose_module_is_unreachable(
    rig: Rig, dlq: httpx.Client, gone: None, promtool: Path, tmp_path: Path
) -> None:
    """Both alerts, tried on the numbers that engine and office show."""
    published(rig, "alerting", 101)
    node = rig.ids["alerting"]
    depth = f'pipestream_dlq_depth{{node_id="{node}"}}'
    count = f'pipestream_dlq_messages_total{{node_id="{node}"}}'
    rig.wait_for("the depth", lambda: shown(dlq, depth) == 101)
    rig.wait_for("the count", lambda: rig.metric(count) == 101)

    text = f"""
rule_files: [{RULES}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: '{depth}', values: '{shown(dlq, depth):g}x30'}}
      - {{series: '{count}', values: '0+{rig.metric(count):g}x30'}}
    alert_rule_test:
      - {{eval_time: 4m, alertname: DLQDepthHigh}}
      - {{eval_time: 8m, alertname: DLQGrowing}}
      - eval_time: 20m
        alertname: DLQDepthHigh
        exp_alerts:
          - exp_labels: {{node_id: {node}, severity: warning}}
            exp_annotations: {{summary: DLQ depth high for {node}}}
      - eval_time: 20m
        alertname: DLQGrowing
        exp_alerts:
          - exp_labels: {{node_id: {node}, severity: warning}}
            exp_annotations: {{summary: DLQ growing for {node}}}
"""
    file = tmp_path / "alerts.test.yml"
    file.write_text(text)
    tried = subprocess.run(
        [promtool, "test", "rules", file], capture_output=True, text=True, check=False, timeout=60
    )

    assert tried.returncode == 0, tried.stdout + tried.stderr


def shown(dlq: httpx.Client, name: str) -> float:
    """Return a number that `dlq serve` shows."""
    text = dlq.get("/metrics").raise_for_status().text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_node_with_the_brake_waits_for_its_module(rig: Rig) -> None:
    """Switched on, streams stay in Kafka while the module is unreachable for long."""
    streams = [rig.stream("outage") for _ in range(20)]
    for stream in streams:
        rig.send("outage", stream)
    brake = f'dlq_breaker_state{{mailbox="{rig.topic("outage")}"}}'
    rig.wait_for("the brake", lambda: rig.metric(brake) == 1)
    more = [rig.stream("outage") for _ in range(5)]
    for stream in more:
        rig.send("outage", stream)

    rig.register("outage", rig.address)

    dead = [one.message.stream.stream_id for one in rig.dead("outage")]
    assert len(dead) <= 3  # those whose last attempt failed before the outage was known
    for stream in (*streams, *more):
        if stream.stream_id not in dead:
            rig.calls(stream, 1)
    rig.wait_for("the brake", lambda: rig.metric(brake) == 0)
