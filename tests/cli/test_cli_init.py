"""dlq init: the project that it writes works as it stands."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from cli.conftest import Command
from deadletter.settings import load_settings

pytestmark = pytest.mark.slow

FILES = {
    "my_shop.py",
    "tests/test_my_shop.py",
    "deadletter.toml",
    "pyproject.toml",
    "compose.yaml",
    ".github/workflows/test.yaml",
    ".gitignore",
}


@pytest.fixture
def place(dlq: Command, tmp_path: Path) -> Path:
    place = tmp_path / "My Shop"
    ran = dlq("init", str(place))
    assert ran.code == 0, ran.err
    return place


def run(place: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=place,
        env=clean | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_its_tests_pass_and_mean_something(place: Path) -> None:
    passed = run(place, "pytest", "-q", "-p", "no:cacheprovider")
    code = (place / "my_shop.py").read_text()
    (place / "my_shop.py").write_text(code.replace("100 + VAT", "100 - VAT"))
    failed = run(place, "pytest", "-q", "-p", "no:cacheprovider")

    written = {str(file.relative_to(place)) for file in place.rglob("*") if file.is_file()}
    assert {file for file in written if "__pycache__" not in file} == FILES
    assert (passed.returncode, "2 passed" in passed.stdout) == (0, True), passed.stdout
    assert (failed.returncode, "1 failed" in failed.stdout) == (1, True)


def test_its_worker_runs_by_its_settings(place: Path) -> None:
    run(place, "deadletter.cli", "send", "orders", '{"id": "o-1", "amount": 100}')
    run(place, "deadletter.cli", "send", "orders", '{"id": "o-2"}')
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    worker = subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli", "work"], cwd=place, env=clean
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            lines = run(place, "deadletter.cli", "queues", "--json").stdout.splitlines()
            ready = {one["options"]["name"]: one["ready"] for one in map(json.loads, lines)}
            if ready.get("receipts") == 1 and ready["orders"] == 0:
                break
            assert time.monotonic() < deadline, ready
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)

    (letter,) = run(place, "deadletter.cli", "list", "--json").stdout.splitlines()
    assert json.loads(letter)["error_type"] == "deadletter.core.errors.Malformed"


def test_its_other_files_are_what_they_should_be(place: Path) -> None:
    settings = load_settings(place / "deadletter.toml", environ={})
    project = tomllib.loads((place / "pyproject.toml").read_text())
    compose = yaml.safe_load((place / "compose.yaml").read_text())
    steps = yaml.safe_load((place / ".github/workflows/test.yaml").read_text())

    assert (settings.url, settings.app) == ("sqlite:///my_shop.db", "my_shop:app")
    assert project["project"]["name"] == "my-shop"
    assert project["tool"]["pytest"]["ini_options"]["dlq_app"] == "my_shop:app"
    assert compose["services"]["worker"]["command"] == "dlq work"
    assert compose["services"]["console"]["volumes"] == ["data:/data"]
    assert "python -m pytest" in str(steps["jobs"]["test"]["steps"])


def test_nothing_is_overwritten(dlq: Command, place: Path, tmp_path: Path) -> None:
    before = (place / "my_shop.py").read_text()
    (place / "my_shop.py").write_text(before + "\n# mine\n")
    again = dlq("init", str(place))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    other = dlq("init", str(tmp_path / "notes"))

    assert (again.code, other.code) == (4, 4)
    assert "is not empty" in again.err
    assert "it has mine.txt: nothing was written" in other.err
    assert (place / "my_shop.py").read_text().endswith("# mine\n")
    assert [file.name for file in (tmp_path / "notes").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("directory", "words", "module"),
    [
        ("json", [], "shop"),
        ("123", [], "shop"),
        ("deadletter", [], "shop"),
        ("x", ["--name", "billing"], "billing"),
    ],
)
def test_modules_get_names_that_work(
    dlq: Command, tmp_path: Path, directory: str, words: list[str], module: str
) -> None:
    (tmp_path / directory / ".git").mkdir(parents=True)  # as after `git init`

    ran = dlq("init", str(tmp_path / directory), *words, "--json")

    assert ran.document["app"] == f"{module}:app"
    assert (tmp_path / directory / f"{module}.py").exists()


@pytest.mark.parametrize("name", ["class", "json", "a b", "../x", "Ünicode", "a" * 50, ""])
def test_other_names_are_refused(dlq: Command, tmp_path: Path, name: str) -> None:
    ran = dlq("init", str(tmp_path / "new"), "--name", name)

    assert ran.code == 2
    assert "cannot be the name of the module" in ran.err
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_way_is_named(dlq: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    ran = dlq("init", str(tmp_path / "file"))

    assert (ran.code, "cannot write into" in ran.err) == (2, True)
