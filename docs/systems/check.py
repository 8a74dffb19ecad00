"""
Check that every line of the five systems is proven.

    python docs/systems/check.py REPORT.xml ...    judge by reports of pytest --junitxml
    python docs/systems/check.py --elsewhere       list named tests outside tests/systems

Reports must come from the commit that is checked out. Where CI is set, they must also
come from a clean checkout. If a test is in several reports, the last one counts.
`--json` prints the verdicts for programs.

The exit code is 1 if a line is open: it has no test that it needs, or one of its tests
does not exist, was not run or did not pass. Tests that passed only when retried are
listed and counted apart; they do not change the exit code.
"""

# ruff: noqa: INP001, T201 -- a script

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from ledger import FOLDER, InvalidLedger, Ledger, load_ledger
from reports import Report, collect_tests, merge_outcomes, read_report
from requirements import System, load_systems
from verdicts import MOST_LINES, Finding, Judge, Tally, Verdict, invalid_verdict

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from revision import current_revision

ROOT = Path(__file__).parents[2]
SYSTEM_TESTS = "tests/systems/"


def main(arguments: list[str]) -> int:
    """Print the verdicts, or the tests elsewhere, and return the exit code."""
    options = _options(arguments)
    systems = load_systems()
    ledgers = {package: _load(package) for package in systems}
    valid = [ledger for ledger in ledgers.values() if isinstance(ledger, Ledger)]
    named = {test for ledger in valid for test in ledger.tests()}
    if options.elsewhere:
        _print_tests_elsewhere(named)
        return 0
    try:
        reports = [read_report(file) for file in options.reports]
        _require_this_commit(reports)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    judge = Judge(collect_tests(named), merge_outcomes(reports))
    verdicts = [_verdict(judge, package, systems[package], ledgers[package]) for package in systems]
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(verdicts)).decode())
    else:
        _print_verdicts(verdicts)
        _print_uncommitted(reports)
    return 0 if all(verdict.passes for verdict in verdicts) else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check that the five systems are proven.")
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT.xml")
    parser.add_argument("--elsewhere", action="store_true", help="list tests of other folders")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    return parser.parse_args(arguments)


def _load(package: str) -> Ledger | InvalidLedger:
    try:
        return load_ledger(package, FOLDER)
    except InvalidLedger as error:
        return error


def _verdict(judge: Judge, package: str, system: System, ledger: Ledger | InvalidLedger) -> Verdict:
    if isinstance(ledger, Ledger):
        return judge.verdict(package, system, ledger)
    return invalid_verdict(package, system, ledger.problems)


def _require_this_commit(reports: list[Report]) -> None:
    """Raise `ValueError` with all reports that do not count for this commit."""
    revision = current_revision(ROOT)
    if rejected := list(_rejections(reports, revision.commit)):
        raise ValueError("\n".join(rejected))


def _rejections(reports: Iterable[Report], commit: str) -> Iterator[str]:
    for report in reports:
        target = report.name.removesuffix("-again")
        if not report.commit:
            yield f"{report.name}.xml names no commit: run the tests again in a git checkout"
        elif report.commit != commit:
            yield (
                f"{report.name}.xml was made at commit {report.commit}, "
                f"but {commit or 'no commit'} is checked out: run `make {target}` again"
            )
        elif report.uncommitted and os.environ.get("CI"):
            yield (
                f"{report.name}.xml was made with uncommitted changes ({report.uncommitted}): "
                f"CI needs a clean checkout"
            )


def _print_tests_elsewhere(named: set[str]) -> None:
    elsewhere = {name for name in named if not name.startswith(SYSTEM_TESTS)}
    tests = collect_tests(elsewhere)
    for name in sorted(elsewhere):
        if tests.cases(name):  # the verdict reports tests that do not exist
            print(name)


def _print_verdicts(verdicts: list[Verdict]) -> None:
    _print_findings("Open:", verdicts, [verdict.findings for verdict in verdicts])
    _print_findings(
        "Proven only when retried:", verdicts, [verdict.retried for verdict in verdicts]
    )
    shared = [
        (count, verdict.package, test)
        for verdict in verdicts
        for test, count in verdict.shared.items()
    ]
    if shared:
        print(f"Warning: {len(shared)} tests back more than {MOST_LINES} lines of a system each:")
        for count, package, test in sorted(shared, reverse=True):
            print(f"  {package:<11} {count:>4} lines  {test}")
        print()
    _print_table("lines", {verdict.package: verdict.lines for verdict in verdicts})
    print()
    _print_table("defects", {verdict.package: verdict.defects for verdict in verdicts})


def _print_findings(head: str, verdicts: list[Verdict], findings: list[list[Finding]]) -> None:
    if not any(findings):
        return
    print(head)
    for verdict, found in zip(verdicts, findings, strict=True):
        for finding in found:
            print(f"  {verdict.package:<11} {finding.number:<7} {finding.text}")
    print()


def _print_table(what: str, tallies: dict[str, Tally]) -> None:
    row = "{:<11} {:>7} {:>7} {:>8} {:>8} {:>5} {:>8}"
    print(row.format("system", what, "proven", "retried", "differs", "open", "context"))
    for package, one in tallies.items():
        counts = (one.total, one.proven, one.retried, one.differs, one.open, one.context)
        print(row.format(package, *counts))


def _print_uncommitted(reports: Iterable[Report]) -> None:
    """Print which reports prove nothing about the commit itself."""
    for report in reports:
        if report.uncommitted:
            print(f"\nNote: {report.name}.xml was made with changes to {report.uncommitted}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
