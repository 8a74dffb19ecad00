"""
Who takes part, and rounds in which everybody has a turn.

Rounds are interleaved: each workload is played by everybody before it is played
again, so that whatever else the machine does hits all of them alike. What counts
is the median.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from workload import Measured

BENCH = Path(__file__).resolve().parent
RESULTS = BENCH / "results"
WORKLOADS = ("enqueue", "enqueue-bulk", "happy", "poison", "replay", "confirm")


class Contestant(Struct, frozen=True, kw_only=True):
    """Somebody who takes part, and how many messages each workload has for him."""

    name: str
    module: str
    setting: str = "-"
    package: str = ""  # what must be installed
    is_peer: bool = True
    survives: str = "power cut"  # what an answered write survives at most
    sizes: dict[str, int]

    @property
    def is_here(self) -> bool:
        """Whether what it needs is installed."""
        try:
            return not self.package or bool(version(self.package))
        except PackageNotFoundError:
            return False


# Peers drain and bury as many as in the contest that the targets were drawn from:
# some get slower the more they hold, so other numbers would make other targets.
_FAST = {"enqueue-bulk": 20_000, "happy": 20_000, "poison": 5_000, "replay": 10_000}
_SLOW = {"enqueue": 500, "happy": 5_000, "poison": 1_000}

CONTESTANTS = (
    Contestant(
        name="raw", module="raw", setting="full", is_peer=False,
        sizes={"enqueue": 5_000, **_FAST},
    ),
    Contestant(
        name="raw-normal", module="raw", setting="normal", is_peer=False,
        survives="kill -9",
        sizes={"enqueue": 5_000, **_FAST},
    ),
    Contestant(
        name="deadletter", module="ours", setting="full", is_peer=False,
        sizes={"enqueue": 5_000, **_FAST, "confirm": 10_000},
    ),
    Contestant(
        name="deadletter-normal", module="ours", setting="normal", is_peer=False,
        survives="kill -9",
        sizes={"enqueue": 5_000, **_FAST, "confirm": 10_000},
    ),
    Contestant(
        name="huey", module="huey_consumer", package="huey", sizes=_SLOW,
    ),
    Contestant(
        name="huey-unsynced", module="huey_consumer", setting="unsynced",
        package="huey", survives="kill -9",
        sizes={"enqueue": 5_000, "happy": 10_000, "poison": 2_000},
    ),
    Contestant(
        name="persist-queue", module="persist_queue_loop", package="persist-queue",
        sizes={**_SLOW, "replay": 1_000},
    ),
    Contestant(
        name="litequeue", module="litequeue_loop", package="litequeue",
        survives="kill -9",
        sizes={"enqueue": 5_000, "happy": 10_000, "poison": 3_000, "replay": 3_000},
    ),
)  # fmt: skip

One = TypeVar("One", bound=Contestant)
Turn: TypeAlias = tuple[str, Contestant, int]
Results: TypeAlias = dict[tuple[str, str], Measured]
"""By workload and name."""


class Failed(Exception):
    """A contestant did not do what it was to do."""


def present(contestants: Sequence[Contestant] = CONTESTANTS) -> list[Contestant]:
    """Those whose packages are installed."""
    return [one for one in contestants if one.is_here]


def turns(
    contestants: Sequence[One], workloads: Sequence[str], *, rounds: int, scale: float
) -> Iterator[tuple[str, One, int]]:
    """Everybody's turns, round by round."""
    for workload in workloads:
        for _ in range(rounds):
            for one in contestants:
                if workload in one.sizes:
                    yield workload, one, max(100, round(one.sizes[workload] * scale))


@contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder on a real disk, gone afterwards."""
    RESULTS.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="run-", dir=RESULTS) as name:
        yield Path(name)


def play(turn: Turn) -> Measured:
    """One turn: a process of its own, in a folder of its own."""
    workload, one, n = turn
    program = [sys.executable, "-m", f"peers.{one.module}"]
    with workplace() as folder:
        words = [workload, str(folder), str(n), one.setting]
        return alone([*program, *words], f"{one.name}, {workload}")


def alone(command: Sequence[str], who: str) -> Measured:
    """Run a contestant to its end, and take what it says last for its result."""
    try:
        done = subprocess.run(
            command,
            cwd=BENCH, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{who}: not done after {error.timeout:.0f} seconds") from error
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.strip()[-2000:] or f"ended by {done.returncode}, silently"
        raise Failed(f"{who}: {said}")
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Measured)


def contest(
    contestants: Sequence[Contestant],
    workloads: Sequence[str],
    *,
    rounds: int,
    scale: float,
    on_turn: Callable[[Turn], None],
) -> Results:
    """All rounds; of everything the median."""
    taken: dict[tuple[str, str], list[Measured]] = {}
    for turn in turns(contestants, workloads, rounds=rounds, scale=scale):
        on_turn(turn)
        taken.setdefault((turn[0], turn[1].name), []).append(play(turn))
    return {key: median_of(found) for key, found in taken.items()}


def median_of(found: Sequence[Measured]) -> Measured:
    """What counts of several rounds."""
    return Measured(
        found[0].n, median(one.seconds for one in found), median(one.cpu_seconds for one in found)
    )
