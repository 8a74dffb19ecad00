"""
The ledgers of the five systems: which tests back which line of the requirements.

    [lines."R0.4"]
    tests = ["tests/systems/relayer/test_dead.py::test_a_poll_waits_ten_seconds"]
    [lines."R0.20"]
    differs = "A sentence or two: what this project does instead, and why."
    tests = ["tests/systems/relayer/test_retries.py::test_a_retry_is_a_new_copy"]
    [lines."R0.114"]
    context = "links to manuals of others"
    [defects."D10.1"]
    tests = ["tests/systems/relayer/test_outage.py::test_nothing_is_deleted_unrecorded"]

`tests` show that a line holds, or, next to `differs`, what happens instead. `context`
says why a line has nothing to prove. The text of each line is in `requirements`.
"""

# ruff: noqa: INP001 -- a script's module, not a package

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from requirements import Required, Requirement

FOLDER: Final = Path(__file__).parent
_TEST = re.compile(r"[\w./-]+\.py::\w.*")


class Status(StrEnum):
    """How a line stands."""

    PROVEN = "proven"
    RETRIED = "proven only when retried"  # a test failed first; only reports can tell
    DIFFERS = "differs"
    OPEN = "open"
    CONTEXT = "context"  # nothing to prove


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """Claim of a ledger about one line or defect."""

    tests: tuple[str, ...] = ()
    context: str = ""
    differs: str = ""


class Ledger(Struct, frozen=True):
    """The entries of one system by number."""

    lines: dict[str, Entry]
    defects: dict[str, Entry]

    def tests(self) -> set[str]:
        """Return the names of all tests."""
        entries = (*self.lines.values(), *self.defects.values())
        return {test for entry in entries for test in entry.tests}


class InvalidLedger(Exception):
    """A ledger that is missing or malformed; `problems` lists everything found."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def claimed_status(required: Required, entry: Entry | None) -> Status:
    """Return the status that a ledger claims; reports of tests have to confirm it."""
    if entry is None:
        return Status.OPEN
    if entry.differs:
        return Status.DIFFERS
    if entry.tests:
        return Status.PROVEN
    may_explain = isinstance(required, Requirement) and not required.needs_test
    return Status.CONTEXT if entry.context and may_explain else Status.OPEN


def load_ledger(package: str, folder: Path = FOLDER) -> Ledger:
    """Read the ledger of a system; raise `InvalidLedger` if there is anything wrong with it."""
    file = folder / f"{package}.toml"
    place = "/".join(file.parts[-3:])
    try:
        text = file.read_text()
        raw = tomllib.loads(text)
    except FileNotFoundError:
        raise InvalidLedger([f"{place} does not exist"]) from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidLedger([f"{place}: {error}"]) from None
    reader = _Reader(place, text)
    ledger = Ledger(
        lines=reader.entries(raw.pop("lines", {})), defects=reader.entries(raw.pop("defects", {}))
    )
    problems = [*reader.problems, *(f"{place}: unknown key {key!r}" for key in raw)]
    if problems:
        raise InvalidLedger(problems)
    return ledger


class _Reader:
    """Converts entries and collects problems with the line numbers of the file."""

    def __init__(self, place: str, text: str) -> None:
        self.problems: list[str] = []
        self._place = place
        self._text = text

    def entries(self, raw: dict[str, Any]) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for number, fields in raw.items():
            try:
                found[number] = entry = msgspec.convert(fields, Entry)
            except msgspec.ValidationError as error:
                self._report(number, str(error))
            else:
                self._check(number, entry, fields)
        return found

    def _check(self, number: str, entry: Entry, fields: dict[str, Any]) -> None:
        for name in ("context", "differs"):
            if name in fields and not fields[name].strip():
                self._report(number, f"{name!r} is empty: give a reason or remove it")
        if entry.context and (entry.tests or entry.differs):
            self._report(number, "'context' stands alone: remove it, or 'tests' and 'differs'")
        for test in entry.tests:
            if not _TEST.fullmatch(test):
                self._report(number, f"{test!r} is not the name of a test: use path.py::name")
        if len(set(entry.tests)) < len(entry.tests):
            self._report(number, "names a test twice")

    def _report(self, number: str, problem: str) -> None:
        at = self._text.find(f'"{number}"')
        line = self._text.count("\n", 0, max(at, 0)) + 1
        self.problems.append(f"{self._place}, line {line}: {number}: {problem}")
