"""The service as a process, and its commands."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agents import DeadLetter, DLQConsumer, MainLoopRequest, ReceivedMessage
from agents.__main__ import main
from agents.agent import Question
from agents.backend import Backend
from agents.errors import MailboxConnectionError, RateLimitError
from agents.mailbox import DLQ_TTL, SOURCE_TTL
from agents.service import consumers, loops, mailboxes, service_policy
from agents.settings import Settings
from agents.telemetry import Telemetry
from deadletter import PROFILES
from docs.transcript import difference
from engines.redis_rig import fresh
from servers import Server
from servers.common import free_port
from systems.agents.own_handlers import SECONDS
from systems.agents.rig import until

pytestmark = pytest.mark.xdist_group("redis_server")

ROOT = Path(__file__).parents[3]
VALIDATION = "agents.errors.ValidationError"
LINE = re.compile(r"\S+ \S+ \[(\w+) *\] (.+?)(?: {2,}(.*))?")
PATHS = {"PYTHONPATH": f"{ROOT / 'examples'}:{ROOT / 'tests'}:{ROOT / 'src'}"}


class Service:
    """A running process of `python -m agents`, or of another module."""

    def __init__(self, url: str, place: Path, module: str = "agents") -> None:
        self._log = place / "service.log"
        self.facts = place / "facts.json"
        self.facts.write_text(json.dumps({"hamlet": "Shakespeare wrote it"}))
        self.env = {
            "AGENTS_URL": url,
            "AGENTS_OFFICE": f"sqlite:///{place}/office.db",
            "AGENTS_FACTS": str(self.facts),
            "AGENTS_MAX_DELIVERIES": "2",
            "AGENTS_BACKOFF_STEP": "0.05",
            "AGENTS_WAIT": "0.2",
            "AGENTS_HEALTH_PORT": str(free_port()),
            "AGENTS_METRICS_PORT": str(free_port()),
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module],
                env={**os.environ, **PATHS, **self.env},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def asked(self, port: str, path: str) -> str:
        try:
            url = f"http://127.0.0.1:{self.env[f'AGENTS_{port}_PORT']}{path}"
            with urlopen(url, timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the present value of a Prometheus metric."""
        for family in text_string_to_metric_families(self.asked("METRICS", "/metrics")):
            for sample in family.samples:
                if (sample.name, sample.labels) == (name, labels):
                    return float(sample.value)
        return None

    def said(self, event: str) -> list[dict[str, str]]:
        """Return the log lines of one event, each with its level and fields."""
        found = [LINE.fullmatch(line) for line in self._log.read_text("utf-8").splitlines()]
        return [
            {"level": line[1], **_fields(line[3] or "")}
            for line in found
            if line is not None and line[2] == event
        ]


def _fields(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(text))
    return {name: value for name, _, value in pairs}


@pytest.fixture
def service(
    request: pytest.FixtureRequest,
    redis_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Service]:
    module = getattr(request, "param", "agents")
    service = Service(fresh(redis_server.url), tmp_path, module)
    for name, value in service.env.items():
        monkeypatch.setenv(name, value)
    try:
        yield service
    finally:
        service.process.terminate()
        service.process.wait(30)


def test_the_commands_work_against_a_running_service(
    service: Service, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["ask", "What is 6 * 7?", "Convert 5 km to miles"]) == 0
    said = capsys.readouterr().out
    assert "What is 6 * 7?  42" in said
    assert "Convert 5 km to miles  3.107 miles" in said

    assert main(["ask", "What about Godot?", "Steal it", "Sing"]) == 1
    said = capsys.readouterr().out
    assert "Godot?  error: Dead-lettered after 2 attempts: the library has" in said
    assert "Steal it  error: Dead-lettered after 1 attempts" in said
    assert main(["dead"]) == 0
    said = capsys.readouterr().out
    assert "What about Godot?  ResourceNotFoundError, 2 deliveries" in said
    assert "3 dead" in said

    service.facts.write_text(json.dumps({"godot": "He does not come"}))
    assert main(["replay", "--error", "ResourceNotFound"]) == 0
    assert "1 replayed" in capsys.readouterr().out
    with Backend(service.env["AGENTS_URL"], office=service.env["AGENTS_OFFICE"]) as backend:
        boxes = mailboxes(backend)
        until(lambda: boxes.requests.approximate_count() == 0)
    assert main(["dead"]) == 0
    assert "2 dead" in capsys.readouterr().out
    assert main(["retention"]) == 0
    assert capsys.readouterr().out == "0 dead letters discarded, 0 deleted\n"
    (warning,) = [
        line for line in service.said("Message dead-lettered") if "sing" in line["error_message"]
    ]
    assert {
        "level": "warning",
        "source_mailbox": "requests",
        "delivery_count": "1",
        "error_type": "agents.errors.ValidationError",
        "error_message": "no tool can answer 'sing'",
    }.items() <= warning.items()

    samples = tmp_path / "samples.jsonl"
    lines = [
        {"id": "s-1", "input": "What is 1 + 1?", "expected": "2"},
        {"id": "s-2", "input": "What is 1 + 1?", "expected": "3"},
        {"id": "s-3", "input": "Sing", "expected": "la"},
    ]
    samples.write_text("\n".join(map(json.dumps, lines)))
    assert main(["evaluate", str(samples)]) == 1
    said = capsys.readouterr().out
    assert "s-1  passed  '2' by calculate" in said
    assert "s-2  failed  '2' by calculate" in said
    assert "s-3  error: Dead-lettered after 1 attempts: no tool can answer 'sing'" in said
    assert "1 of 3 passed" in said

    of_sample = {"source": "eval-requests", "error_type": VALIDATION}
    until(lambda: service.metric("dlq_messages_total", **of_sample) == 1)
    assert service.metric("dlq_messages_sent_total", mailbox="requests") == 3
    # The consumer has worked them all: the office has what people need.
    alerted = {"mailbox": "requests-dlq", "action": "alerted"}
    assert service.metric("dlq_messages_processed_total", **alerted) == 3
    assert service.metric("dlq_queue_depth", mailbox="requests-dlq") == 0
    check_alert(service)
    assert service.asked("HEALTH", "/health/ready") == '{"status":"healthy"}'

    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(30) == 0


