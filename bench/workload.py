"""
What every contestant does: the same bodies, the same failures, one stopwatch.

A contestant is a module of `peers` with one function per workload, run in a
process of its own, in an empty folder. It prepares what it needs, starts the
watch at the first handler call (or the first statement), stops it when its own
store says that nothing is left, checks what it did, and reports.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

ATTEMPTS = 3
BATCH = 100


class Measured(Struct, frozen=True):
    """How long something took: by the clock on the wall, and of the processor."""

    n: int
    seconds: float
    cpu_seconds: float

    @property
    def per_s(self) -> float:
        return self.n / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of processor time for each."""
        return self.cpu_seconds / self.n * 1e6


Play: TypeAlias = Callable[[Path, int, str], Measured]
"""One workload: an empty folder, how many messages, and a setting of the peer."""


_numbers: Final = count(1)


class Poison(Exception):
    """Why handlers of the poison workload fail."""


class Watch:
    """Starts at the first hit, and calls `on_last` at the n-th."""

    def __init__(self, n: int, on_last: Callable[[], object] | None = None) -> None:
        self._n = n
        self._on_last = on_last
        self._hits = 0
        self._started = self._cpu = 0.0

    def start(self) -> None:
        """Start by hand, where there is no handler."""
        # What was prepared is nobody's cost: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        self._cpu = time.process_time()
        self._started = time.perf_counter()

    def hit(self) -> None:
        """A handler was called."""
        if self._hits == 0:
            self.start()
        self._hits += 1
        if self._hits == self._n and self._on_last is not None:
            self._on_last()

    def stop(self, n: int | None = None) -> Measured:
        """What it took, for `n` messages rather than for as many as were hit."""
        seconds = time.perf_counter() - self._started
        return Measured(n or self._n, seconds, time.process_time() - self._cpu)


def body(n: int) -> dict[str, Any]:
    """A message of about 300 bytes, once it is JSON."""
    return {
        "order": {"id": f"order-{n:09d}", "number": n, "currency": "EUR"},
        "customer": {"id": n % 9973, "email": f"customer{n % 9973}@example.org"},
        "lines": [
            {"article": "A-1001", "count": 2, "cents": 1999},
            {"article": "A-2044", "count": 1, "cents": 550},
        ],
        "placed": "2024-05-01T12:00:00Z",
        "note": "leave it with the neighbour if nobody opens",
    }


def bodies(n: int) -> list[bytes]:
    """Messages as bytes, for those who take bytes."""
    return [json.dumps(body(i)).encode() for i in range(n)]


def boom() -> None:
    """Fail, each time with another text, so that kept stories can be counted."""
    raise Poison(f"order {next(_numbers):012x} cannot be booked")


def must_be(found: object, wanted: object, what: str) -> None:
    """A benchmark of something that did not work is worth nothing."""
    if found != wanted:
        raise SystemExit(f"{what}: {found!r} instead of {wanted!r}")


def play(workloads: Mapping[str, Play]) -> None:
    """Be a contestant: `python -m peers.NAME WORKLOAD FOLDER N SETTING`."""
    name, folder, n, setting = sys.argv[1:5]
    measured = workloads[name](Path(folder), int(n), setting)
    print(
        json.dumps(
            {"n": measured.n, "seconds": measured.seconds, "cpu_seconds": measured.cpu_seconds}
        )
    )
