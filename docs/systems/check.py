"""
Whether every line of the five systems is proven.

    python docs/systems/check.py REPORT.xml ...    by what pytest --junitxml wrote
    python docs/systems/check.py --elsewhere       tests named outside tests/systems

Where a test is in several reports, the last one counts. `--json` tells it to programs.
The exit code is 1 unless all lines are there, those that bind have tests, and each test
that is named exists and passed.
"""

# ruff: noqa: INP001, T201 -- a script

import sys
from pathlib import Path

import msgspec
from given import SYSTEMS, Given
from judging import Finding, Judge, Verdict
from ledger import Ledger, Unreadable, read
from proof import collected, outcomes

HERE = Path(__file__).parent
OWN = "tests/systems/"


def main(arguments: list[str]) -> int:
    """Judge the ledgers by the reports, and tell."""
    ledgers = [_read(given) for given in SYSTEMS]
    named = {test for ledger in ledgers if isinstance(ledger, Ledger) for test in ledger.tests()}
    if "--elsewhere" in arguments:
        _list_elsewhere(named)
        return 0
    reports = [Path(name) for name in arguments if not name.startswith("--")]
    judge = Judge(collected(named), outcomes(reports))
    verdicts = [
        judge.verdict(given, ledger) if isinstance(ledger, Ledger) else _unread(given, ledger)
        for given, ledger in zip(SYSTEMS, ledgers, strict=True)
    ]
    if "--json" in arguments:
        print(msgspec.json.format(msgspec.json.encode(verdicts)).decode())
    else:
        _tell(verdicts)
    return 1 if any(verdict.findings for verdict in verdicts) else 0


def _read(given: Given) -> Ledger | Unreadable:
    try:
        return read(HERE / f"{given.package}.toml")
    except Unreadable as error:
        return error


def _unread(given: Given, error: Unreadable) -> Verdict:
    """Nothing is proven by a ledger that cannot be read."""
    return Verdict(
        package=given.package,
        lines=given.last,
        proven=0,
        context=0,
        unproven=given.last,
        binding=given.last,
        binding_proven=0,
        defects=len(given.claims),
        defects_proven=0,
        findings=[Finding("", problem) for problem in error.problems],
    )


def _list_elsewhere(named: set[str]) -> None:
    elsewhere = {name for name in named if not name.startswith(OWN)}
    tests = collected(elsewhere)
    for name in sorted(elsewhere):
        if tests.cases(name):  # what does not exist is told by the verdict
            print(name)


def _tell(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        for finding in verdict.findings:
            print(f"{verdict.package:<11} {finding.number:<7} {finding.what}")
    if any(verdict.findings for verdict in verdicts):
        print()
    row = "{:<11} {:>5} {:>7} {:>8} {:>9} {:>11} {:>8} {:>8}"
    head = ("lines", "proven", "context", "unproven", "MUST+SHOULD", "", "defects")
    print(row.format("system", *head))
    for one in verdicts:
        print(
            row.format(
                one.package,
                one.lines,
                one.proven,
                one.context,
                one.unproven,
                f"{one.binding_proven}/{one.binding}",
                f"{one.percent:.1f} %",
                f"{one.defects_proven}/{one.defects}",
            )
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