def check_alert(service: Service) -> None:
    """Check the alert, log line and metrics of the sample that could not be scored."""
    (alert,) = [
        line for line in service.said("Request dead-lettered") if line["source"] == "eval-requests"
    ]
    (handled,) = until(
        lambda: [
            line
            for line in service.said("Processing dead letter")
            if line["message_id"] == alert["message_id"]
        ]
    )
    assert alert["level"] == "error"
    assert (handled["level"], handled["action"]) == ("info", "alert")
    assert handled["request_id"] == alert["request_id"]
    assert 0 < float(handled["age_seconds"]) < 60
    evals = {"mailbox": "eval-requests-dlq"}
    until(lambda: service.metric("dlq_processing_duration_ms_count", **evals) == 1)
    alerted = service.metric("dlq_messages_processed_total", action="alerted", **evals)
    assert alerted == 1
    assert service.metric("dlq_message_age_seconds_count", **evals) == 1


@pytest.mark.parametrize("service", ["systems.agents.own_handlers"], indirect=True)
def test_handler_runs_are_logged_and_measured(service: Service) -> None:
    began = time.monotonic()
    asked = {
        text: MainLoopRequest(Question(text)) for text in ("What about Godot?", "Steal it", "Sing")
    }
    ids = {text: str(request.request_id) for text, request in asked.items()}
    with Backend(service.env["AGENTS_URL"], office=service.env["AGENTS_OFFICE"]) as backend:
        boxes = mailboxes(backend)
        answers = boxes.answers("client")
        for request in asked.values():
            boxes.requests.send(request, reply_to=answers)
        handled = until(
            lambda: (
                len(lines := service.said("Processing dead letter")) == 2
                and service.said("DLQ handler failed")
                and lines
            ),
            within=60,
        )
        taken = time.monotonic() - began
        heard: list[str] = []

        def hear() -> bool:
            for message in answers.receive(max_messages=10, wait_time_seconds=1):
                heard.extend([output.text] if (output := message.body.output) else [])
            return bool(heard)

        until(hear, within=60)
        assert heard == ["He comes"]

    until(lambda: len(service.said("Message dead-lettered")) == 3)
    (refused,) = service.said("DLQ handler failed")
    actions = {line["request_id"]: line["action"] for line in handled}
    assert actions == {ids["What about Godot?"]: "replay", ids["Steal it"]: "discard"}
    messages = {
        line["request_id"]: line["message_id"] for line in service.said("Message dead-lettered")
    }
    for line in handled:
        assert line["level"] == "info"
        assert line["message_id"] == messages[line["request_id"]]
        assert SECONDS <= float(line["age_seconds"]) < taken
    assert (refused["level"], refused["request_id"]) == ("error", ids["Sing"])
    assert refused["message_id"] == messages[ids["Sing"]]
    assert refused["error"] == "nobody is there"
    assert float(refused["delay"]) == 3600

    dead = {"mailbox": "requests-dlq"}
    processed = "dlq_messages_processed_total"
    # What is counted last may come a moment after its line.
    until(lambda: service.metric("dlq_messages_replayed_total", **dead) == 1)
    until(lambda: service.metric("dlq_messages_discarded_total", **dead) == 1)
    until(lambda: service.metric(processed, action="refused", **dead) == 1)
    assert service.metric(processed, action="replayed", **dead) == 1
    assert service.metric(processed, action="discarded", **dead) == 1
    assert service.metric("dlq_message_age_seconds_count", **dead) == 2
    ages = sum(float(line["age_seconds"]) for line in handled)
    told = service.metric("dlq_message_age_seconds_sum", **dead)
    assert told == pytest.approx(ages, abs=1e-5)
    assert service.metric("dlq_processing_duration_ms_count", **dead) == 2
    spent = service.metric("dlq_processing_duration_ms_sum", **dead)
    assert spent is not None
    assert 2 * SECONDS * 1000 <= spent <= ages * 1000
    assert service.metric("dlq_queue_depth", **dead) == 1  # the one that was refused


