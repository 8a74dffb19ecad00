"""
deadletter on SQLite beside a hand-written loop and its peers, in one run.

    python bench/embedded.py [--rounds 3] [--scale 1.0] [--only happy] [--json FILE]

Absolute figures say more about the disk than about anybody's code. What counts
are the ratios, and they are printed beside what they should be.
"""

import argparse
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from contest import CONTESTANTS, WORKLOADS, Contestant, Failed, Results, Turn, contest, present
from report import Row, mark, screen, write

OURS, RAW, PEER, UNSYNCED = "deadletter", "raw", "best peer", "huey-unsynced"

Target: TypeAlias = tuple[str, float]
TARGETS: dict[str, tuple[Target, ...]] = {
    "enqueue": ((RAW, 0.5),),
    "enqueue-bulk": ((RAW, 0.5),),
    "happy": ((RAW, 0.40), (PEER, 5.0), (UNSYNCED, 1.5)),
    "poison": ((RAW, 0.40), (PEER, 4.0)),
    "replay": ((RAW, 0.30), (PEER, 0.5)),
}
ABOUT = {
    "enqueue": "one by one, each durable before the next",
    "enqueue-bulk": "a hundred to a call",
    "happy": "drain of queued messages",
    "poison": "three failures each, then a dead letter with its story",
    "replay": "dead letters back to their queue, each tracked",
    "confirm": "replayed copies drained, each outcome confirmed",
}
SURVIVES = {one.name: one.survives for one in CONTESTANTS}
# Here a peer must survive what we survive, or the disk decides alone; where peers
# keep no errors and track no outcome they are all taken, whatever they survive.
AS_SAFE = frozenset({"enqueue", "enqueue-bulk", "happy"})


def rows_of(results: Results) -> list[Row]:
    """The results as rows: rates, and ratios where there is somebody to compare."""
    return [
        Row(
            workload=workload,
            who=who,
            per_s=round(measured.per_s, 1),
            vs_raw=_ratio(results, workload, who, RAW),
            vs_best_peer=_ratio(results, workload, who, PEER),
            n=measured.n,
            seconds=round(measured.seconds, 4),
            cpu_us=round(measured.cpu_us, 1),
        )
        for (workload, who), measured in results.items()
    ]


def verdicts(results: Results) -> dict[tuple[str, str], Row]:
    """Our ratios beside their targets, by workload and opponent."""
    found = {}
    for workload, targets in TARGETS.items():
        for other, target in targets:
            ratio = _ratio(results, workload, OURS, other)
            if ratio is not None:
                found[workload, other] = Row(
                    workload=f"{workload}: deadletter / {other}",
                    value=ratio,
                    unit="x",
                    target=target,
                    at_most=False,
                )
    return found


def table(results: Results, told: dict[tuple[str, str], Row]) -> Table:
    """Everything in one table."""
    made = Table(title="SQLite, embedded", title_justify="left")
    for name in ("workload", "who", "survives"):
        made.add_column(name, no_wrap=True)
    for name in ("n", "per second", "CPU µs", "/ raw", "/ best peer"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("target", no_wrap=True)
    last = None
    for row in rows_of(results):
        if last not in {None, row.workload}:
            made.add_section()
        ours = row.who == OURS
        made.add_row(
            row.workload if row.workload != last else "",
            f"[bold]{row.who}[/]" if ours else row.who,
            SURVIVES[row.who],
            f"{row.n:,}",
            f"{row.per_s:,.0f}",
            f"{row.cpu_us:,.1f}",
            "" if row.vs_raw is None else f"{row.vs_raw:.2f}",
            "" if row.vs_best_peer is None else f"{row.vs_best_peer:.2f}",
            _reached(row.workload, told) if ours else "",
        )
        last = row.workload
    return made


def _reached(workload: str, told: dict[tuple[str, str], Row]) -> str:
    return "\n".join(
        f"{mark(row.is_reached)} {row.value:.2f} ≥ {target:g} of {other}"
        for other, target in TARGETS.get(workload, ())
        if (row := told.get((workload, other))) is not None
    )


def _ratio(results: Results, workload: str, who: str, other: str) -> float | None:
    if other == PEER:
        other = _best_peer(results, workload) or ""
    elif other == RAW and SURVIVES[who] != SURVIVES[RAW]:
        other = "raw-normal"  # who is compared with the loop that is as safe
    ours, theirs = results.get((workload, who)), results.get((workload, other))
    if ours is None or theirs is None:
        return None
    return round(ours.per_s / theirs.per_s, 3)


def _best_peer(results: Results, workload: str) -> str | None:
    as_safe = [
        one.name
        for one in CONTESTANTS
        if one.is_peer and (workload not in AS_SAFE or one.survives == "power cut")
    ]
    found = {who: m.per_s for (w, who), m in results.items() if w == workload}
    return max(found.keys() & set(as_safe), key=found.__getitem__, default=None)


def main() -> int:
    """Run everything, show it, and say whether all targets were reached."""
    parser = argparse.ArgumentParser(description="deadletter beside raw and peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times the messages")
    parser.add_argument("--only", action="append", choices=WORKLOADS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    console = screen()
    taking_part = present()
    _say_who_is_missing(console, taking_part)

    with console.status("starting") as status:

        def on_turn(turn: Turn) -> None:
            status.update(f"{turn[0]}: {turn[1].name}, {ABOUT[turn[0]]}")

        try:
            results = contest(
                taking_part,
                asked.only or WORKLOADS,
                rounds=asked.rounds,
                scale=asked.scale,
                on_turn=on_turn,
            )
        except Failed as error:
            console.print(f"failed: {error}", markup=False, highlight=False)
            return 1
    told = verdicts(results)
    console.print(table(results, told))
    if asked.json is not None:
        write(asked.json, [*rows_of(results), *told.values()])
    return 0


def _say_who_is_missing(console: Console, here: list[Contestant]) -> None:
    missing = sorted({one.package for one in CONTESTANTS if one not in here})
    if missing:
        console.print(
            f"not installed, so left out: {', '.join(missing)}; get them with "
            "pip install --no-deps --require-hashes -r requirements-bench.lock"
        )


if __name__ == "__main__":
    raise SystemExit(main())
