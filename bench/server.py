"""
The queue server beside the raw engine, in one run.

    python bench/server.py [--rounds 3] [--scale 1.0] [--only sqlite] [--json FILE]

`dlq serve` runs in a process of its own, its clients in this one: produce, lease and
complete in batches of 1 to 1000, by one client and by 32. Beside it the same batches
by hand, without a server. Then: how fast somebody who waits is woken, and what ten
thousand of them weigh.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import structs
from rich.table import Table

from contest import Results, median_of, workplace
from grounds import GROUNDS, Missing
from prompt import latencies
from report import Row, mark, screen, show, write
from server_load import DlqServe, Load, idle_leases, woken
from server_raw import Raw, RawPostgresql, RawSqlite
from workload import Measured, bodies

Tell: TypeAlias = Callable[[str], None]

OURS, RAW = "deadletter", "raw"
ENGINES = ("sqlite", "postgresql")
PACKAGES = ("deadletter", "litestar", "uvicorn", "httptools", "protobuf", "asyncpg")
# Batches, and how many items of each: enough to run for about a second.
SIZES = {1: 1_000, 10: 4_000, 100: 20_000, 1000: 40_000}
CLIENTS = (1, 32)
VERBS = ("produce", "lease", "complete")
TARGET = {100: 0.30}  # of the raw engine, by batch
CAUSES = ("produce", "retry falling due", "dead-letter move")
WAKES, WOKEN = 60, 50.0  # how often, and the milliseconds nearly all should take
IDLE, IDLE_MB = 10_000, 1024


def workloads() -> Iterator[tuple[int, int]]:
    """Batches and clients."""
    for batch in SIZES:
        for clients in CLIENTS:
            yield batch, clients


def name_of(verb: str, batch: int, clients: int) -> str:
    """A workload in words."""
    crowd = "1 client" if clients == 1 else f"{clients} clients"
    return f"{verb}, batch {batch}, {crowd}"


@contextmanager
def grounds(engine: str) -> Iterator[tuple[str, str, Path]]:
    """Where the server works, where the raw loop works, and a folder."""
    with workplace() as folder:
        if engine == "sqlite":
            yield f"sqlite:///{folder}/items.db", "", folder
            return
        with GROUNDS[engine].opened() as emptied:
            url = emptied()
            yield url, url, folder


async def cycle(who: Load | Raw, batch: int, clients: int, n: int) -> list[Measured]:
    """Produce, lease and complete the same items."""
    produced = await who.produce(bodies(n), batch, clients)
    leased, lent = await who.lease(n, batch, clients)
    return [produced, leased, await who.complete(lent, n, clients)]


async def measured(
    engine: str, place: tuple[str, str, Path], rounds: int, scale: float, told: Tell
) -> tuple[Results, list[Row]]:
    """Everything on one engine."""
    url, raw_url, folder = place
    server = DlqServe(folder, url)
    by_hand: Raw = await RawPostgresql.open(raw_url) if raw_url else RawSqlite(folder)
    try:
        load = Load(server, await server.port())
        await load.create()
        results = await rates(engine, {RAW: by_hand, OURS: load}, rounds, scale, told)
        return results, await waiting(engine, load, server, told)
    finally:
        await by_hand.close()
        server.end()


async def rates(
    engine: str, both: dict[str, Load | Raw], rounds: int, scale: float, told: Tell
) -> Results:
    """Rounds of all workloads, in which both have a turn."""
    taken: dict[tuple[str, str], list[Measured]] = {}
    for batch, clients in workloads():
        n = max(batch * clients, int(SIZES[batch] * scale) // batch * batch)
        for _ in range(rounds):
            for name, who in both.items():
                told(f"{engine}, batch {batch}, {clients} clients: {name}")
                figures = await cycle(who, batch, clients, n)
                for verb, one in zip(VERBS, figures, strict=True):
                    key = name_of(verb, batch, clients), name
                    taken.setdefault(key, []).append(one)
    return {key: median_of(found) for key, found in taken.items()}


async def waiting(engine: str, load: Load, server: DlqServe, told: Tell) -> list[Row]:
    """How fast who waits is woken, and what many who wait weigh."""
    rows: list[Row] = []
    for how in CAUSES:
        told(f"{engine}: woken by {how}")
        took = [await woken(load.port, how) for _ in range(WAKES)]
        half, most = latencies(f"{engine}: woken by {how}", took, target=None)
        rows += [half, structs.replace(most, target=WOKEN)]
    told(f"{engine}: {IDLE:,} idle leases")
    before = server.rss()
    async with idle_leases(load.port, IDLE):
        what = f"{engine}: RSS with {IDLE:,} idle leases"
        size = round(server.rss(), 1)
        rows.append(Row(workload=what, value=size, unit="MB", target=IDLE_MB))
        each = round((size - before) * 1024 / IDLE, 1)
        rows.append(Row(workload=f"{engine}: each of them", value=each, unit="KB"))
    return [structs.replace(row, engine=engine) for row in rows]


def rows_of(engine: str, results: Results) -> list[Row]:
    """Rates and ratios, and verdicts where there is a target."""
    rows = [
        Row(
            engine=engine,
            workload=workload,
            who=who,
            per_s=round(one.per_s, 1),
            vs_raw=_ratio(results, workload) if who == OURS else None,
            n=one.n,
            seconds=round(one.seconds, 4),
            cpu_us=round(one.cpu_us, 1),
        )
        for (workload, who), one in results.items()
    ]
    verdicts = [
        Row(
            engine=engine,
            workload=f"{workload}: deadletter / raw",
            value=_ratio(results, workload),
            unit="x",
            target=target,
            at_most=False,
        )
        for workload, target in targets()
    ]
    return rows + verdicts


def targets() -> Iterator[tuple[str, float]]:
    """Workloads with something to reach."""
    for batch, target in TARGET.items():
        for verb in VERBS:
            for clients in CLIENTS:
                yield name_of(verb, batch, clients), target


def table(played: dict[str, Results]) -> Table:
    """Everything in one table."""
    made = Table(title="Queue server", title_justify="left")
    for name in ("engine", "workload"):
        made.add_column(name, no_wrap=True)
    for name in ("items/s", "raw/s", "/ raw", "CPU µs"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("target", no_wrap=True)
    wanted = dict(targets())
    for engine, results in played.items():
        for workload, who in results:
            if who != OURS:
                continue
            ours, ratio = results[workload, OURS], _ratio(results, workload)
            target = wanted.get(workload)
            reached = None if target is None else ratio >= target
            made.add_row(
                engine,
                workload,
                f"{ours.per_s:,.0f}",
                f"{results[workload, RAW].per_s:,.0f}",
                f"{ratio:.2f}",
                f"{ours.cpu_us:,.1f}",
                "" if target is None else f"{mark(reached)} ≥ {target:g}",
            )
        made.add_section()
    return made


def _ratio(results: Results, workload: str) -> float:
    ours, theirs = results[workload, OURS], results[workload, RAW]
    return round(ours.per_s / theirs.per_s, 3)


def main() -> int:
    """Run everything and show it."""
    parser = argparse.ArgumentParser(description="The queue server beside raw")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times the items")
    parser.add_argument("--only", action="append", choices=ENGINES)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    console = screen()
    played: dict[str, Results] = {}
    waits: list[Row] = []
    with console.status("starting") as status:
        for engine in asked.only or ENGINES:
            try:
                with grounds(engine) as place:
                    run = measured(engine, place, asked.rounds, asked.scale, status.update)
                    played[engine], rows = asyncio.run(run)
            except Missing as missing:
                console.print(f"left out: {missing}", markup=False)
            else:
                waits += rows
    console.print(table(played))
    show(console, "Waiting", waits)
    if asked.json is not None:
        rated = [row for engine, found in played.items() for row in rows_of(engine, found)]
        write(asked.json, [*rated, *waits], PACKAGES)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
