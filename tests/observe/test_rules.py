"""The alert rules, tried by Prometheus' own tool, and the dashboard."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deadletter.core.alerts import RULES
from deadletter.observe.alerts import prometheus_rules
from deadletter.observe.dashboard import PANELS, dashboard
from deadletter.observe.metrics import Metrics
from deadletter.observe.office_metrics import OfficeMetrics
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import make_letter
from servers import Missing
from servers.common import ROOT, program
from servers.fixtures import do_without

DEPLOY = ROOT / "deploy"
RULES_FILE = DEPLOY / "prometheus" / "deadletter.rules.yml"
TESTS_FILE = DEPLOY / "prometheus" / "deadletter.rules.test.yml"


@pytest.fixture
def promtool() -> Path:
    try:
        return program("promtool")
    except Missing as missing:
        do_without(missing)


@pytest.fixture
def every_metric(
    registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> set[str]:
    """Names as a query may use them."""
    Metrics(registry)
    OfficeMetrics(registry, store, office_clock)
    return {
        name
        for names in registry._collector_to_names.values()
        for name in names
        if not name.endswith("_created")
    }


def run(*command: str | Path, given: str | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        list(map(str, command)),
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def named(query: str) -> set[str]:
    return set(re.findall(r"\b(?:dlq|pipestream)_\w+", query))


def test_the_files_are_what_the_code_says() -> None:
    assert RULES_FILE.read_text() == prometheus_rules()
    assert (DEPLOY / "grafana" / "deadletter.json").read_text() == dashboard()


def test_the_rules_of_the_pipeline_are_as_required_r1_48_to_r1_51() -> None:
    rules = {rule.name: rule for rule in RULES}

    depth, growing = rules["DLQDepthHigh"], rules["DLQGrowing"]
    assert (depth.expr, depth.lasting) == ("pipestream_dlq_depth > 100", "5m")
    rate = "rate(pipestream_dlq_messages_total[5m]) > 1"
    assert (growing.expr, growing.lasting) == (rate, "10m")
    assert depth.summary == "DLQ depth high for {{ $labels.node_id }}"
    assert growing.summary == "DLQ growing for {{ $labels.node_id }}"


def test_prometheus_can_read_the_rules(promtool: Path) -> None:
    checked = run(promtool, "check", "rules", RULES_FILE)

    assert checked.returncode == 0, checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


def test_the_rules_fire_when_they_should_and_only_then(promtool: Path) -> None:
    tried = run(promtool, "test", "rules", TESTS_FILE)

    assert tried.returncode == 0, tried.stdout + tried.stderr
    tests = TESTS_FILE.read_text()
    assert [rule.name for rule in RULES if f"alertname: {rule.name}" not in tests] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("pipestream_dlq_depth > 100", "pipestream_dlq_depth >= 100"),
        ("for: 5m", "for: 1m"),
        ("_total[5m]) > 1", "_total[5m]) > 2"),
        ("dlq_dead_letter_failures_total", "dlq_deadletter_failures_total"),
        ("max by (source) (increase(dlq_arrivals_total[10m]))", "dlq_queue_depth"),
        ("max(dlq_office_up)", "min(dlq_office_up)"),
        ("> 86400", "> 864000"),
    ],
)
def test_a_rule_that_is_wrong_is_found_out(
    promtool: Path, tmp_path: Path, right: str, wrong: str
) -> None:
    text = RULES_FILE.read_text()
    assert right in text
    (tmp_path / RULES_FILE.name).write_text(text.replace(right, wrong, 1))
    tests = tmp_path / TESTS_FILE.name
    shutil.copy(TESTS_FILE, tests)

    assert run(promtool, "test", "rules", tests).returncode != 0


async def test_prometheus_has_nothing_to_say_against_the_metrics(
    promtool: Path, registry: CollectorRegistry, store: LetterStore, office_clock: FakeClock
) -> None:
    Metrics(registry)
    await store.keep([make_letter(1)])
    await OfficeMetrics(registry, store, office_clock).refresh()

    shown = generate_latest(registry).decode()
    checked = run(promtool, "check", "metrics", given=shown)

    # Others' names are theirs: one of them is in milliseconds.
    own = [
        line
        for line in checked.stderr.splitlines()
        if not line.startswith("dlq_processing_duration_ms")
    ]
    assert own == []


def test_every_metric_a_rule_names_exists(every_metric: set[str]) -> None:
    used = {name for rule in RULES for name in named(rule.expr)}

    assert used
    assert used - every_metric == set()


def test_every_metric_the_dashboard_names_exists(every_metric: set[str]) -> None:
    panels = json.loads(dashboard())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    used = {name for target in targets for name in named(target["expr"])}

    assert len(used) > 15
    assert used - every_metric == set()


def test_every_query_of_the_dashboard_can_be_read(promtool: Path, tmp_path: Path) -> None:
    lines = ["groups:", "  - name: panels", "    rules:"]
    for number, panel in enumerate(PANELS):
        for letter, query in zip("abcd", panel.queries.values(), strict=False):
            lines += [f"      - record: panel:{number}{letter}"]
            lines += [f"        expr: {json.dumps(query)}"]
    file = tmp_path / "panels.yml"
    file.write_text("\n".join(lines))

    checked = run(promtool, "check", "rules", file)

    assert checked.returncode == 0, checked.stderr


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_labels_the_dashboard_shows_are_ones_its_query_keeps() -> None:
    for panel in PANELS:
        for name, query in panel.queries.items():
            kept = {
                label.strip()
                for labels in re.findall(r"by \(([^)]*)\)", query)
                for label in labels.split(",")
            }
            assert set(re.findall(r"{{(\w+)}}", name)) <= kept, panel.title
