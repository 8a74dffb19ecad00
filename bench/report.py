"""What was measured, as rows for machines and as tables for people."""

import os
import platform
import sqlite3
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

PACKAGES = ("deadletter", "msgspec", "huey", "persist-queue", "litequeue")


class Row(Struct, frozen=True, kw_only=True):
    """
    One figure.

    What has no rate has a `value` in a `unit` instead. A `target` is the least
    (or with `at_most` the most) that `value` should be.
    """

    workload: str
    who: str = "deadletter"
    engine: str = "sqlite"
    per_s: float | None = None
    vs_raw: float | None = None
    vs_best_peer: float | None = None
    n: int | None = None
    seconds: float | None = None
    cpu_us: float | None = None
    value: float | None = None
    unit: str = ""
    target: float | None = None
    at_most: bool = True

    @property
    def is_reached(self) -> bool | None:
        """Whether it is as good as it should be; None where nothing was asked."""
        if self.target is None or self.value is None:
            return None
        if self.at_most:
            return self.value <= self.target
        return self.value >= self.target


def machine() -> dict[str, object]:
    """The machine in general terms: names and addresses are nobody's business."""
    return {
        "cores": os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """What was measured, in which version."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def write(path: Path, rows: Sequence[Row], packages: Sequence[str] = PACKAGES) -> None:
    """Rows as JSON, with the machine and the versions."""
    document = {"machine": machine(), "versions": versions(packages), "rows": rows}
    packed = msgspec.json.format(msgspec.json.encode(document))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed + b"\n")


def screen() -> Console:
    """Where tables go: as wide as they need where nobody says how wide it is."""
    console = Console()
    return console if console.is_terminal else Console(width=132)


def mark(reached: bool | None) -> str:
    """How a figure stands to its target."""
    return {None: "", True: "[green]✓[/]", False: "[red]✗[/]"}[reached]


def show(console: Console, title: str, rows: Iterable[Row]) -> None:
    """Figures and their targets, one to a line."""
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    for row in rows:
        limit = "≤" if row.at_most else "≥"
        target = "" if row.target is None else f"{limit} {plain(row.target)} {row.unit}"
        value = "" if row.value is None else f"{plain(row.value)} {row.unit}"
        table.add_row(row.workload, value, target, mark(row.is_reached))
    console.print(table)


def plain(value: float) -> str:
    """A number with as many digits as it deserves."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
