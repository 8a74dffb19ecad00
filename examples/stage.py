"""
What the demos of the five systems share: real servers of their own, the service as a
process, and a story told line by line.

    with Stage() as stage:
        redis = stage.server(Redis)
        api = stage.process("courier.api", env={"REDIS_URL": redis.url, ...})
        stage.chapter("A courier reports a delivery")
        stage.say("202", "accepted")

Everything that was started is ended with the stage, also when the story breaks off.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from servers import Server
from servers.common import free_port

HERE = Path(__file__).parent
PATIENCE = 120.0  # seconds that a step of a story may take on a busy machine
Kind = TypeVar("Kind", bound=Server)
T = TypeVar("T")


class Process:
    """A part of a system, running on its own; `log` is what it said."""

    def __init__(self, name: str, running: "subprocess.Popen[bytes]", log: Path):
        self.name = name
        self.log = log
        self._running = running

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._running.poll()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self, within: float = PATIENCE) -> int:
        """Ask it to end and wait: its exit code."""
        if self._running.poll() is None:
            self._running.terminate()
        return self._running.wait(within)

    def kill(self) -> None:
        """End it as the loss of power does."""
        if self._running.poll() is None:
            self._running.kill()
        self._running.wait()


class Stage:
    """Servers, processes and a story; all of it is gone afterwards."""

    def __init__(self) -> None:
        self._ending = ExitStack()
        self.place = Path(self._ending.enter_context(_directory()))
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.close()

    def server(self, kind: type[Kind]) -> Kind:
        """A real server that nobody else uses."""
        server = kind()
        self._ending.callback(server.close)
        server.start()
        return server

    def port(self) -> int:
        return free_port()

    def process(
        self, module: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> Process:
        """Run `python -m module` beside us; it sees the examples, not the tests."""
        command = [sys.executable, "-m", module, *arguments]
        return self.program(module, command, env={"PYTHONPATH": str(HERE), **(env or {})})

    def program(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> Process:
        """Run a program beside us."""
        log = self.place / f"{len(self._processes)}-{name}.log"
        with log.open("wb") as out:
            running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.place,
                env={**os.environ, **(env or {})},
            )
        process = Process(name, running, log)
        self._ending.callback(process.kill)
        self._processes.append(process)
        return process

    def until(self, what: str, check: Callable[[], T], within: float = PATIENCE) -> T:
        """Ask until the answer is something, and give it."""
        deadline = time.monotonic() + within
        while True:
            answer = check()
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {within:g} s{self._said()}")
            time.sleep(0.05)

    def _said(self) -> str:
        """The last words of every part, for whoever has to find out why."""
        words = ((one, one.said()[-2000:].strip()) for one in self._processes)
        return "".join(f"\n-- {one.name} ({one.code}): {said}" for one, said in words if said)

    def chapter(self, title: str) -> None:
        print(f"\n## {title}", flush=True)

    def say(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def command(self, line: str) -> None:
        """What a person would type to do the same."""
        print(f" $ {line}", flush=True)


def _directory() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="dlq-example-", ignore_cleanup_errors=True)
