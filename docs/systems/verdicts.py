"""The status of every line of a system, by its requirements, its ledger and the reports."""

# ruff: noqa: INP001 -- a script's module, not a package

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ledger import Entry, Ledger, Status, claimed_status
from msgspec import Struct
from reports import CollectedTests, Outcome, outcome_of
from requirements import Required, Requirement, System

MOST_LINES: Final = 6  # a test that backs more lines of one system is listed as a warning
_PASSED = {Outcome.PASSED, Outcome.RETRIED}


class Finding(Struct, frozen=True):
    """A number and what is wrong with it, or which test passed only when retried."""

    number: str
    text: str


class Tally(Struct, frozen=True):
    """How many lines, or defects, have each status."""

    proven: int = 0
    retried: int = 0
    differs: int = 0
    open: int = 0
    context: int = 0

    @property
    def total(self) -> int:
        return self.proven + self.retried + self.differs + self.open + self.context


class Verdict(Struct, frozen=True):
    """How a system stands."""

    package: str
    lines: Tally
    defects: Tally
    findings: list[Finding]  # each of them leaves a line open, or the ledger invalid
    retried: list[Finding]
    shared: dict[str, int]  # tests that back more than MOST_LINES lines

    @property
    def passes(self) -> bool:
        """True if nothing is open; a retry alone does not fail."""
        return not self.findings


def tally(statuses: Mapping[str, Status]) -> Tally:
    """Count statuses."""
    return Tally(
        **{status.name.lower(): count for status, count in Counter(statuses.values()).items()}
    )


def claimed_tally(required: Mapping[str, Required], entries: Mapping[str, Entry]) -> Tally:
    """Count what a ledger claims, without any report."""
    return tally(
        {number: claimed_status(one, entries.get(number)) for number, one in required.items()}
    )


def invalid_verdict(package: str, system: System, problems: list[str]) -> Verdict:
    """Return the verdict on a ledger that cannot be read: everything is open."""
    return Verdict(
        package=package,
        lines=Tally(open=len(system.lines)),
        defects=Tally(open=len(system.defects)),
        findings=[Finding("", problem) for problem in problems],
        retried=[],
        shared={},
    )


class _Examination(NamedTuple):
    """The lines, or the defects, of one system."""

    statuses: dict[str, Status]
    findings: list[Finding]
    retried: list[Finding]


class Judge:
    """Compares ledgers with the tests that exist and with how they ended."""

    def __init__(self, tests: CollectedTests, outcomes: dict[str, Outcome]) -> None:
        self._tests = tests
        self._outcomes = outcomes

    def verdict(self, package: str, system: System, ledger: Ledger) -> Verdict:
        """Return the verdict on all requirements, whether the ledger has them or not."""
        lines = self._examine(system.lines, ledger.lines)
        defects = self._examine(system.defects, ledger.defects)
        return Verdict(
            package=package,
            lines=tally(lines.statuses),
            defects=tally(defects.statuses),
            findings=lines.findings + defects.findings,
            retried=lines.retried + defects.retried,
            shared=_shared_tests(ledger),
        )

    def _examine(
        self, required: Mapping[str, Required], entries: Mapping[str, Entry]
    ) -> _Examination:
        unknown = [number for number in entries if number not in required]
        examined = _Examination({}, [Finding(n, "is not in the requirements") for n in unknown], [])
        for number, one in required.items():
            entry = entries.get(number)
            problems = list(self._problems(one, entry))
            retried = list(self._retried(entry))
            status = claimed_status(one, entry)
            if problems:
                status = Status.OPEN
            elif retried and status is Status.PROVEN:
                status = Status.RETRIED
            examined.statuses[number] = status
            examined.findings.extend(Finding(number, problem) for problem in problems)
            examined.retried.extend(Finding(number, test) for test in retried)
        return examined

    def _problems(self, required: Required, entry: Entry | None) -> Iterator[str]:
        """Yield the reasons why a line is open."""
        if entry is None:
            yield "is missing"
            return
        if claimed_status(required, entry) is Status.OPEN:
            is_optional = isinstance(required, Requirement) and not required.needs_test
            yield "needs a test" + (", or context that says why not" if is_optional else "")
        for name in entry.tests:
            cases = self._tests.cases(name)
            if not cases:
                yield f"{name} does not exist"
            for case in cases:
                outcome = outcome_of(case, self._outcomes)
                if outcome not in _PASSED:
                    yield f"{case} {outcome}"

    def _retried(self, entry: Entry | None) -> Iterator[str]:
        """Yield the tests of a line that passed only when retried."""
        for name in entry.tests if entry else ():
            for case in self._tests.cases(name):
                if outcome_of(case, self._outcomes) is Outcome.RETRIED:
                    yield case


def _shared_tests(ledger: Ledger) -> dict[str, int]:
    counts = Counter(test for entry in ledger.lines.values() for test in entry.tests)
    return {test: count for test, count in counts.most_common() if count > MOST_LINES}
