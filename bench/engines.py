"""
deadletter on servers beside hand-written loops and peers, in one run.

    python bench/engines.py [--rounds 3] [--scale 1.0] [--only redis] [--json FILE]

Each engine has a private server, set up alike for everybody. Absolute figures say
more about the machine than about anybody's code. What counts are the ratios, and
they are printed beside what they should be.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from contest import Failed, Results, alone, median_of, turns, workplace
from entrants import ENTRANTS, PACKAGES, WORKLOADS, Entrant
from grounds import GROUNDS, Missing
from report import Row, mark, screen, write
from workload import Measured

OURS, RAW, PEER = "deadletter", "raw", "best peer"
FORGETS = "* forgets a message when it takes it: lost when its worker dies"

Targets: TypeAlias = dict[tuple[str, str], dict[str, float]]
TARGETS: Targets = {
    ("postgresql", "happy"): {RAW: 0.45, PEER: 1.3},
    ("postgresql", "poison"): {RAW: 0.40, PEER: 2.5},
    ("postgresql", "replay"): {RAW: 0.25, PEER: 0.7},
    ("redis", "happy"): {RAW: 0.35, PEER: 1.5},
    ("redis", "poison"): {RAW: 0.35, PEER: 3.0},
    ("sqs", "happy"): {RAW: 0.80},
    ("kafka", "happy"): {RAW: 0.30, PEER: 2.0},
    ("rabbitmq", "happy"): {RAW: 0.50, PEER: 2.0},
    ("rabbitmq", "poison"): {RAW: 0.40, PEER: 2.5},
    ("nats", "happy"): {RAW: 0.50, PEER: 2.0},
}


class Played(Struct, frozen=True, kw_only=True):
    """What came of one engine."""

    engine: str
    results: Results
    failures: dict[tuple[str, str], str]

    def ratio(self, workload: str, who: str, other: str) -> float | None:
        """How fast somebody was, by the speed of somebody else."""
        if other == PEER:
            other = self._best_peer(workload)
        mine = self.results.get((workload, who))
        theirs = self.results.get((workload, other))
        if mine is None or theirs is None:
            return None
        return round(mine.per_s / theirs.per_s, 3)

    def rows(self) -> list[Row]:
        """Rates, with ratios where there is somebody to compare with."""
        return [
            Row(
                engine=self.engine,
                workload=workload,
                who=who,
                per_s=round(measured.per_s, 1),
                vs_raw=self.ratio(workload, who, RAW),
                vs_best_peer=self.ratio(workload, who, PEER),
                n=measured.n,
                seconds=round(measured.seconds, 4),
                cpu_us=round(measured.cpu_us, 1),
            )
            for (workload, who), measured in self.results.items()
        ]

    def verdicts(self, workload: str) -> list[Row]:
        """Our ratios in a workload, beside what they should be."""
        targets = TARGETS.get((self.engine, workload), {})
        return [
            Row(
                engine=self.engine,
                workload=f"{workload}: deadletter / {other}",
                value=ratio,
                unit="x",
                target=target,
                at_most=False,
            )
            for other, target in targets.items()
            if (ratio := self.ratio(workload, OURS, other)) is not None
        ]

    def _best_peer(self, workload: str) -> str:
        names = {one.name for one in ENTRANTS if one.is_peer}
        rates = {
            who: measured.per_s
            for (played, who), measured in self.results.items()
            if played == workload and who in names
        }
        return max(rates, key=rates.__getitem__, default="")


def play_engine(
    engine: str,
    entrants: Sequence[Entrant],
    *,
    rounds: int,
    scale: float,
    on_turn: Callable[[str], None],
) -> Played:
    """All rounds on one engine. Who fails is out of that workload, and says why."""
    taken: dict[tuple[str, str], list[Measured]] = {}
    failures: dict[tuple[str, str], str] = {}
    with GROUNDS[engine].opened() as emptied:
        for workload, one, n in turns(entrants, WORKLOADS, rounds=rounds, scale=scale):
            key = workload, one.name
            if key in failures:
                continue
            on_turn(f"{engine}, {workload}: {one.name}")
            try:
                taken.setdefault(key, []).append(_turn(one, workload, n, emptied()))
            except Failed as error:
                failures[key] = str(error)
    results = {key: median_of(found) for key, found in taken.items() if key not in failures}
    return Played(engine=engine, results=results, failures=failures)


def _turn(one: Entrant, workload: str, n: int, url: str) -> Measured:
    with workplace() as folder:
        words = [workload, str(folder), str(n), url, one.setting]
        return alone([*one.program, *words], f"{one.engine}, {workload}, {one.name}")


def table(played: Sequence[Played]) -> Table:
    """Everything in one table."""
    made = Table(title="Engines", title_justify="left", caption=FORGETS, caption_justify="left")
    for name in ("engine", "workload", "who"):
        made.add_column(name, no_wrap=True)
    for name in ("n", "per second", "CPU µs", "/ raw", "/ best peer"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("target", no_wrap=True)
    for one in played:
        for line, ends in _lines(one):
            made.add_row(*line, end_section=ends)
    return made


def _lines(played: Played) -> Iterator[tuple[list[str], bool]]:
    forgetful = {one.name for one in ENTRANTS if one.engine == played.engine and one.forgets}
    rows = played.rows()
    for row, before, after in zip(rows, [None, *rows[:-1]], [*rows[1:], None], strict=True):
        is_first = before is None or before.workload != row.workload
        ours = row.who == OURS
        line = [
            played.engine if before is None else "",
            row.workload if is_first else "",
            f"[bold]{row.who}[/]" if ours else row.who + "*" * (row.who in forgetful),
            f"{row.n:,}",
            f"{row.per_s:,.0f}",
            f"{row.cpu_us:,.1f}",
            _times(row.vs_raw),
            _times(row.vs_best_peer),
            _reached(played.verdicts(row.workload)) if ours else "",
        ]
        yield line, after is None or after.workload != row.workload


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _reached(verdicts: Sequence[Row]) -> str:
    return "\n".join(
        f"{mark(row.is_reached)} {row.value:.2f} ≥ {row.target:g}"
        f" of {row.workload.rpartition('/ ')[2]}"
        for row in verdicts
    )


def main() -> int:
    """Run everything and show it; 1 if a hand-written loop or ours has failed."""
    parser = argparse.ArgumentParser(description="deadletter beside raw and peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times the messages")
    parser.add_argument("--only", action="append", choices=GROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    console = screen()
    here = [one for one in ENTRANTS if one.is_here]
    _say_who_is_missing(console, here)
    played = []
    with console.status("starting") as status:
        for engine in asked.only or GROUNDS:
            try:
                one = play_engine(
                    engine,
                    [entrant for entrant in here if entrant.engine == engine],
                    rounds=asked.rounds,
                    scale=asked.scale,
                    on_turn=status.update,
                )
            except Missing as missing:
                console.print(f"{engine} is left out: {missing}")
                continue
            console.print(f"{engine}: {GROUNDS[engine].setup}")
            for failure in one.failures.values():
                console.print(f"failed: {failure}", markup=False, highlight=False)
            played.append(one)
    console.print(table(played))
    if asked.json is not None:
        write(asked.json, [row for one in played for row in _all_rows(one)], PACKAGES)
    failed = {who for one in played for _, who in one.failures}
    return 1 if failed & {OURS, RAW} else 0


def _all_rows(played: Played) -> list[Row]:
    told = [row for workload in WORKLOADS for row in played.verdicts(workload)]
    return [*played.rows(), *told]


def _say_who_is_missing(console: Console, here: Sequence[Entrant]) -> None:
    missing = sorted({one.package for one in ENTRANTS if one not in here})
    if missing:
        console.print(
            f"not installed, so left out: {', '.join(missing)}; get them with "
            "python bench/run.py --install"
        )


if __name__ == "__main__":
    raise SystemExit(main())
