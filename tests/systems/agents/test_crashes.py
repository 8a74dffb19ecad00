"""Crashes of real processes, and expiry of single messages."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents import BackendMailbox, DeadLetter, MainLoopRequest, MainLoopResult
from engines.redis_rig import fresh
from servers import Server
from systems.agents.rig import Rig, running, until, upper

pytestmark = pytest.mark.xdist_group("redis_server")

ROOT = Path(__file__).parents[3]
AGENT = Path(__file__).with_name("crashing_agent.py")


class Crashing:
    """An agent that is restarted whenever its process has ended."""

    def __init__(self, rig: Rig, url: str, place: Path) -> None:
        self.rig = rig
        self.deaths: list[int] = []
        self._runs = place / "runs"
        self._command = [
            *(sys.executable, str(AGENT), url, f"sqlite:///{place}/office.db"),
            *(str(self._runs), "0.5"),
        ]
        self._running: subprocess.Popen[bytes] | None = None

    def tend(self) -> None:
        """Start the agent, or restart it if its process has ended."""
        code = self._running.poll() if self._running else None
        if code is not None:
            self.deaths.append(code)
        if self._running is None or code is not None:
            self._running = self._started()

    def runs(self) -> list[str]:
        return self._runs.read_text().split() if self._runs.exists() else []

    def end(self) -> int:
        if self._running is None:
            return 0
        self._running.terminate()
        return self._running.wait(30)

    def _started(self) -> "subprocess.Popen[bytes]":
        paths = os.pathsep.join(str(ROOT / name) for name in ("src", "examples"))
        return subprocess.Popen(self._command, env={**os.environ, "PYTHONPATH": paths})


@pytest.fixture
def crashing(redis_server: Server, tmp_path: Path) -> Iterator[Crashing]:
    url = fresh(redis_server.url)
    rig = Rig(url, office=f"sqlite:///{tmp_path}/office.db")
    agent = Crashing(rig, url, tmp_path)
    try:
        yield agent
    finally:
        agent.end()
        rig.backend.close()


def the_letter(crashing: Crashing) -> DeadLetter[MainLoopRequest[str]]:
    """Return the letter of the request that kills its process, after as many restarts as needed."""

    def found() -> Any:
        crashing.tend()
        return crashing.rig.dead.receive()

    (message,) = until(found, within=120)
    body: DeadLetter[MainLoopRequest[str]] = message.body
    return body


def test_requests_that_kill_their_process_are_dead_lettered_without_others(
    crashing: Crashing,
) -> None:
    rig = crashing.rig
    told: BackendMailbox[MainLoopResult[str], None] = rig.box("of-poison", MainLoopResult[str])
    poison = MainLoopRequest("poison")
    rig.requests.send(poison, reply_to=told)
    innocents = {rig.ask(f"r{number}").request_id for number in range(4)}
    asked_at = datetime.now(UTC)

    letter = the_letter(crashing)

    # Lost beside others it is not charged; after that it runs alone, twice.
    assert crashing.deaths == [-9] * 3
    assert crashing.runs().count("poison") == 3
    assert letter.body == poison
    assert letter.last_error_type == "deadletter.WorkerLost"
    assert letter.delivery_count == 2
    assert asked_at < letter.first_received_at < letter.dead_lettered_at
    answered: set[object] = set()
    while answered != innocents:  # some of them twice: their process died in between
        result = rig.answer(within=30)
        assert result.success
        answered.add(result.request_id)
    until(lambda: rig.requests.approximate_count() == 0)
    (news,) = told.receive(max_messages=10, wait_time_seconds=15)
    assert news.body.request_id == poison.request_id
    assert news.body.error is not None
    assert news.body.error.startswith("Dead-lettered after 2 attempts: its worker died")
    assert len(rig.kept()) == 1
    assert crashing.end() == 0  # it lives again, and ends when it is told to


@contextmanager
def on_redis(server: Server, place: Path) -> Iterator[Rig]:
    rig = Rig(fresh(server.url), office=f"sqlite:///{place}/office.db")
    try:
        yield rig
    finally:
        rig.backend.close()


def test_each_message_expires_by_its_own_clock(redis_server: Server, tmp_path: Path) -> None:
    with on_redis(redis_server, tmp_path) as rig:
        brief: BackendMailbox[MainLoopRequest[str], Any] = rig.box(
            "requests", MainLoopRequest[str], default_ttl=0.3
        )
        brief.send(MainLoopRequest("old"), reply_to=rig.answers)
        # The mailbox stays in use: with a time to live of the whole queue, the old
        # one would live as long as others come.
        keep_busy(rig, seconds=0.4)
        new = rig.ask("new")
        with running(rig.loop(upper)):
            letter = rig.letter()
            results = {rig.answer().request_id for _ in range(2)}

        assert letter.body.request == "old"
        assert letter.last_error_type == "deadletter.Expired"
        assert new.request_id in results  # ...and nothing went with it
        assert letter.request_id in results  # told so
        assert rig.requests.approximate_count() == 0


def keep_busy(rig: Rig, *, seconds: float) -> None:
    """Send and receive messages for a while; those of the test are returned."""
    deadline = rig.backend.clock.monotonic() + seconds
    while rig.backend.clock.monotonic() < deadline:
        rig.requests.send(MainLoopRequest("other"))
        for message in rig.requests.receive(max_messages=10, wait_time_seconds=0.1):
            if message.body.request == "other":
                message.acknowledge()
            else:
                message.nack()
