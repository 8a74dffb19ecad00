"""Reports count for the commit that made them, and retries are told apart."""

import shutil
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

from docs.ledger_fixtures import check, project, run
from docs.ledger_rig import HOLDS, PROOF, Project, commit, git, python, run_tests, write_report
from docs.reading import ROOT

pytestmark = pytest.mark.slow

__all__ = ["check", "project", "run"]  # fixtures
HELD = "tests.test_proof.test_it_holds"


@pytest.fixture
def repository(project: Project, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    copy = tmp_path / "copy"
    shutil.copytree(project.run.root, copy)
    return copy


def properties(report: Path) -> dict[str, str]:
    found = {one.get("name", ""): one.get("value", "") for one in ET.parse(report).iter("property")}
    return {name: found[name] for name in ("commit", "uncommitted")}


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_reports_name_their_commit(repository: Path, workers: tuple[str, ...]) -> None:
    run_tests(repository, "--junitxml=new.xml", *workers)

    head = git(repository, "rev-parse", "HEAD").strip()
    assert properties(repository / "new.xml") == {"commit": head, "uncommitted": ""}


def test_reports_name_files_that_were_not_committed(repository: Path) -> None:
    (repository / PROOF).write_text("def test_it_holds(): pass\n")
    (repository / "tests" / "test_new.py").write_text("def test_new(): pass\n")

    run_tests(repository, "--junitxml=new.xml")

    assert properties(repository / "new.xml")["uncommitted"] == f"{PROOF}, tests/test_new.py"


def test_reports_name_changes_that_were_made_meanwhile(repository: Path) -> None:
    text = "from pathlib import Path\ndef test_new(): Path('tests/made').write_text('')\n"
    (repository / "tests" / "test_new.py").write_text(text)
    commit(repository)

    run_tests(repository, "--junitxml=new.xml")

    assert properties(repository / "new.xml")["uncommitted"] == "tests/made"


def test_without_git_reports_name_a_digest_of_the_files(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    alone = {"GIT_CEILING_DIRECTORIES": str(repository.parent)}

    run_tests(repository, "--junitxml=new.xml", **alone)
    run_tests(repository, "--junitxml=same.xml", **alone)
    (repository / "tests" / "test_other.py").write_text("def test_other(): pass\n")
    run_tests(repository, "--junitxml=changed.xml", **alone)

    new, same, changed = (
        properties(repository / f"{name}.xml")["commit"] for name in ("new", "same", "changed")
    )
    assert new.startswith("files-")
    assert new == same != changed


def test_reports_of_another_commit_are_rejected(
    project: Project, repository: Path, check: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "new").write_text("")
    later = commit(repository)
    monkeypatch.setattr(check, "ROOT", repository)

    answer = project.check("first.xml", "second.xml")

    assert (answer.code, answer.text) == (1, "")
    assert answer.errors.splitlines() == [
        f"{name}.xml was made at commit {project.run.commit}, but {later} is checked out: "
        f"run `make {name}` again"
        for name in ("first", "second")
    ]


def test_reports_without_a_commit_are_rejected(project: Project, tmp_path: Path) -> None:
    write_report(tmp_path / "old.xml", {HELD: "passed"})

    answer = project.check(str(tmp_path / "old.xml"))

    assert answer.code == 1
    assert "old.xml names no commit" in answer.errors


@pytest.mark.parametrize("text", [None, "<testsuites><testsuite>"], ids=["missing", "unfinished"])
def test_unfinished_reports_are_rejected(
    project: Project, tmp_path: Path, text: str | None
) -> None:
    if text:
        (tmp_path / "new.xml").write_text(text)

    answer = project.check(str(tmp_path / "new.xml"))

    assert (answer.code, answer.text) == (1, "")
    assert answer.errors.startswith("new.xml is not a complete report: ")


def test_ci_rejects_reports_of_changed_checkouts_and_others_get_a_note(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "new.xml"
    write_report(report, {HELD: "passed"}, commit=project.run.commit, uncommitted="src/a.py")

    by_hand = project.check(str(report))
    monkeypatch.setenv("CI", "true")
    in_ci = project.check(str(report))

    assert by_hand.code == 0
    assert by_hand.text.splitlines()[-1] == "Note: new.xml was made with changes to src/a.py"
    assert in_ci.code == 1
    assert "new.xml was made with uncommitted changes (src/a.py)" in in_ci.errors


def test_ci_accepts_reports_of_clean_checkouts(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    assert project.json("first.xml").code == 0


def test_tests_that_pass_only_when_retried_are_counted_apart(project: Project) -> None:
    flaky = f"{PROOF}::test_it_passes_the_second_time"
    project.prove("R4.3", flaky)
    project.set_line("courier", "R4.4", differs="on purpose", tests=[flaky])
    project.change("courier", lambda _, defects: defects["D11.1"].update(tests=[flaky]))

    first, both = project.json("first.xml"), project.json("first.xml", "second.xml")
    printed = project.check("first.xml", "second.xml")

    assert first.code == 1
    assert (both.code, both.findings("courier")) == (0, [])
    verdict = both.of("courier")
    assert [one["number"] for one in verdict["retried"]] == ["R4.3", "R4.4", "D11.1"]
    lines = {"proven": 55, "retried": 1, "differs": 1, "open": 0, "context": 2}
    assert verdict["lines"] == lines
    assert (verdict["defects"]["proven"], verdict["defects"]["retried"]) == (7, 1)
    head, retried, *_ = printed.text.splitlines()
    assert head == "Proven only when retried:"
    assert retried.split() == ["courier", "R4.3", flaky]


def test_a_later_failure_counts(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_passes_the_second_time")
    assert project.json("second.xml", "first.xml").code == 1

    project.prove("R4.3", f"{PROOF}::test_it_breaks_the_second_time")
    assert project.json("first.xml").code == 0
    assert project.json("first.xml", "second.xml").code == 1


@pytest.mark.parametrize(
    ("first", "retry", "is_retried"),
    [
        ("failure", "passed", True),
        ("error", "passed", True),
        ("skipped", "passed", True),
        (None, "passed", True),  # the first run ended before it
        ("passed", "passed", False),
    ],
)
def test_retry_reports_show_which_tests_were_retried(
    project: Project, tmp_path: Path, first: str | None, retry: str, *, is_retried: bool
) -> None:
    here = {"commit": project.run.commit}
    write_report(tmp_path / "test.xml", {HELD: first} if first else {}, **here)
    write_report(tmp_path / "test-again.xml", {HELD: retry}, **here)

    answer = project.json(str(tmp_path / "test.xml"), str(tmp_path / "test-again.xml"))

    assert answer.of("courier")["lines"]["retried"] == (57 if is_retried else 0)


def test_a_pass_in_a_third_run_does_not_hide_the_failure(project: Project, tmp_path: Path) -> None:
    reports = []
    for number, outcome in enumerate(["failure", "passed", "passed"]):
        report = tmp_path / f"run{number}.xml"
        write_report(report, {HELD: outcome}, commit=project.run.commit)
        reports.append(str(report))

    assert project.json(*reports).of("courier")["lines"]["retried"] == 57


def test_ci_lists_retried_tests_and_unfinished_reports(tmp_path: Path) -> None:
    write_report(tmp_path / "test.xml", {HELD: "failure", "tests.test_proof.test_b": "failure"})
    write_report(tmp_path / "test-again.xml", {HELD: "passed", "tests.test_proof.test_b": "error"})
    (tmp_path / "slow.xml").write_text("<testsuites>")

    unfinished, retried = python(ROOT, ".ci/retried_tests.py", str(tmp_path)).splitlines()

    assert unfinished.startswith("slow.xml is not a complete report: ")
    assert retried == f"passed only when retried: {HELD}"


@pytest.mark.parametrize("ended", [("passed", "failure"), ("failure", "passed")])
def test_tests_listed_twice_in_a_report_must_pass_both_times(
    project: Project, tmp_path: Path, ended: tuple[str, str]
) -> None:
    report = tmp_path / "twice.xml"
    cases = "".join(
        f'<testcase classname="tests.test_proof" name="test_it_holds">'
        f"{'' if one == 'passed' else '<failure/>'}</testcase>"
        for one in ended
    )
    commit_ = f'<properties><property name="commit" value="{project.run.commit}"/></properties>'
    report.write_text(f"<testsuite>{commit_}{cases}</testsuite>")

    assert ("R4.1", f"{HOLDS} failed") in project.json(str(report)).findings("courier")


def test_every_run_of_this_project_names_its_commit(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.hasplugin("report_commit")
