"""Ctrl-C while `dlq` waits for input."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cli.conftest import Command
from deadletter.core.letter import State
from office.making import make_letter

pytestmark = pytest.mark.slow

_PATIENCE = 30.0  # seconds, on a busy machine


class Terminal:
    """The command `dlq` on a pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int, inside: int) -> None:
        self.process = process
        self._screen = screen
        self._inside = inside
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Read until a text is on the screen."""
        until = time.monotonic() + _PATIENCE
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            if select.select([self._screen], [], [], 0.1)[0]:
                self.seen += os.read(self._screen, 4096).decode()

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait_until_read(self) -> None:
        """Wait until all typed bytes have been read."""
        until = time.monotonic() + _PATIENCE
        while _waiting(self._inside):
            assert time.monotonic() < until, self.seen
            time.sleep(0.05)
        time.sleep(0.2)  # and more is waited for

    def ended(self) -> int:
        """Wait for the end and return the exit code; the last output is on the screen."""
        code = self.process.wait(10.0)
        while select.select([self._screen], [], [], 0.1)[0]:
            self.seen += os.read(self._screen, 4096).decode()
        return code


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    screen, inside = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli", *words], stdin=inside, stdout=inside, stderr=inside
    ) as process:
        try:
            yield Terminal(process, screen, inside)
        finally:
            process.kill()
            process.wait()
            os.close(inside)
            os.close(screen)


def _waiting(inside: int) -> int:
    """Return the number of typed bytes that have not been read."""
    counted = fcntl.ioctl(inside, termios.FIONREAD, bytes(4))
    return int.from_bytes(counted, sys.byteorder)


def test_the_first_ctrl_c_at_a_question_ends_it_and_nothing_is_changed(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)

    with terminal("discard", letter.id) as person:
        person.wait_for("[y/N] ")
        person.interrupt()
        code = person.ended()

    assert code == 130
    assert person.seen.endswith("\n")
    assert "Traceback" not in person.seen
    (found,) = dlq.do(lambda engine: engine.letters.get([letter.id]))
    assert found.head.state is State.PENDING


@pytest.mark.parametrize(
    "words", [["send", "orders", "-f", "-"], ["import", "-"], ["edit", "ID", "--body=-"]]
)
def test_the_first_ctrl_c_ends_waiting_for_standard_input(dlq: Command, words: list[str]) -> None:
    letter = make_letter()
    dlq.keep(letter)
    words = [letter.id if word == "ID" else word for word in words]

    with terminal(*words) as person:
        person.type(b"half a line\n")
        person.wait_for("half a line")
        person.wait_until_read()
        person.interrupt()
        code = person.ended()

    assert code == 130
    assert "Traceback" not in person.seen
    assert dlq.do(lambda engine: engine.broker.queues()) == []


def test_standard_input_is_read_to_its_end(dlq: Command) -> None:
    body = os.urandom(300_000)

    subprocess.run(
        [sys.executable, "-m", "deadletter.cli", "send", "orders", "-f", "-"],
        input=body,
        check=True,
    )

    (delivery,) = dlq.do(
        lambda engine: engine.broker.source("orders").receive(limit=1, wait=0.0, lease=5.0)
    )
    assert delivery.message.body == body
