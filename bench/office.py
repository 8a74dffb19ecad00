"""
The office with a million letters in it: filing, finding, grouping.

    python bench/office.py [--letters 1000000] [--json FILE]
"""

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import quantiles

from contest import workplace
from deadletter.app import App
from deadletter.core.letter import By, DeadLetter, State
from deadletter.office.groups import list_groups
from deadletter.office.letters import Letters
from deadletter.ports import LetterStore, Move
from deadletter.system import SystemClock
from office_letters import ERRORS, KEYS, SOURCES, letters
from report import Row, screen, show, write
from workload import Measured, Watch

BATCH = 100  # letters to a transaction, as a busy worker files them
FEW = 10_000
TIMES = 40
PAGE = 50
QUICK = 50.0  # milliseconds
SLOWER = 200.0


class Filing:
    """Files letters, and tells what each of the last ones cost."""

    def __init__(self, store: LetterStore, found: Iterator[DeadLetter]) -> None:
        self._store = store
        self._found = found

    async def file(self, n: int) -> Measured:
        """File the next n; making them up is not counted."""
        seconds = cpu = 0.0
        left = n
        while left:
            batch = list(islice(self._found, min(BATCH, left)))
            watch = Watch(len(batch))
            watch.start()
            await self._store.keep(batch)
            taken = watch.stop()
            seconds += taken.seconds
            cpu += taken.cpu_seconds
            left -= len(batch)
        return Measured(n, seconds, cpu)


async def filing(store: LetterStore, n: int) -> list[Row]:
    """All letters filed, and what one costs when there are few or many."""
    files = Filing(store, letters(n))
    few = min(FEW, n // 4)
    await files.file(few)
    early = await files.file(few)
    middle = await files.file(n - 3 * few)
    late = await files.file(few)
    return [
        Row(
            workload=f"keep: letters a second, up to {n:,}",
            per_s=round(middle.per_s, 1),
            n=middle.n,
            seconds=round(middle.seconds, 2),
            cpu_us=round(middle.cpu_us, 1),
            value=round(middle.per_s),
            unit="/s",
        ),
        Row(
            workload=f"keep: CPU for each with {few:,} there",
            value=round(early.cpu_us, 1),
            unit="µs",
        ),
        Row(
            workload=f"keep: with {n:,} there against {few:,}",
            cpu_us=round(late.cpu_us, 1),
            value=round(late.cpu_us / early.cpu_us, 2),
            unit="x",
            target=2.0,
        ),
    ]


async def review(store: LetterStore, desk: Letters, n: int) -> None:
    """Somebody has gone through some of them, oldest first."""
    old = frozenset({State.PENDING})
    for query, new in (("age:>25d", State.CLOSED), ("age:>20d", State.REVIEWED)):
        async for heads in desk.select(f"is:pending {query}", limit=n // 10):
            ids = tuple(head.id for head in heads)
            await store.move(Move(ids=ids, old=old, new=new), By("bench", "seen"))


async def searching(store: LetterStore, desk: Letters, n: int) -> list[Row]:
    """The searches people make, each with other values every time."""
    dice = random.Random(2)
    groups = [group.fingerprint for group in await store.groups(limit=100)]

    def error() -> str:
        return dice.choice(ERRORS).rpartition(".")[2]

    queries: dict[str, Callable[[], str]] = {
        "the newest": lambda: "",
        "is:pending": lambda: "is:pending",
        "is:closed": lambda: "is:closed",
        "source:": lambda: f"source:{dice.choice(SOURCES)}",
        "error:": lambda: f"error:{error()}",
        "group:": lambda: f"group:{dice.choice(groups)}",
        "key:": lambda: f"key:customer-{dice.randrange(KEYS)}",
        "message:": lambda: f"message:m-{dice.randrange(n):09d}",
        "age:": lambda: f"age:>{dice.randrange(1, 29)}d",
        "is: source: error: age:": lambda: (
            f"is:pending source:{dice.choice(SOURCES)} error:{error()} age:<15d"
        ),
        "source: !error: version:": lambda: (
            f"source:{dice.choice(SOURCES)} !error:{error()} version:1.7"
        ),
    }
    rows = []
    for name, query in queries.items():
        took = await _times(lambda query=query: desk.search(query(), limit=PAGE))
        rows += _spread(f"search {name}", took, QUICK)
    return rows


async def reading_bodies(store: LetterStore, desk: Letters, n: int) -> list[Row]:
    """A search about contents: bounded, and it says how far it has looked."""
    node = desk.understand(f"body.order.number:{n // 2}")
    looked_at = 0

    async def page() -> None:
        nonlocal looked_at
        looked_at = (await store.find(node, limit=PAGE)).looked_at

    rows = _spread("search body.: one page", await _times(page, 10), None)
    about = Row(workload="search body.: letters opened", value=looked_at, unit="")
    return [*rows, about]


async def grouping(store: LetterStore) -> list[Row]:
    """What broke, by cause."""
    everything = await _times(lambda: list_groups(store, limit=50))
    of_one = await _times(lambda: list_groups(store, source=SOURCES[0], limit=50))
    counts = await _times(store.counts)
    return [
        *_spread("groups", everything, SLOWER),
        *_spread("groups of one source", of_one, SLOWER),
        *_spread("counts by state", counts, QUICK),
    ]


async def _times(ask: Callable[[], Awaitable[object]], n: int = TIMES) -> list[float]:
    took = []
    for _ in range(n):
        began = time.perf_counter()
        await ask()
        took.append((time.perf_counter() - began) * 1000)
    return took


def _spread(what: str, took: list[float], target: float | None) -> list[Row]:
    cuts = quantiles(took, n=20)
    half, most = round(cuts[9], 2), round(cuts[18], 2)
    return [
        Row(workload=f"{what}, p50", value=half, unit="ms"),
        Row(workload=f"{what}, p95", value=most, unit="ms", target=target),
    ]


async def figures(folder: Path, n: int, say: Callable[[str], None]) -> list[Row]:
    """All of it."""
    async with App(f"sqlite:///{folder.as_posix()}/office.db") as app:
        store = await app.letters()
        desk = Letters(store, SystemClock())
        say(f"filing {n:,} letters")
        rows = await filing(store, n)
        say("reviewing some")
        await review(store, desk, n)
        say("searching")
        rows += await searching(store, desk, n)
        rows += await reading_bodies(store, desk, n)
        rows += await grouping(store)
    return [*rows, _size(folder, n)]


def _size(folder: Path, n: int) -> Row:
    size = sum(file.stat().st_size for file in folder.iterdir())
    return Row(workload="on disk for each", value=round(size / n), unit="bytes")


def main() -> int:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description="the office, measured")
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    console = screen()
    with workplace() as folder, console.status("starting") as status:
        rows = asyncio.run(figures(folder, asked.letters, status.update))
    show(console, f"The office, {asked.letters:,} letters", rows)
    if asked.json is not None:
        write(asked.json, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
