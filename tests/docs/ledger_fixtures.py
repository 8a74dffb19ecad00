"""Fixtures of the tests of ledgers and reports."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from docs.ledger_rig import HOLDS, OWN, Project, Run, git, make_run
from docs.reading import ROOT

SCRIPTS = ROOT / "docs" / "systems"


@pytest.fixture(scope="module")
def check() -> Iterator[ModuleType]:
    """The script as a module, with the modules beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("check")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, check: ModuleType) -> Run:
    root = tmp_path_factory.mktemp("run")
    make_run(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["reports"], "ROOT", root)
        found = check.collect_tests([HOLDS, OWN, "tests/test_disproof.py::test_it_holds"])
    return Run(root, git(root, "rev-parse", "HEAD").strip(), found)


@pytest.fixture
def project(
    run: Run, tmp_path: Path, check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Project:
    ledgers = tmp_path / "docs" / "systems"
    ledgers.mkdir(parents=True)
    monkeypatch.setattr(check, "FOLDER", ledgers)
    monkeypatch.setattr(check, "ROOT", run.root)
    monkeypatch.delenv("CI", raising=False)
    # Collecting takes seconds, and the tests stay the same.
    monkeypatch.setattr(check, "collect_tests", lambda names: run.tests)
    return Project(run, ledgers, check)
