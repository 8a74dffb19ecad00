"""
Which tests exist and how they ended, by the reports that pytest writes (`--junitxml`).

Tests have the names that pytest gives them. A name without its `[case]` means all cases.
"""

# ruff: noqa: INP001, S314, S603, T201 -- a script's module; what it runs and reads is ours

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
_ID = re.compile(r"[^\s:]+\.py::\S")


class Outcome(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    RETRIED = "passed only when retried"
    FAILED = "failed"
    SKIPPED = "was skipped"
    NOT_RUN = "was not run"


class Report(NamedTuple):
    """One file of results; `tests/report_commit.py` adds the commit and what had changed since."""

    name: str
    commit: str
    uncommitted: str
    outcomes: dict[str, Outcome]

    @property
    def is_retry(self) -> bool:
        """True if it holds only tests that failed before (`make systems-again`)."""
        return self.name.endswith("-again")


class CollectedTests:
    """The tests that exist, by their names with and without a case."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._cases: dict[str, list[str]] = defaultdict(list)
        for case in ids:
            for name in {case, case.partition("[")[0]}:
                self._cases[name].append(case)

    def cases(self, name: str) -> list[str]:
        """Return all cases of a test, or nothing if it does not exist."""
        return self._cases.get(name, [])


def collect_tests(names: Iterable[str]) -> CollectedTests:
    """Let pytest collect the files of these tests."""
    files = sorted({name.partition("::")[0] for name in names})
    existing = [file for file in files if (ROOT / file).is_file()]
    if not existing:
        return CollectedTests([])
    pytest = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--color=no"]
    ran = subprocess.run(
        [*pytest, "--continue-on-collection-errors", "-p", "no:cacheprovider", *existing],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        print(ran.stdout[-3000:] + ran.stderr[-3000:], file=sys.stderr)
    return CollectedTests(line for line in ran.stdout.splitlines() if _ID.match(line))


def read_report(file: Path) -> Report:
    """Read one report; raise `ValueError` if pytest did not finish it."""
    try:
        tree = ET.parse(file)
    except (ET.ParseError, OSError) as error:
        raise ValueError(f"{file.name} is not a complete report: {error}") from None
    properties = {one.get("name"): one.get("value") or "" for one in tree.iter("property")}
    outcomes: dict[str, Outcome] = {}
    for case in tree.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        # A test is listed twice if its clean-up failed as well.
        if outcomes.get(name, Outcome.PASSED) is Outcome.PASSED:
            outcomes[name] = _outcome_of_case(case)
    commit, uncommitted = properties.get("commit", ""), properties.get("uncommitted", "")
    return Report(file.stem, commit, uncommitted, outcomes)


def merge_outcomes(reports: Iterable[Report]) -> dict[str, Outcome]:
    """
    Return how each test ended, by its name in a report; a later report wins.

    A test that passes after it failed has passed only when retried. So has one that is
    in the report of a retry, unless an earlier report shows that it had passed.
    """
    merged: dict[str, Outcome] = {}
    for report in reports:
        for test, outcome in report.outcomes.items():
            before = merged.get(test)
            is_retried = before in (Outcome.FAILED, Outcome.RETRIED) or (
                report.is_retry and before is not Outcome.PASSED
            )
            passed = outcome is Outcome.PASSED
            merged[test] = Outcome.RETRIED if passed and is_retried else outcome
    return merged


def outcome_of(test: str, outcomes: dict[str, Outcome]) -> Outcome:
    """Return how a collected test ended."""
    return outcomes.get(_name_in_report(test), Outcome.NOT_RUN)


def _outcome_of_case(case: ET.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome.FAILED
    return Outcome.PASSED if case.find("skipped") is None else Outcome.SKIPPED


def _name_in_report(test: str) -> str:
    """Turn `tests/a/test_b.py::Group::test_c[x]` into `tests.a.test_b.Group.test_c[x]`."""
    path, bracket, case = test.partition("[")
    file, *names = path.split("::")
    module = file.removesuffix(".py").replace("/", ".")
    return ".".join([module, *names]) + bracket + case
