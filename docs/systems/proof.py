"""
Which tests there are, and which of them passed.

Tests are named as pytest names them. A name without its `[case]` means all its cases.
"""

# ruff: noqa: INP001, S314, S603, T201 -- a script's module; what it runs and reads is ours

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
_ID = re.compile(r"[^\s:]+\.py::\S")


class Outcome(StrEnum):
    """How a test ended; only one of them proves anything."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "was skipped"
    NOT_RUN = "was not run"


class Tests:
    """The tests that exist, by their names with and without a case."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._cases: dict[str, list[str]] = defaultdict(list)
        for case in ids:
            for name in {case, case.partition("[")[0]}:
                self._cases[name].append(case)

    def cases(self, name: str) -> list[str]:
        """What a name stands for; nothing if there is no such test."""
        return self._cases.get(name, [])


def collected(names: Iterable[str]) -> Tests:
    """What pytest finds in the files of these tests."""
    files = sorted({name.partition("::")[0] for name in names})
    here = [file for file in files if (ROOT / file).is_file()]
    if not here:
        return Tests([])
    pytest = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--color=no"]
    found = subprocess.run(
        [*pytest, "--continue-on-collection-errors", "-p", "no:cacheprovider", *here],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        print(found.stdout[-3000:] + found.stderr[-3000:], file=sys.stderr)
    return Tests(line for line in found.stdout.splitlines() if _ID.match(line))


def outcomes(reports: Iterable[Path]) -> dict[str, Outcome]:
    """How each test ended, by its name in a report; a later report wins."""
    told: dict[str, Outcome] = {}
    for report in reports:
        told |= _told(report)
    return told


def outcome(test: str, told: dict[str, Outcome]) -> Outcome:
    """How a test that exists ended."""
    return told.get(_in_report(test), Outcome.NOT_RUN)


def _told(report: Path) -> dict[str, Outcome]:
    """What one report says; a test can be in it twice, for its clean-up as well."""
    told: dict[str, Outcome] = {}
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if told.get(name, Outcome.PASSED) is Outcome.PASSED:
            told[name] = _ended(case)
    return told


def _ended(case: ET.Element) -> Outcome:
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome.FAILED
    return Outcome.PASSED if case.find("skipped") is None else Outcome.SKIPPED


def _in_report(test: str) -> str:
    """`tests/a/test_b.py::Group::test_c[x]` is `tests.a.test_b.Group.test_c[x]`."""
    path, bracket, case = test.partition("[")
    file, *names = path.split("::")
    module = file.removesuffix(".py").replace("/", ".")
    return ".".join([module, *names]) + bracket + case
