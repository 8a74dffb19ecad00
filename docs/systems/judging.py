"""A ledger, held against what was asked for and against what tests showed."""

# ruff: noqa: INP001 -- a script's module, not a package

from collections.abc import Iterator

from given import Given
from ledger import BINDING, Ledger, Line
from msgspec import Struct
from proof import Outcome, Tests, outcome


class Finding(Struct, frozen=True):
    """Something that is wrong with a ledger, or not proven."""

    number: str
    what: str


class Verdict(Struct, frozen=True):
    """How a system stands; each line is proven, context or unproven."""

    package: str
    lines: int
    proven: int
    context: int
    unproven: int
    binding: int  # MUST, MUST NOT, SHOULD; not what is internal and says why
    binding_proven: int
    defects: int
    defects_proven: int
    findings: list[Finding]

    @property
    def percent(self) -> float:
        """How much of what binds is proven; never rounded up to all of it."""
        return int(1000 * self.binding_proven / self.binding) / 10


class Judge:
    """Knows the tests and how they ended; judges one system after the other."""

    def __init__(self, tests: Tests, told: dict[str, Outcome]) -> None:
        self._tests = tests
        self._told = told

    def verdict(self, given: Given, ledger: Ledger) -> Verdict:
        """Every line that was given counts, whether the ledger has it or not."""
        lines, defects = given.lines(), _defects(given, ledger)
        findings = [
            *_strangers(given, ledger),
            *(found for number in lines for found in self._line(given, ledger, number)),
            *(found for number in defects for found in self._defect(ledger, number)),
        ]
        bad = {finding.number for finding in findings}
        good = lines.keys() - bad
        context = {number for number in good if not ledger.lines[number].tests}
        binding = {number for number, tags in lines.items() if tags & BINDING} - context
        return Verdict(
            package=given.package,
            lines=len(lines),
            proven=len(good - context),
            context=len(context),
            unproven=len(lines) - len(good),
            binding=len(binding),
            binding_proven=len(binding & good),
            defects=len(defects),
            defects_proven=len(set(defects) - bad),
            findings=findings,
        )

    def _line(self, given: Given, ledger: Ledger, number: str) -> Iterator[Finding]:
        line = ledger.lines.get(number)
        if line is None:
            yield Finding(number, "is missing")
            return
        if line.tag not in (tags := given.lines()[number]):
            asked = " or ".join(sorted(tags))
            yield Finding(number, f"is {line.tag} here, and was asked for as {asked}")
        if line.internal and not given.is_internal(number):
            yield Finding(number, "is not internal to the origin")
        if lacking := _lacking(line):
            yield Finding(number, lacking)
        yield from self._unproven(number, line.tests)

    def _defect(self, ledger: Ledger, number: str) -> Iterator[Finding]:
        defect = ledger.defects.get(number)
        if defect is None:
            yield Finding(number, "is missing")
        elif not defect.tests:
            yield Finding(number, "needs a test")
        else:
            yield from self._unproven(number, defect.tests)

    def _unproven(self, number: str, names: tuple[str, ...]) -> Iterator[Finding]:
        for name in names:
            cases = self._tests.cases(name)
            if not cases:
                yield Finding(number, f"{name} does not exist")
            for case in cases:
                ended = outcome(case, self._told)
                if ended is not Outcome.PASSED:
                    yield Finding(number, f"{case} {ended}")


def _lacking(line: Line) -> str | None:
    """What an entry needs beside what it has."""
    if line.tests:
        return None
    if line.tag in BINDING and not line.internal:
        return "needs a test"
    return None if line.context.strip() else "needs a test, or context that says why not"


def _strangers(given: Given, ledger: Ledger) -> Iterator[Finding]:
    for number in ledger.lines:
        if number not in given.lines():
            yield Finding(number, "was never asked for")
    for number in ledger.defects:
        if _defect(number) not in given.claims:
            yield Finding(number, "is no defect of this system's origin")


def _defects(given: Given, ledger: Ledger) -> list[str]:
    """The defects that must be there: those that are, and the parts still missing."""
    wanted: list[str] = []
    for defect, parts in given.claims.items():
        told = [number for number in ledger.defects if _defect(number) == defect]
        wanted += told
        wanted += [f"D{defect}.{n}" for n in range(len(told) + 1, parts + 1)]
    return wanted


def _defect(number: str) -> int:
    """`D10.1` is a part of defect 10."""
    defect = number.removeprefix("D").partition(".")[0]
    return int(defect) if defect.isdecimal() else 0
