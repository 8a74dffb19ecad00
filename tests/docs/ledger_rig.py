"""A small project with ledgers, tests and reports, to try `docs/systems/check.py` on."""

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

from docs.reading import ROOT

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
    ".gitignore": "*.xml\n__pycache__\n.pytest_cache\n",
    PROOF: TESTS,
    "tests/systems/courier/test_own.py": "def test_it_is_the_systems_own(): pass\n",
}


class Answer(NamedTuple):
    """The exit code and the output of the script."""

    code: int
    text: str
    errors: str

    def of(self, package: str) -> dict[str, Any]:
        verdicts = msgspec.json.decode(self.text)
        return next(one for one in verdicts if one["package"] == package)

    def findings(self, package: str) -> list[tuple[str, str]]:
        return [(one["number"], one["text"]) for one in self.of(package)["findings"]]


class Run(NamedTuple):
    """A git repository with a few tests that were run twice, and the tests that it has."""

    root: Path
    commit: str
    tests: Any


class Project:
    """Five ledgers that are complete and proven, for tests to damage."""

    def __init__(self, run: Run, ledgers: Path, check: ModuleType) -> None:
        self.run = run
        self._ledgers = ledgers
        self._check = check
        for package, system in check.load_systems().items():
            self._write(package, _lines(system), {d: {"tests": [HOLDS]} for d in system.defects})

    def text(self, package: str) -> str:
        return self.file(package).read_text()

    def file(self, package: str) -> Path:
        return self._ledgers / f"{package}.toml"

    def change(self, package: str, change: Callable[[Any, Any], None]) -> None:
        ledger = msgspec.toml.decode(self.text(package))
        change(ledger["lines"], ledger["defects"])
        self._write(package, ledger["lines"], ledger["defects"])

    def set_line(self, package: str, number: str, **entry: Any) -> None:
        """Replace the entry of a line."""
        self.change(package, lambda lines, _: lines.update({number: entry}))

    def prove(self, number: str, test: str) -> None:
        """Name another test for a line of the courier."""
        self.set_line("courier", number, tests=[test])

    def check(self, *arguments: str) -> Answer:
        """Run the script; reports are named by their files in the run."""
        paths = [a if a.startswith("--") else f"{self.run.root / a}" for a in arguments]
        with (
            contextlib.redirect_stdout(io.StringIO()) as output,
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            code = self._check.main(paths)
        return Answer(code, output.getvalue(), errors.getvalue())

    def json(self, *reports: str) -> Answer:
        return self.check("--json", *(reports or ("first.xml",)))

    def _write(self, package: str, lines: Any, defects: Any) -> None:
        text = ""
        for section, entries in (("lines", lines), ("defects", defects)):
            for number, fields in entries.items():
                text += f'[{section}."{number}"]\n'
                # Strings and lists of strings look the same in JSON and TOML.
                text += "".join(
                    f"{name} = {msgspec.json.encode(value).decode()}\n"
                    for name, value in fields.items()
                )
        self.file(package).write_text(text)


def make_run(root: Path) -> None:
    """Commit a few tests and run them twice."""
    for file, text in FILES.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    git(root, "init", "--quiet")
    commit(root)
    run_tests(root, "--junitxml=first.xml")
    run_tests(root, "--junitxml=second.xml", "-k", "second_time", AGAIN="1")


def commit(root: Path) -> str:
    """Commit everything and return the commit."""
    git(root, "add", "--all")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "a")
    return git(root, "rev-parse", "HEAD").strip()


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def run_tests(root: Path, *arguments: str, **variables: str) -> None:
    """Run the tests of a repository with the plugin that writes the commit."""
    pytest_ = ("-m", "pytest", "-q", "-p", "report_commit", *arguments)
    python(root, *pytest_, PYTHONPATH=str(ROOT / "tests"), **variables)


def write_report(
    file: Path, outcomes: dict[str, str], *, commit: str = "", uncommitted: str = ""
) -> None:
    """Write a report; an outcome is `passed`, `failure`, `error` or `skipped`."""
    cases = ""
    for test, outcome in outcomes.items():
        module, name = test.rsplit(".", 1)
        result = "" if outcome == "passed" else f"<{outcome}/>"
        cases += f'<testcase classname="{module}" name="{name}">{result}</testcase>'
    properties = f"""<properties>
        <property name="commit" value="{commit}"/>
        <property name="uncommitted" value="{uncommitted}"/>
    </properties>"""
    file.write_text(f"<testsuites><testsuite>{properties}{cases}</testsuite></testsuites>")


def _lines(system: Any) -> dict[str, Any]:
    return {
        number: {"context": "no"} if line.tag == "INFO" else {"tests": [HOLDS]}
        for number, line in system.lines.items()
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
