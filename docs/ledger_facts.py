"""Tables of the requirements of the five systems, made from their ledgers."""

# ruff: noqa: INP001 -- a script's module, not a package

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from markdown import table

sys.path.insert(0, str(Path(__file__).parent / "systems"))

from ledger import Entry, InvalidLedger, Ledger, Status, claimed_status, load_ledger
from requirements import Required, Requirement, System, load_systems
from verdicts import claimed_tally

__all__ = ["InvalidLedger", "ledger_tables", "numbers_table", "systems_table"]


def ledger_tables(package: str) -> str:
    """Show every requirement of a system, how it stands, and the tests for it."""
    system, ledger = load_systems()[package], load_ledger(package)
    parts = [
        "## Requirements, line by line",
        _summary(system, ledger),
        *_differences(system, ledger),
    ]
    for section in system.sections:
        parts.append(f"### {section.title}")
        rows = (
            [number, _tag(line), line.text, *_evidence(line, ledger.lines.get(number))]
            for number, line in section.lines.items()
        )
        parts.append(table(["line", "tag", "requirement", "status", "tests"], rows))
    if system.defects:
        parts.append("### Defects of the original")
        parts.append("A test for each of them would fail if the defect appeared here.")
        defects = (
            [number, defect.text, *_evidence(defect, ledger.defects.get(number))]
            for number, defect in system.defects.items()
        )
        parts.append(table(["defect", "what was wrong", "status", "tests"], defects))
    return "\n\n".join(parts)


def systems_table() -> str:
    """Show how many lines and defects are proven, differ or are open, as the ledgers claim."""
    lines, defects = [], []
    for package, system in load_systems().items():
        ledger = load_ledger(package)
        link = f"[{system.title}]({package}.md)"
        one = claimed_tally(system.lines, ledger.lines)
        counts = (one.proven, one.differs, one.open, one.context)
        lines.append([link, system.numbers, *counts, len(ledger.tests())])
        one = claimed_tally(system.defects, ledger.defects)
        defects.append([link, one.total, one.proven, one.differs, one.open])
    head = ["system", "lines", "proven", "differs", "open", "context", "tests"]
    defects_head = ["system", "defects of the original", "proven", "differs", "open"]
    return f"{table(head, lines)}\n\n{table(defects_head, defects)}"


def numbers_table() -> str:
    """Show the three numbers of each system, and the command that runs it."""
    rows = []
    for package, system in load_systems().items():
        lines = claimed_tally(system.lines, load_ledger(package).lines)
        rows.append(
            [
                f"[{system.title}](docs/systems/{package}.md): {system.summary}",
                f"`make example-{package}`",
                *(lines.total, lines.proven, lines.differs, lines.open),
            ]
        )
    return table(["system", "see it run", "lines", "proven", "differs", "open"], rows)


def _summary(system: System, ledger: Ledger) -> str:
    lines = claimed_tally(system.lines, ledger.lines)
    return (
        f"Of {lines.total} lines, {lines.proven} are proven, {lines.differs} differ and "
        f"{lines.open} are open; {lines.context} have nothing to prove.\n"
        "[The five systems](index.md#the-ledgers) explains these words and how they are checked."
    )


def _differences(system: System, ledger: Ledger) -> Iterator[str]:
    """Yield a table of the lines where this project does something else on purpose."""
    required: dict[str, Required] = {**system.lines, **system.defects}
    entries = {**ledger.lines, **ledger.defects}
    rows = [
        [number, one.text, entries[number].differs]
        for number, one in required.items()
        if claimed_status(one, entries.get(number)) is Status.DIFFERS
    ]
    if rows:
        yield "### What differs"
        yield table(["line", "requirement", "what happens here, and why"], rows)


def _tag(line: Requirement) -> str:
    return f"{line.tag}, internal" if line.internal else line.tag


def _evidence(required: Required, entry: Entry | None) -> tuple[str, str]:
    """Return the cells for the status and the tests."""
    status = claimed_status(required, entry)
    tests = _links(entry.tests) if entry else ""
    context = f": {entry.context}" if entry and status is Status.CONTEXT else ""
    return f"{status}{context}", tests


def _links(names: Iterable[str]) -> str:
    """Return the names of tests as links to their files."""
    return ", ".join(_link(*name.split("::", 1)) for name in names)


def _link(file: str, test: str) -> str:
    return f"[`{test.replace('::', '.')}`](../../{file})"
