"""A standard stream whose reader does not read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deadletter import output as standard
from deadletter.output import BoundedOutput


@contextmanager
def bounded_output(monkeypatch: pytest.MonkeyPatch) -> Iterator[BoundedOutput]:
    """The only output of this process: of its lines few wait, others are dropped."""
    reading, writing = os.pipe()
    output = BoundedOutput(writing, lines=1, size=200_000)
    monkeypatch.setattr(standard, "_outputs", [output])
    try:
        yield output
    finally:
        os.close(reading)  # so that its thread ends its wait
        output.drain(5.0)
        output.close()
        os.close(writing)
