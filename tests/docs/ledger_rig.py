"""A project to try the checker of the ledgers on."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

PACKAGES = ("relayer", "pipeline", "leasequeue", "agents", "courier")
PROOF = "tests/test_proof.py"
HOLDS = f"{PROOF}::test_it_holds"
OWN = "tests/systems/courier/test_own.py::test_it_is_the_systems_own"
TESTS = """
import os
import pytest

AGAIN = "AGAIN" in os.environ

def test_it_holds(): pass

def test_it_breaks(): assert False

def test_it_passes_the_second_time(): assert AGAIN

def test_it_breaks_the_second_time(): assert not AGAIN

def test_it_is_skipped(): pytest.skip("no server")

@pytest.mark.xfail
def test_it_is_expected_to_break(): assert False

@pytest.fixture
def messy():
    yield
    raise OSError

def test_it_breaks_in_its_clean_up(messy): pass

@pytest.mark.parametrize("x", ["yes", "no", "a::b [c]"])
def test_it_has_cases(x): assert x != "no"

class TestGroup:
    def test_it_is_in_a_group(self): pass
"""
FILES = {
    "pytest.ini": "[pytest]\n",
    PROOF: TESTS,
    "tests/systems/courier/test_own.py": "def test_it_is_the_systems_own(): pass\n",
}


class Answer(NamedTuple):
    code: int
    text: str

    def of(self, package: str) -> dict[str, Any]:
        verdicts = msgspec.json.decode(self.text)
        return next(one for one in verdicts if one["package"] == package)

    def findings(self, package: str) -> list[tuple[str, str]]:
        return [(one["number"], one["what"]) for one in self.of(package)["findings"]]


class Run(NamedTuple):
    """A folder with a few tests that were run twice, and what is found in it."""

    root: Path
    tests: Any


class Project:
    """Five ledgers that are complete and proven, to be spoilt."""

    def __init__(self, run: Run, ledgers: Path, check: ModuleType) -> None:
        self._run = run
        self._ledgers = ledgers
        self._check = check
        for given in check.SYSTEMS:
            self._write(given.package, _lines(given), _defects(given))

    def text(self, package: str) -> str:
        return self.file(package).read_text()

    def file(self, package: str) -> Path:
        return self._ledgers / f"{package}.toml"

    def change(self, package: str, change: Callable[[Any, Any], None]) -> None:
        ledger = msgspec.toml.decode(self.text(package))
        change(ledger["lines"], ledger["defects"])
        self._write(package, ledger["lines"], ledger["defects"])

    def prove(self, number: str, test: str) -> None:
        """Let this line of the courier's be proven by that test."""
        self.change("courier", lambda lines, _: lines[number].update(tests=[test]))

    def check(self, *arguments: str) -> Answer:
        """What the script says, given reports by name."""
        given = [a if a.startswith("--") else f"{self._run.root / a}" for a in arguments]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = self._check.main(given)
        return Answer(code, said.getvalue())

    def json(self, *reports: str) -> Answer:
        return self.check("--json", *(reports or ("first.xml",)))

    def _write(self, package: str, lines: Any, defects: Any) -> None:
        text = 'title = "It"\n'
        for section, entries in (("lines", lines), ("defects", defects)):
            for number, fields in entries.items():
                text += f'[{section}."{number}"]\n'
                # Of what is used here, JSON and TOML are one.
                text += "".join(
                    f"{name} = {msgspec.json.encode(value).decode()}\n"
                    for name, value in fields.items()
                )
        self.file(package).write_text(text)


def _lines(given: Any) -> dict[str, Any]:
    def line(number: str, tags: frozenset[str]) -> dict[str, Any]:
        proof = {"context": "no"} if "INFO" in tags else {"tests": [HOLDS]}
        internal = given.is_internal(number)
        return {"tag": min(tags), "says": "so", "internal": internal, **proof}

    return {number: line(number, tags) for number, tags in given.lines().items()}


def _defects(given: Any) -> dict[str, Any]:
    return {
        f"D{defect}.{part + 1}": {"says": "so", "tests": [HOLDS]}
        for defect, parts in given.claims.items()
        for part in range(parts)
    }


def python(root: Path, *arguments: str, **more: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**kept, **more},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.stdout
