"""
A real server for tests: private port, private data, gone when the tests are.

Where it comes from, in this order: a URL in the environment, a program on the PATH,
a program that `make services` put into `.servers`. Settings are durable ones, so
that a test which kills the server learns the truth.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from random import SystemRandom
from typing import IO, ClassVar
from unittest import SkipTest

ROOT = Path(__file__).parent.parent.parent
INSTALLED = ROOT / ".servers"
GUARD = Path(__file__).with_name("guard.py")
HOST = "127.0.0.1"
PASSWORD = "postmark"

# Below the ports that the system hands out: while a server is down nobody else's
# connection takes its port, and no client that retries connects to itself.
PORTS = range(20_000, 32_000)


class Missing(Exception):
    """A server that is not on this machine; the message says how to get it."""


class NotOurs(SkipTest):
    """A server from the environment is not ours to stop: such a test is skipped."""


class Server(ABC):
    """
    One server. `start`, `stop`, `kill` (as `kill -9`) and `restart` keep port and data.

    All of them block until it is so: in a coroutine, `await asyncio.to_thread(...)`.
    `url` is what an engine is opened with. `ours` says whether it may be stopped.
    """

    name: ClassVar[str]
    ready_within: ClassVar[float] = 30.0
    stops_by: ClassVar[signal.Signals] = signal.SIGTERM
    drops_root: ClassVar[bool] = False
    # What a server says when a predecessor that was killed has not quite gone.
    passing_troubles: ClassVar[tuple[str, ...]] = ("ddress already in use",)

    def __init__(self) -> None:
        given = os.environ.get(self.variable())
        self.ours = not given
        self._guard: subprocess.Popen[str] | None = None
        if given:
            self.url = given
            return
        self.programs = self.find()
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"dlq-{self.name}-"))
        self.url = self.make_url()
        self._pid = 0
        self._user = "-"
        if self.drops_root and os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.directory, nobody.pw_uid, nobody.pw_uid)
            self._user = str(nobody.pw_uid)
        self._prepared = False

    # What each server says about itself.

    @classmethod
    @abstractmethod
    def find(cls) -> dict[str, Path]:
        """The programs it is made of, the server first; raises Missing."""

    @abstractmethod
    def make_url(self) -> str:
        """How an engine reaches it."""

    def prepare(self) -> None:  # noqa: B027  some have nothing to prepare
        """What is done once, before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The server, in the foreground."""

    def environment(self) -> dict[str, str]:
        """Variables on top of ours."""
        return {}

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers; may raise OSError while it does not."""

    # What tests do with it.

    @classmethod
    def variable(cls) -> str:
        """The variable of the environment that names a server to use instead."""
        return f"DLQ_TEST_{cls.name.upper()}_URL"

    @property
    def running(self) -> bool:
        """Whether its process is there; of a server that is not ours, we trust so."""
        if not self.ours:
            return True
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Start it and wait until it answers; nothing to do if it runs already."""
        if not self.ours or self.running:
            return
        if not self._prepared:
            self.prepare()
            self._prepared = True
        deadline = time.monotonic() + self.ready_within
        self._spawn()
        while not self._answers():
            if not self.running:
                self._after_early_end()
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"{self.name} is not ready: {self.last_words()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._end(self.stops_by)

    def kill(self) -> None:
        """End it without a word, as `kill -9` or the loss of power does."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start, on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Be gone, with all data."""
        if not self.ours:
            return
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2000:]

    # How processes are handled.

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _spawn(self) -> None:
        command = self.command()
        with self._log.open("ab") as log:
            self._guard = subprocess.Popen(
                [*(sys.executable, "-IS", GUARD, self.directory, self._user), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                start_new_session=True,
                text=True,
            )
        self._pid = int(_of(self._guard.stdout).readline())

    def _answers(self) -> bool:
        try:
            return self.is_ready() and self.running
        except OSError:
            return False

    def _after_early_end(self) -> None:
        words = self.last_words()
        self._forget()
        if not any(trouble in words[-500:] for trouble in self.passing_troubles):
            raise RuntimeError(f"{self.name} does not start: {words}")
        time.sleep(0.2)
        self._spawn()

    def _end(self, by: signal.Signals) -> None:
        if not self.ours:
            raise NotOurs(f"{self.variable()} is set: that server is not ours to stop")
        if self._guard is None:
            return
        if self._guard.poll() is None:
            _signal(self._pid, by)
            try:
                self._guard.wait(20)
            except subprocess.TimeoutExpired:
                by = signal.SIGKILL
                _signal(self._pid, by)
                self._guard.wait(20)
        self._forget()

    def _forget(self) -> None:
        if self._guard is not None:
            _of(self._guard.stdin).close()
            _of(self._guard.stdout).close()
            self._guard.wait()
        self._guard = None

    def run(self, *command: str | Path) -> None:
        """Run a program to its end, as the user the server runs as."""
        done = subprocess.run(
            [str(part) for part in command],
            check=False,
            cwd=self.directory,
            env={**os.environ, **self.environment()},
            capture_output=True,
            text=True,
            user=None if self._user == "-" else int(self._user),
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")

    def ask(self, question: bytes = b"", size: int = 4096) -> bytes:
        """Connect, say something, take the first answer."""
        with socket.create_connection((HOST, self.port), 2) as connection:
            if question:
                connection.sendall(question)
            return connection.recv(size)


def program(name: str, *places: str) -> Path:
    """The program on the PATH, or at one of the places below `.servers`."""
    if on_path := shutil.which(name):
        return Path(on_path)
    for place in places:
        for found in sorted(INSTALLED.glob(place)):
            return found
    raise Missing(f"no {name} here: run `make services`")


def free_port() -> int:
    """A port that nobody listens on."""
    dice = SystemRandom()
    while True:
        port = dice.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def _signal(pid: int, by: signal.Signals) -> None:
    try:
        if by is signal.SIGKILL:
            os.killpg(pid, by)
        else:
            os.kill(pid, by)
    except ProcessLookupError:
        return


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
