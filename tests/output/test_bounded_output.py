"""Output whose reader is slow, away or gone."""

import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadletter.output import BoundedOutput, plain_notice

FULL = 1 << 20  # more than any pipe or socket here holds


@pytest.fixture(params=["pipe", "socket", "pipe that blocks"])
def ends(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, int]]:
    """Where it is read, where it is written."""
    if request.param == "socket":
        reader, writer = (one.detach() for one in socket.socketpair())
    else:
        reader, writer = os.pipe()
    if request.param == "pipe that blocks":
        monkeypatch.setattr("deadletter.output.unblocked_twin", lambda number: None)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def read_lines(reader: int, last: bytes) -> list[bytes]:
    """Everything up to this line."""
    data = b""
    while not data.endswith(last):
        data += os.read(reader, 1 << 16)
    return data.splitlines()


def dropped_by(line: bytes) -> int:
    """How many lines it says are missing."""
    number = int(line.split()[1])
    assert line == plain_notice(number).encode()
    return number


def test_lines_arrive_in_order_when_somebody_reads(ends: tuple[int, int]) -> None:
    reader, writer = ends
    output = BoundedOutput(writer)
    lines = [b"line %d" % number for number in range(5_000)]

    def write() -> None:
        for line in lines:
            output.write(line + b"\n")

    writing = threading.Thread(target=write)
    writing.start()
    found = read_lines(reader, lines[-1] + b"\n")
    writing.join()

    assert found == lines
    assert output.dropped == 0


def test_without_a_reader_lines_are_dropped_counted_and_told(ends: tuple[int, int]) -> None:
    reader, writer = ends
    output = BoundedOutput(writer, size=10_000)
    line = b"x" * 999 + b"\n"
    written = 2 * FULL // len(line)

    for _ in range(written):
        output.write(line)  # the test would hang here
    kept, told = 0, 0
    while kept + told < written:
        for found in read_lines(reader, b"\n"):
            kept += found == line[:-1]
            told += 0 if found == line[:-1] else dropped_by(found)

    assert told == output.dropped > 0
    output.write(b"and on\n")
    assert read_lines(reader, b"and on\n") == [b"and on"]
    assert output.drain(5.0)


def test_draining_without_a_reader_ends_in_time(ends: tuple[int, int]) -> None:
    _, writer = ends
    output = BoundedOutput(writer, size=2 * FULL)
    output.write(b"x" * FULL)

    assert not output.drain(0.05)


def test_more_than_the_count_is_dropped(ends: tuple[int, int]) -> None:
    reader, writer = ends
    output = BoundedOutput(writer, lines=3, size=2 * FULL)
    output.write(b"x" * FULL + b"\n")  # what waits for the reader
    for _ in range(20):
        output.write(b"y\n")

    assert 16 <= output.dropped <= 18  # some wait, one may be on its way
    *_, told = read_lines(reader, b"output\n")
    assert dropped_by(told) == output.dropped


def test_a_reader_that_goes_away_is_no_error(ends: tuple[int, int]) -> None:
    reader, writer = ends
    output = BoundedOutput(writer)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), reader)

    for _ in range(10):
        output.write(b"who reads this?\n")

    assert output.drain(5.0)
    assert output.dropped == 10


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        output = BoundedOutput(full.fileno())
        output.write(b"one\n")

        assert output.drain(5.0)
        assert output.dropped == 1


PROCESS = """
    import os, sys, time
    from deadletter.output import drain, dropped_lines, never_block
    never_block()
"""


def run(body: str, **options: int) -> subprocess.Popen[str]:
    script = textwrap.dedent(PROCESS) + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", script], text=True, **options)  # type: ignore[call-overload, no-any-return]


def test_a_process_ends_though_nobody_reads_what_it_printed() -> None:
    body = """
        for _ in range(5_000):
            print("x" * 1_000)
            print("y" * 1_000, file=sys.stderr)
        drain(within=0.2)
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with run(body, **pipes) as process:
        try:
            assert process.wait(20.0) == 0
        finally:
            process.kill()


def test_the_last_line_before_a_crash_is_not_lost() -> None:
    body = """
        print("about to crash", file=sys.stderr)
        os._exit(3)
    """
    with run(body, stderr=subprocess.PIPE) as process:
        _, err = process.communicate(timeout=20.0)

    assert (process.returncode, err) == (3, "about to crash\n")


def test_a_forked_child_does_not_wait_for_its_parents_thread() -> None:
    body = """
        print("x" * (1 << 20))
        child = os.fork()
        if not child:
            print("y" * 100, file=sys.stderr)
            os._exit(0 if drain(within=5.0) else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with run(body, **pipes) as process:
        try:
            assert process.wait(20.0) == 0
            assert process.stderr is not None
            assert process.stderr.readline() == "y" * 100 + "\n"
        finally:
            process.kill()
