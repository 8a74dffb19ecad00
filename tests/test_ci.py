"""What CI and make do that is not in their tests; `make` only pretends here."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import services
from servers import Kafka, Missing, Redis

ROOT = Path(__file__).parent.parent
LOCKS = sorted(ROOT.glob("requirements*.lock"))
MAKE = """\
#!/bin/sh
echo "$1 CI=$CI" >> made
for one in $FAILING; do [ "$one" = "$1" ] && failed=yes; done
mkdir -p .reports
case "$1" in
engines) ended="<failure/>" ;;
engines-again) ended="" ;;
*) exit ${failed:+1} ;;
esac
cat > ".reports/$1.xml" << END
<testsuites><testsuite>
  <testcase classname="tests.engines.test_a" name="test_flaky">$ended</testcase>
  <testcase classname="tests.engines.test_a" name="test_steady"/>
</testsuite></testsuites>
END
exit ${failed:+1}
"""
ALL = [
    *("lint", "types", "services", "test", "slow", "browser", "pages"),
    *("faults-ci", "engines", "systems", "ledger"),
]


class Ran(NamedTuple):
    code: int
    said: str
    made: list[str]
    in_ci: list[str]


class Project:
    """As much of the project as CI itself needs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for name in (".ci/run", ".ci/retried_tests.py", "docs/systems/reports.py"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        for name, text in {
            "bin/make": MAKE,
            ".venv/bin/python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        }.items():
            (root / name).parent.mkdir(parents=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755)

    def run(self, *failing: str, **variables: str) -> Ran:
        path = f"{self._root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        ended = subprocess.run(
            [self._root / ".ci/run"],
            env={"PATH": path, "FAILING": " ".join(failing), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        made = [line.split() for line in (self._root / "made").read_text().splitlines()]
        in_ci = [target for target, ci in made if ci == "CI=true"]
        return Ran(ended.returncode, ended.stdout, [name for name, _ in made], in_ci)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_everything_is_run_and_nothing_may_be_skipped(project: Project) -> None:
    ran = project.run()

    assert (ran.code, ran.made) == (0, ALL)
    assert ran.in_ci == ALL[2:]
    assert ran.said == ""


def test_missing_servers_fail(project: Project) -> None:
    ran = project.run("services")

    assert ran.code == 1
    assert "FAILED: servers are missing" in ran.said
    assert "DLQ_CI_WITHOUT_SERVERS=yes" in ran.said


def test_one_may_say_that_it_goes_without_servers(project: Project) -> None:
    ran = project.run("services", DLQ_CI_WITHOUT_SERVERS="yes")

    assert (ran.code, ran.made) == (0, ALL[: ALL.index("engines")])
    assert ran.said.splitlines()[-1].startswith("NOT RUN: the engines")


def test_servers_that_are_here_are_used_whatever_one_says(project: Project) -> None:
    assert project.run(DLQ_CI_WITHOUT_SERVERS="yes").made == ALL


def test_flaky_tests_are_listed_at_the_end(project: Project) -> None:
    ran = project.run("engines")

    again = "passed only when retried: tests.engines.test_a.test_flaky"
    assert (ran.code, ran.said.splitlines()) == (0, [again])
    after = ALL.index("engines") + 1
    assert ran.made == [*ALL[:after], "engines-again", *ALL[after:]]


@pytest.mark.parametrize("other", ["systems-again", "ledger"])
def test_flaky_tests_are_listed_when_others_fail(project: Project, other: str) -> None:
    ran = project.run("engines", "systems", other)

    assert ran.code != 0
    assert "passed only when retried" in ran.said.splitlines()[-1]


@pytest.mark.parametrize("stage", ["lint", "types", "ledger"])
def test_failing_stages_are_not_retried(project: Project, stage: str) -> None:
    ran = project.run(stage)

    assert ran.code != 0
    assert ran.made == ALL[: ALL.index(stage) + 1]


def test_tests_that_fail_twice_fail(project: Project) -> None:
    ran = project.run("engines", "engines-again")

    assert ran.code != 0
    assert ran.made[-1] == "engines-again"


def test_make_test_says_which_servers_are_missing_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find() -> dict[str, Path]:
        raise Missing("no Kafka here: run `make services`")

    monkeypatch.setattr(Kafka, "find", find)
    monkeypatch.delenv(Kafka.variable(), raising=False)
    monkeypatch.setenv(Redis.variable(), "redis://somewhere")

    assert services.main(["--look"]) == 0

    said = capsys.readouterr().out
    assert re.search("missing +kafka +no Kafka here: run `make services`, or", said)
    assert re.search(f"given +redis +{Redis.variable()}", said)
    assert "services.py --look" in _recipe("test")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_lock_can_be_made_anew_and_names_no_host(lock: Path) -> None:
    recipe = _recipe("lock")

    assert f"-o {lock.name}\n" in recipe
    assert "grep -nE 'https?://' requirements*.lock" in recipe
    assert not re.search("https?://", lock.read_text())


def test_installs_from_locks_resolve_no_dependencies() -> None:
    """Left to resolve `coverage[toml]`, pip took a release newer than the lock's."""
    lines = [
        line
        for file in ("Makefile", "tests/services.py", "bench/run.py")
        for line in (ROOT / file).read_text().splitlines()
        if "--require-hashes" in line
    ]

    assert len(lines) == 3
    assert all("--no-deps" in line for line in lines)


def test_the_lock_of_the_image_has_all_that_its_extra_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for wanted in project["optional-dependencies"].values():
        asked += wanted
    names = {re.split(r"[\[<>=;]", one)[0] for one in asked} - {"deadletter"}
    lock = (ROOT / "requirements-image.lock").read_text()

    assert [name for name in sorted(names) if f"\n{name}==" not in f"\n{lock}"] == []


def _recipe(target: str) -> str:
    found = re.search(rf"(?m)^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text())
    assert found is not None
    return found[1]
