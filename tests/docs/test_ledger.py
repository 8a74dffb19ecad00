"""The checker of the ledgers sees everything that is wrong with one."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from docs.ledger_rig import FILES, HOLDS, OWN, PACKAGES, PROOF, Project, Run, python
from docs.reading import ROOT

pytestmark = pytest.mark.slow

SCRIPTS = ROOT / "docs" / "systems"


@pytest.fixture(scope="module")
def check() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("check")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, check: ModuleType) -> Run:
    root = tmp_path_factory.mktemp("run")
    for file, text in FILES.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    pytest_ = ("-m", "pytest", "-q", "-p", "no:xdist")
    python(root, *pytest_, "--junitxml=first.xml")
    python(root, *pytest_, "--junitxml=second.xml", "-k", "second_time", AGAIN="1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["proof"], "ROOT", root)
        found = check.collected([HOLDS, OWN, "tests/test_disproof.py::test_it_holds"])
    return Run(root, found)


@pytest.fixture
def project(
    run: Run, tmp_path: Path, check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Project:
    ledgers = tmp_path / "docs" / "systems"
    ledgers.mkdir(parents=True)
    monkeypatch.setattr(check, "HERE", ledgers)
    # What is collected stays the same, and takes seconds.
    monkeypatch.setattr(check, "collected", lambda names: run.tests)
    return Project(run, ledgers, check)


def test_a_whole_ledger_is_proven(project: Project) -> None:
    answer = project.json()

    assert answer.code == 0
    counts = {p: answer.of(p)["lines"] for p in PACKAGES}
    assert counts == {
        "relayer": 114,
        "pipeline": 52,
        "leasequeue": 131,
        "agents": 128,
        "courier": 59,
    }
    assert answer.of("courier") == {
        "package": "courier",
        "lines": 59,
        "proven": 57,
        "context": 2,
        "unproven": 0,
        "binding": 56,
        "binding_proven": 56,
        "defects": 7,
        "defects_proven": 7,
        "findings": [],
    }


def test_ledgers_are_printed_as_a_table(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_breaks")

    answer = project.check("first.xml")

    assert answer.code == 1
    finding, _, *rows = answer.text.splitlines()
    assert finding.split() == ["courier", "R4.3", f"{PROOF}::test_it_breaks", "failed"]
    assert len(rows) == 1 + len(PACKAGES)
    assert " ".join(rows[1].split()) == "relayer 114 108 6 0 104/104 100.0 % 3/3"
    assert " ".join(rows[5].split()) == "courier 59 56 2 1 55/56 98.2 % 7/7"


def test_without_a_report_nothing_is_proven(project: Project) -> None:
    answer = project.check("--json")

    assert answer.code == 1
    assert ("R4.1", f"{HOLDS} was not run") in answer.findings("courier")
    assert answer.of("courier")["proven"] == 0


def test_a_number_that_is_missing_is_seen(project: Project) -> None:
    project.change("relayer", lambda lines, _: lines.pop("R0.77"))
    project.change("courier", lambda _, defects: defects.pop("D11.7"))

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("relayer") == [("R0.77", "is missing")]
    assert answer.findings("courier") == [("D11.7", "is missing")]
    assert answer.of("courier")["defects_proven"] == 6


def test_a_number_that_nobody_asked_for_is_seen(project: Project) -> None:
    def add(lines: Any, defects: Any) -> None:
        lines["R1.1"] = lines["R4.1"]
        lines["R4.60"] = lines["R4.1"]
        defects["D10.1"] = defects["D11.1"]

    project.change("courier", add)

    answer = project.json()

    assert answer.code == 1
    assert [number for number, _ in answer.findings("courier")] == [*("R1.1", "R4.60", "D10.1")]


def test_a_number_that_is_there_twice_is_seen(project: Project) -> None:
    again = '\n[lines."R4.2"]\ntag = "MUST"\nsays = "so"\n'
    project.file("courier").write_text(project.text("courier") + again)

    answer = project.json()

    assert answer.code == 1
    [(_, what)] = answer.findings("courier")
    assert what.startswith("docs/systems/courier.toml: ")
    assert "R4.2" in what
    assert "line" in what


@pytest.mark.parametrize(
    ("number", "tag", "what"),
    [
        ("R4.3", "INFO", "is INFO here, and was asked for as MUST"),
        ("R4.19", "FUTURE", "is FUTURE here, and was asked for as MAY"),
    ],
)
def test_a_tag_that_is_not_the_one_asked_for_is_seen(
    project: Project, number: str, tag: str, what: str
) -> None:
    project.change("courier", lambda lines, _: lines[number].update(tag=tag))

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("courier") == [(number, what)]


@pytest.mark.parametrize(
    "change",
    [{"tag": "OUGHT"}, {"says": " "}, {"says": 3}, {"tests": ["test_it_holds"]}, {"tets": [HOLDS]}],
    ids=str,
)
def test_unreadable_ledger_entries_are_reported_with_file_line_and_number(
    project: Project, change: dict[str, Any]
) -> None:
    project.change("courier", lambda lines, _: lines["R4.3"].update(change))
    lines = project.text("courier").splitlines()

    answer = project.json()

    assert answer.code == 1
    [(_, what)] = answer.findings("courier")
    at = lines.index('[lines."R4.3"]') + 1
    assert what.startswith(f"docs/systems/courier.toml, line {at}: R4.3: ")
    assert answer.of("courier")["proven"] == 0
    assert answer.findings("relayer") == []


def test_a_ledger_that_is_not_there_is_told(project: Project) -> None:
    project.file("agents").unlink()

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("agents") == [("", "docs/systems/agents.toml is not there")]


@pytest.mark.parametrize(
    ("package", "number", "is_enough"),
    [
        ("courier", "R4.3", False),  # MUST
        ("agents", "R3.35", False),  # MUST NOT
        ("agents", "R3.114", False),  # SHOULD
        ("relayer", "R0.70", True),  # MUST, internal
        ("courier", "R4.19", True),  # MAY
        ("relayer", "R0.22", True),  # FUTURE
    ],
)
def test_a_reason_instead_of_a_test_is_not_always_enough(
    project: Project, package: str, number: str, *, is_enough: bool
) -> None:
    def explain(lines: Any, _: Any) -> None:
        lines[number].update(tests=[], context="because")

    project.change(package, explain)

    answer = project.json()

    expected = [] if is_enough else [(number, "needs a test")]
    assert answer.findings(package) == expected
    assert answer.code == (0 if is_enough else 1)


@pytest.mark.parametrize("number", ["R0.1", "R0.22", "R0.70"])
def test_a_line_without_test_and_reason_is_seen(project: Project, number: str) -> None:
    def empty(lines: Any, _: Any) -> None:
        lines[number].update(tests=[], context="")

    project.change("relayer", empty)

    lacking = "needs a test, or context that says why not"
    assert project.json().findings("relayer") == [(number, lacking)]


def test_only_what_was_given_as_internal_is_internal(project: Project) -> None:
    def hide(lines: Any, _: Any) -> None:
        lines["R4.3"].update(tests=[], context="because", internal=True)

    project.change("courier", hide)

    what = "is not internal to the origin"
    assert project.json().findings("courier") == [("R4.3", what)]


def test_a_defect_needs_a_test(project: Project) -> None:
    project.change("courier", lambda _, defects: defects["D11.2"].update(tests=[]))

    assert project.json().findings("courier") == [("D11.2", "needs a test")]


@pytest.mark.parametrize(
    ("test", "what"),
    [
        (f"{PROOF}::test_it_breaks", "failed"),
        (f"{PROOF}::test_it_breaks_in_its_clean_up", "failed"),
        (f"{PROOF}::test_it_is_skipped", "was skipped"),
        (f"{PROOF}::test_it_is_expected_to_break", "was skipped"),
        (f"{PROOF}::test_it_has_cases[no]", "failed"),
        (f"{PROOF}::test_it_has_cases[maybe]", "does not exist"),
        (f"{PROOF}::test_it", "does not exist"),
        (f"{PROOF}::test_it_is_in_a_group", "does not exist"),
        ("tests/test_disproof.py::test_it_holds", "does not exist"),
    ],
)
def test_a_test_that_did_not_pass_proves_nothing(project: Project, test: str, what: str) -> None:
    project.prove("R4.3", test)

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("courier") == [("R4.3", f"{test} {what}")]


def test_of_a_test_with_cases_all_must_have_passed(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_has_cases")

    answer = project.json()

    assert answer.code == 1
    failed = f"{PROOF}::test_it_has_cases[no] failed"
    assert answer.findings("courier") == [("R4.3", failed)]


def test_names_may_have_cases_and_groups(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_has_cases[a::b [c]]")
    project.prove("R4.4", f"{PROOF}::TestGroup::test_it_is_in_a_group")

    assert project.json().code == 0


def test_the_last_report_counts(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_passes_the_second_time")
    assert project.json("first.xml").code == 1
    assert project.json("first.xml", "second.xml").code == 0
    assert project.json("second.xml", "first.xml").code == 1

    project.prove("R4.3", f"{PROOF}::test_it_breaks_the_second_time")
    assert project.json("first.xml").code == 0
    assert project.json("first.xml", "second.xml").code == 1


def test_a_test_that_a_report_tells_of_twice_must_have_passed_both_times(
    project: Project, tmp_path: Path
) -> None:
    passed = '<testcase classname="tests.test_proof" name="test_it_holds"/>'
    failed = passed.replace("/>", "><failure/></testcase>")
    report = tmp_path / "twice.xml"
    for both in (passed + failed, failed + passed):
        report.write_text(f"<testsuite>{both}</testsuite>")

        assert ("R4.1", f"{HOLDS} failed") in project.json(str(report)).findings("courier")


def test_tests_of_others_that_are_named_can_be_listed(project: Project) -> None:
    project.prove("R4.3", OWN)
    project.prove("R4.4", f"{PROOF}::test_it_has_cases[yes]")
    project.prove("R4.5", f"{PROOF}::test_it_was_renamed")

    answer = project.check("--elsewhere")

    assert answer.code == 0
    assert answer.text.splitlines() == [f"{PROOF}::test_it_has_cases[yes]", HOLDS]


def test_the_script_runs_on_the_ledgers_that_are_here() -> None:
    said = python(ROOT, "docs/systems/check.py", "--json")

    assert [one["package"] for one in msgspec.json.decode(said)] == list(PACKAGES)
