"""
The requirements of the five systems: what each document asks for, line by line.

    title = "Relayer"
    summary = "transactions over SQS"
    document = 0
    [[sections]]
    title = "Queues"
    [sections.lines."R0.63"]
    tag = "MUST"
    text = "The main queue is named `relay-transactions`."
    [defects."D10.3"]
    text = "Poll cycles may overlap."

A ledger (`relayer.toml` and so on) only names tests for these lines. It can neither
leave a line out nor reword it.
"""

# ruff: noqa: INP001 -- a script's module, not a package

from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

FOLDER: Final = Path(__file__).parent / "requirements"
PACKAGES: Final = ("relayer", "pipeline", "leasequeue", "agents", "courier")
Tag = Literal["MUST", "MUST NOT", "SHOULD", "MAY", "MAY/FUTURE", "FUTURE", "INFO"]
BINDING: Final[frozenset[Tag]] = frozenset({"MUST", "MUST NOT", "SHOULD"})


class Requirement(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a document."""

    tag: Tag
    text: str
    internal: bool = False  # about the source layout of the original; only behaviour counts

    @property
    def needs_test(self) -> bool:
        """True if a reason in words cannot replace a test."""
        return self.tag in BINDING and not self.internal


class OriginalDefect(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that the original system got wrong."""

    text: str


Required = Requirement | OriginalDefect


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines of a document that belong together."""

    title: str
    lines: dict[str, Requirement]


class System(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Everything that one document asks for."""

    title: str
    summary: str  # what the system does, in a few words
    document: int
    sections: tuple[Section, ...]
    defects: dict[str, OriginalDefect]

    @cached_property
    def lines(self) -> dict[str, Requirement]:
        """The requirements of all sections by number, in order."""
        return {
            number: requirement
            for section in self.sections
            for number, requirement in section.lines.items()
        }

    @property
    def numbers(self) -> str:
        """The range of line numbers, such as `R0.1 to 114`."""
        return f"R{self.document}.1 to {len(self.lines)}"


def load_systems(folder: Path = FOLDER) -> dict[str, System]:
    """Read the requirements of all systems by package; raise `ValueError` if one is malformed."""
    return {package: _load(folder / f"{package}.toml") for package in PACKAGES}


def _load(file: Path) -> System:
    try:
        system = msgspec.toml.decode(file.read_bytes(), type=System)
    except msgspec.DecodeError as error:
        raise ValueError(f"{file.name}: {error}") from None
    found = [number for section in system.sections for number in section.lines]
    expected = [f"R{system.document}.{n}" for n in range(1, len(found) + 1)]
    for position, (number, wanted) in enumerate(zip(found, expected, strict=True)):
        if number != wanted:
            raise ValueError(f"{file.name}: line {position + 1} must be {wanted}, got {number}")
    texts = [line.text for line in system.lines.values()]
    texts += [defect.text for defect in system.defects.values()]
    if not all(text.strip() for text in texts):
        raise ValueError(f"{file.name}: every line and defect needs a text")
    return system
