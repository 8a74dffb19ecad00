"""`dlq serve` as a real process on a free port."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

WITHIN = 30.0  # seconds


class Served:
    """A server process, its output, and clients of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((process.stdout, self.out), (process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, into: list[str]) -> None:
        into.extend(iter(stream.readline, ""))

    @property
    def said(self) -> str:
        return "".join([*self.out, *self.err])

    @property
    def url(self) -> str:
        """Wait until the server listens, and return its URL."""
        self.until(lambda: "istening" in self.said or self.process.poll() is not None)
        found = re.search(r"http://\S+:\d+", self.said)
        assert found is not None, self.said
        return found[0].rstrip('",}')

    @property
    def tokens(self) -> list[str]:
        """Return the tokens in the output."""
        return re.findall(r"dlq_[a-z0-9]+_[0-9a-f]{64}", self.said)

    @property
    def token(self) -> str:
        """Wait for the first token in the output, and return it."""
        self.until(lambda: self.tokens)
        return self.tokens[0]

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=WITHIN)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN
        while not condition():
            assert time.monotonic() < deadline, f"not in time; it said: {self.said}"
            time.sleep(0.02)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait until the process has ended and its output is read; return the exit code."""
        code = self.process.wait(WITHIN)
        for reader in self._readers:
            reader.join(WITHIN)
        return code

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.out]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a new directory, and no variable except DLQ_URL."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DLQ_")]:
        if not name.startswith("DLQ_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DLQ_URL", f"sqlite:///{tmp_path}/office.db")


@pytest.fixture
def serve(elsewhere: None) -> Iterator[Callable[..., Served]]:
    """Return a function that starts `dlq serve` on a free port; end all afterwards."""
    started: list[Served] = []

    def starting(*words: str, port: int = 0, program: str | None = None, **environ: str) -> Served:
        dlq = ["-m", "deadletter.cli"] if program is None else ["-c", program]
        process = subprocess.Popen(
            [sys.executable, *dlq, "serve", f"--port={port}", *words],
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(Served(process))
        return started[-1]

    yield starting
    for served in started:
        served.process.kill()
        served.ended()
        for stream in (served.process.stdout, served.process.stderr):
            assert stream is not None
            stream.close()
