"""The service as a process of its own, and what a person does with it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from agents import DeadLetter, DLQConsumer
from agents.__main__ import main
from agents.mailbox import DLQ_TTL, SOURCE_TTL
from agents.post import Post
from agents.service import mailboxes
from agents.settings import Settings
from deadletter import PROFILES
from docs.transcript import difference
from engines.redis_rig import fresh
from servers import Server
from servers.common import free_port
from systems.agents.rig import until

pytestmark = pytest.mark.xdist_group("redis_server")

ROOT = Path(__file__).parents[3]
PATHS = {"PYTHONPATH": f"{ROOT / 'examples'}:{ROOT / 'tests'}:{ROOT / 'src'}"}


class Service:
    """`python -m agents`, running."""

    def __init__(self, url: str, place: Path) -> None:
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
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agents"],
            env={**os.environ, **PATHS, **self.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def asked(self, port: str, path: str) -> str:
        try:
            url = f"http://127.0.0.1:{self.env[f'AGENTS_{port}_PORT']}{path}"
            with urlopen(url, timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


@pytest.fixture
def service(
    redis_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    service = Service(fresh(redis_server.url), tmp_path)
    for name, value in service.env.items():
        monkeypatch.setenv(name, value)
    try:
        yield service
    finally:
        service.process.terminate()
        service.process.wait(30)


def test_ask_evaluate_replay_and_what_can_be_seen_meanwhile(
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
    assert '"depth":3' in service.asked("HEALTH", "/health/dlq")

    service.facts.write_text(json.dumps({"godot": "He does not come"}))
    assert main(["replay", "--error", "ResourceNotFound"]) == 0
    assert "1 replayed" in capsys.readouterr().out
    with Post(service.env["AGENTS_URL"], office=service.env["AGENTS_OFFICE"]) as post:
        boxes = mailboxes(post)
        until(lambda: boxes.requests.approximate_count() == 0)
        # Somebody else handles what is left, in another process than the service.
        seen: list[DeadLetter[Any]] = []
        DLQConsumer(mailbox=boxes.dead_requests, handler=seen.append).run(
            max_iterations=1, wait_time_seconds=5
        )
    assert {letter.body.request.text for letter in seen} == {"Steal it", "Sing"}

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
    assert "s-3  error: Dead-lettered after 1 attempts: no tool is for 'sing'" in said
    assert "1 of 3 passed" in said

    alerted = 'dlq_messages_total{error_type="agents.errors.ValidationError"'
    until(lambda: alerted in service.asked("METRICS", "/metrics"))
    metrics = service.asked("METRICS", "/metrics")
    assert 'dlq_messages_sent_total{mailbox="requests"} 3.0' in metrics
    assert 'dlq_queue_depth{mailbox="requests-dlq"} 0.0' in metrics
    assert service.asked("HEALTH", "/health/ready") == '{"status":"healthy"}'

    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(30) == 0


def test_what_is_set_and_what_is_usual() -> None:
    usual = Settings()

    assert (usual.max_deliveries, usual.backoff_step, usual.backoff_cap) == (5, 60, 900)
    assert (usual.health_port, usual.wait, usual.visibility) == (8080, 20, 300)
    assert Settings.from_environment({"AGENTS_MAX_DELIVERIES": "3"}).max_deliveries == 3
    with pytest.raises(ValueError, match="AGENTS_WAIT='soon' is not a float"):
        Settings.from_environment({"AGENTS_WAIT": "soon"})


def test_names_and_retention_of_the_mailboxes() -> None:
    with Post("memory://") as post:
        boxes = mailboxes(post)

        assert boxes.requests.name == "requests"
        assert boxes.dead_requests.name == "requests-dlq"
        assert boxes.eval_requests.name == "eval-requests"
        assert boxes.dead_eval_requests.name == "eval-requests-dlq"
        for source, dead in (
            (boxes.requests, boxes.dead_requests),
            (boxes.eval_requests, boxes.dead_eval_requests),
        ):
            assert source.default_ttl == SOURCE_TTL == 259_200
            assert dead.default_ttl == DLQ_TTL == 2_592_000 > source.default_ttl
            assert PROFILES["mailbox"].dead_queue(source.name) == dead.name
    retention = PROFILES["mailbox"].retention
    assert (retention.source, retention.dead) == (SOURCE_TTL, DLQ_TTL)


def test_the_story_is_as_the_page_tells_it() -> None:
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


def test_the_page_shows_code_and_settings_as_they_are() -> None:
    page = (ROOT / "examples/agents/README.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]

    assert code.strip() in (ROOT / "examples/agents/service.py").read_text()
    for name in Settings.__slots__:
        assert f"`AGENTS_{name.upper()}`" in page
