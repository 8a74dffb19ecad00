"""Tables of what the five systems were asked for, made from their ledgers."""

# ruff: noqa: INP001 -- a script's module, not a package

from collections.abc import Iterable
from pathlib import Path

from markdown import table
from systems.given import SYSTEMS
from systems.ledger import Ledger, Line, Unreadable, read

__all__ = ["Unreadable", "ledger_table", "systems_table"]
SYSTEMS_PAGES = Path(__file__).parent / "systems"


def ledger_table(package: str) -> str:
    """Every line of a system and what proves it, then the defects of its origin."""
    ledger = read(SYSTEMS_PAGES / f"{package}.toml")
    lines = (
        [number, _tag(line), line.says, _tests(line.tests) or line.context]
        for number, line in ledger.lines.items()
    )
    parts = [table(["line", "", "what it says", "proven by"], lines)]
    if ledger.defects:
        defects = (
            [number, defect.says, _tests(defect.tests)] for number, defect in ledger.defects.items()
        )
        parts.append("What the origin got wrong, as tests that would see it again:")
        parts.append(table(["defect", "what was wrong", "seen by"], defects))
    return "\n\n".join(parts)


def systems_table() -> str:
    """How many lines each system was asked for, and how they stand in its ledger."""
    rows = []
    for given in SYSTEMS:
        ledger = read(SYSTEMS_PAGES / f"{given.package}.toml")
        rows.append(
            [
                f"[{ledger.title}]({given.package}.md)",
                f"R{given.seed}.1 to {given.last}",
                *_counts(ledger),
                f"`make example-{given.package}`",
            ]
        )
    head = ["system", "lines", "with tests", "context", "defects", "tests", "see it run"]
    return table(head, rows)


def _counts(ledger: Ledger) -> Iterable[int]:
    tested = sum(bool(line.tests) for line in ledger.lines.values())
    tests = len(ledger.tests())
    return tested, len(ledger.lines) - tested, len(ledger.defects), tests


def _tag(line: Line) -> str:
    return f"{line.tag}, internal" if line.internal else line.tag


def _tests(names: Iterable[str]) -> str:
    """Each test by its name, leading to its file."""
    return ", ".join(_link(*name.split("::", 1)) for name in names)


def _link(file: str, test: str) -> str:
    return f"[`{test.replace('::', '.')}`](../../{file})"