def test_another_process_can_handle_the_letters_of_a_service(
    redis_server: Server, tmp_path: Path
) -> None:
    """The service has no consumer of its own here: this process is the consumer."""
    service = Service(fresh(redis_server.url), tmp_path, "systems.agents.no_consumers")
    try:
        with Backend(service.env["AGENTS_URL"], office=service.env["AGENTS_OFFICE"]) as backend:
            boxes = mailboxes(backend)
            boxes.requests.send(MainLoopRequest(Question("Sing")))
            until(lambda: boxes.dead_requests.approximate_count() == 1, within=60)
            seen: list[DeadLetter[Any]] = []
            DLQConsumer(mailbox=boxes.dead_requests, handler=seen.append).run(
                max_iterations=1, wait_time_seconds=5
            )
            assert [letter.body.request.text for letter in seen] == ["Sing"]
            assert boxes.dead_requests.approximate_count() == 0
    finally:
        service.process.terminate()
        service.process.wait(30)


def test_every_dead_letter_mailbox_of_the_service_has_a_consumer() -> None:
    with Backend("memory://") as backend:
        boxes = mailboxes(backend)
        group = loops(boxes, Settings(), consumers(boxes, Telemetry()))

        worked = {loop.mailboxes()[0].name for loop in group.loops}
        dead = {box.name for loop in group.loops for box in loop.dead_mailboxes()}
    assert {"requests-dlq", "eval-requests-dlq"} == dead
    assert dead < worked


@pytest.mark.parametrize("error", [MailboxConnectionError, RateLimitError, TimeoutError])
def test_the_service_never_dead_letters_transient_errors(error: type[Exception]) -> None:
    with Backend("memory://") as backend:
        boxes = mailboxes(backend)
        for policy in (
            service_policy(boxes.dead_requests, Settings()),
            service_policy(boxes.dead_eval_requests, Settings()),
        ):
            message: ReceivedMessage[Any, Any] = ReceivedMessage(
                id="m", body=None, delivery_count=1000, enqueued_at=datetime.now(UTC)
            )
            assert not policy.should_dead_letter(message, error("away"))


def test_settings_and_their_defaults() -> None:
    usual = Settings()

    assert (usual.max_deliveries, usual.backoff_step, usual.backoff_cap) == (5, 60, 900)
    assert (usual.health_port, usual.wait, usual.visibility) == (8080, 20, 300)
    assert Settings.from_environment({"AGENTS_MAX_DELIVERIES": "3"}).max_deliveries == 3
    with pytest.raises(ValueError, match="AGENTS_WAIT must be a float, got 'soon'"):
        Settings.from_environment({"AGENTS_WAIT": "soon"})


def test_dead_letter_mailboxes_are_named_after_their_sources() -> None:
    with Backend("memory://") as backend:
        boxes = mailboxes(backend)

        assert (boxes.requests.name, boxes.dead_requests.name) == ("requests", "requests-dlq")
    assert PROFILES["mailbox"].dead_queue("requests") == "requests-dlq"


def test_every_queue_has_a_dead_letter_mailbox_of_its_own() -> None:
    with Backend("memory://") as backend:
        boxes = mailboxes(backend)

        assert boxes.eval_requests.name == "eval-requests"
        assert boxes.dead_eval_requests.name == "eval-requests-dlq"
    assert PROFILES["mailbox"].dead_queue("eval-requests") == "eval-requests-dlq"


def test_sources_keep_messages_for_three_days() -> None:
    with Backend("memory://") as backend:
        boxes = mailboxes(backend)

        assert boxes.requests.default_ttl == boxes.eval_requests.default_ttl == 259_200
    assert PROFILES["mailbox"].retention.source == SOURCE_TTL == 259_200


def test_dead_letter_mailboxes_keep_letters_for_thirty_days() -> None:
    with Backend("memory://") as backend:
        boxes = mailboxes(backend)

        assert boxes.dead_requests.default_ttl == boxes.dead_eval_requests.default_ttl == 2_592_000
    assert PROFILES["mailbox"].retention.dead == DLQ_TTL == 2_592_000


def test_dead_letters_are_kept_longer_than_messages() -> None:
    with Backend("memory://") as backend:
        boxes = mailboxes(backend)

        assert boxes.dead_requests.default_ttl > boxes.requests.default_ttl
        assert boxes.dead_eval_requests.default_ttl > boxes.eval_requests.default_ttl


def test_the_demo_prints_the_transcript_of_the_readme() -> None:
    page = (ROOT / "examples/agents/README.md").read_text()
    shown = re.search(r"```\n(## Questions.*?)```", page, re.DOTALL)
    assert shown is not None
    ran = subprocess.run(
        [sys.executable, "-m", "agents.demo", "--once"],
        env={**os.environ, **PATHS},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = difference(shown[1].splitlines(), ran.stdout.splitlines())
    assert said is None, said


def test_the_readme_shows_the_code_and_all_settings() -> None:
    page = (ROOT / "examples/agents/README.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]

    assert code.strip() in (ROOT / "examples/agents/service.py").read_text()
    for name in Settings.__slots__:
        assert f"`AGENTS_{name.upper()}`" in page
