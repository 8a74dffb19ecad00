"""
The ledgers of the five systems: each line that was asked for, and what proves it.

    title = "Relayer"
    [lines."R0.4"]
    tag = "MUST"
    says = "a long poll of the dead-letter queue waits 10 s"
    tests = ["tests/systems/relayer/test_dead.py::test_a_poll_waits_ten_seconds"]
    [defects."D10.1"]
    says = "a message was deleted though its failure could not be recorded"
    tests = ["tests/systems/relayer/test_outage.py::test_nothing_is_deleted_unrecorded"]

A line has `tests`, or it says in `context` why there is nothing to prove.
"""

# ruff: noqa: INP001 -- a script's module, not a package

import re
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

Tag = Literal["MUST", "MUST NOT", "SHOULD", "MAY", "FUTURE", "INFO"]
BINDING: frozenset[str] = frozenset({"MUST", "MUST NOT", "SHOULD"})
_TEST = re.compile(r"[\w./-]+\.py::\w.*")


class Line(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line that was asked for."""

    tag: Tag
    says: str
    tests: tuple[str, ...] = ()
    context: str = ""
    internal: bool = False  # about how the origin's source is laid out


class Defect(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something the origin got wrong, and what shows that we do not."""

    says: str
    tests: tuple[str, ...]


class Ledger(Struct, frozen=True):
    """What one system was asked for."""

    package: str
    title: str
    lines: dict[str, Line]
    defects: dict[str, Defect]

    def tests(self) -> set[str]:
        """Every test that is named."""
        lines = {test for line in self.lines.values() for test in line.tests}
        return lines | {t for defect in self.defects.values() for t in defect.tests}


class Unreadable(Exception):
    """A ledger that cannot be read; `problems` says all that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


Entry = TypeVar("Entry", Line, Defect)


def read(file: Path) -> Ledger:
    """The ledger in a file, or `Unreadable`."""
    place = "/".join(file.parts[-3:])
    try:
        text = file.read_text()
        raw = tomllib.loads(text)
    except FileNotFoundError:
        raise Unreadable([f"{place} is not there"]) from None
    except tomllib.TOMLDecodeError as error:
        raise Unreadable([f"{place}: {error}"]) from None
    reading = _Reading(place, text)
    ledger = Ledger(
        package=file.stem,
        title=str(raw.pop("title", "")),
        lines=reading.entries(raw.pop("lines", {}), Line),
        defects=reading.entries(raw.pop("defects", {}), Defect),
    )
    reading.problems += [f"{place}: nobody knows what {key!r} is" for key in raw]
    if not ledger.title:
        reading.problems.append(f"{place}: it has no title")
    if reading.problems:
        raise Unreadable(reading.problems)
    return ledger


class _Reading:
    """A file being read; what is wrong is told with its line."""

    def __init__(self, place: str, text: str) -> None:
        self.problems: list[str] = []
        self._place = place
        self._text = text

    def entries(self, raw: dict[str, Any], kind: type[Entry]) -> dict[str, Entry]:
        found = {}
        for number, fields in raw.items():
            try:
                entry = msgspec.convert(fields, kind)
            except msgspec.ValidationError as error:
                self._wrong(number, str(error))
                continue
            found[number] = entry
            if not entry.says.strip():
                self._wrong(number, "it says nothing")
            for test in entry.tests:
                if not _TEST.fullmatch(test):
                    self._wrong(number, f"{test!r} is not a test: path.py::name")
        return found

    def _wrong(self, number: str, what: str) -> None:
        at = self._text.find(f'"{number}"')
        line = self._text.count("\n", 0, max(at, 0)) + 1
        self.problems.append(f"{self._place}, line {line}: {number}: {what}")
