"""`docs/systems/check.py` gives every line its status and reports everything that is wrong."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.ledger_fixtures import check, project, run
from docs.ledger_rig import HOLDS, OWN, PACKAGES, PROOF, Project, python
from docs.reading import ROOT

pytestmark = pytest.mark.slow

__all__ = ["check", "project", "run"]  # fixtures


def test_complete_ledgers_are_proven(project: Project) -> None:
    answer = project.json()

    assert answer.code == 0
    totals = {p: sum(answer.of(p)["lines"].values()) for p in PACKAGES}
    assert totals == {
        "relayer": 114,
        "pipeline": 52,
        "leasequeue": 131,
        "agents": 128,
        "courier": 59,
    }
    assert answer.of("courier") == {
        "package": "courier",
        "lines": {"proven": 57, "retried": 0, "differs": 0, "open": 0, "context": 2},
        "defects": {"proven": 8, "retried": 0, "differs": 0, "open": 0, "context": 0},
        "findings": [],
        "retried": [],
        "shared": {HOLDS: 57},
    }


def test_verdicts_are_printed_as_tables(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_breaks")
    project.set_line("courier", "R4.4", differs="on purpose")

    answer = project.check("first.xml")

    assert answer.code == 1
    head, finding, *rest = answer.text.splitlines()
    assert head == "Open:"
    assert finding.split() == ["courier", "R4.3", f"{PROOF}::test_it_breaks", "failed"]
    tables = [" ".join(line.split()) for line in rest[-13:]]
    assert tables[0] == "system lines proven retried differs open context"
    assert tables[1] == "relayer 114 108 0 0 0 6"
    assert tables[5] == "courier 59 55 0 1 1 2"
    assert tables[7] == "system defects proven retried differs open context"
    assert tables[12] == "courier 8 8 0 0 0 0"


def test_without_reports_everything_is_open(project: Project) -> None:
    answer = project.check("--json")

    assert answer.code == 1
    assert ("R4.1", f"{HOLDS} was not run") in answer.findings("courier")
    assert answer.of("courier")["lines"]["proven"] == 0


def test_missing_numbers_are_open(project: Project) -> None:
    project.change("relayer", lambda lines, _: lines.pop("R0.77"))
    project.change("courier", lambda _, defects: defects.pop("D11.7"))

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("relayer") == [("R0.77", "is missing")]
    assert answer.findings("courier") == [("D11.7", "is missing")]
    assert answer.of("relayer")["lines"]["open"] == 1
    assert answer.of("courier")["defects"]["proven"] == 7


def test_unknown_numbers_are_reported(project: Project) -> None:
    def add(lines: Any, defects: Any) -> None:
        lines["R1.1"] = lines["R4.1"]
        lines["R4.60"] = lines["R4.1"]
        defects["D10.1"] = defects["D11.1"]

    project.change("courier", add)

    answer = project.json()

    unknown = "is not in the requirements"
    assert answer.code == 1
    assert answer.findings("courier") == [(n, unknown) for n in ("R1.1", "R4.60", "D10.1")]


def test_duplicate_numbers_are_reported(project: Project) -> None:
    again = '\n[lines."R4.2"]\ncontext = "so"\n'
    project.file("courier").write_text(project.text("courier") + again)

    answer = project.json()

    assert answer.code == 1
    [(_, problem)] = answer.findings("courier")
    assert problem.startswith("docs/systems/courier.toml: ")
    assert "R4.2" in problem
    assert "line" in problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tag": "INFO"}, "unknown field `tag`"),
        ({"says": "something easier"}, "unknown field `says`"),
        ({"differs": " "}, "'differs' is empty: give a reason or remove it"),
        ({"context": " ", "tests": []}, "'context' is empty: give a reason or remove it"),
        ({"context": "because"}, "'context' stands alone: remove it, or 'tests' and 'differs'"),
        ({"context": 3}, "Expected `str`, got `int`"),
        ({"tests": ["test_it_holds"]}, "is not the name of a test: use path.py::name"),
        ({"tests": [HOLDS, HOLDS]}, "names a test twice"),
    ],
    ids=str,
)
def test_malformed_entries_are_reported_with_file_line_and_number(
    project: Project, change: dict[str, Any], problem: str
) -> None:
    project.change("courier", lambda lines, _: lines["R4.3"].update(change))
    at = project.text("courier").splitlines().index('[lines."R4.3"]') + 1

    answer = project.json()

    assert answer.code == 1
    [(_, found)] = answer.findings("courier")
    assert found.startswith(f"docs/systems/courier.toml, line {at}: R4.3: ")
    assert problem in found
    assert answer.of("courier")["lines"]["open"] == 59
    assert answer.findings("relayer") == []


def test_missing_ledgers_are_reported(project: Project) -> None:
    project.file("agents").unlink()

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("agents") == [("", "docs/systems/agents.toml does not exist")]


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
def test_only_lines_that_do_not_bind_may_have_context_instead_of_tests(
    project: Project, package: str, number: str, *, is_enough: bool
) -> None:
    project.set_line(package, number, context="because")

    answer = project.json()

    assert answer.findings(package) == ([] if is_enough else [(number, "needs a test")])
    assert answer.code == (0 if is_enough else 1)


@pytest.mark.parametrize("number", ["R0.1", "R0.22", "R0.70"])
def test_other_lines_need_tests_or_context(project: Project, number: str) -> None:
    project.set_line("relayer", number)

    needed = "needs a test, or context that says why not"
    assert project.json().findings("relayer") == [(number, needed)]


@pytest.mark.parametrize("tests", [{}, {"tests": [HOLDS]}], ids=["no tests", "tests"])
def test_lines_may_differ_with_a_reason(project: Project, tests: dict[str, list[str]]) -> None:
    project.set_line("courier", "R4.3", differs="the document contradicts itself", **tests)
    project.change("courier", lambda _, d: d.update({"D11.1": {"differs": "the same", **tests}}))

    answer = project.json()

    assert (answer.code, answer.findings("courier")) == (0, [])
    verdict = answer.of("courier")
    assert (verdict["lines"]["proven"], verdict["lines"]["differs"]) == (56, 1)
    assert (verdict["defects"]["proven"], verdict["defects"]["differs"]) == (7, 1)


def test_tests_of_lines_that_differ_must_pass(project: Project) -> None:
    failing = f"{PROOF}::test_it_breaks"
    project.set_line("courier", "R4.3", differs="on purpose", tests=[failing])

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("courier") == [("R4.3", f"{failing} failed")]
    assert answer.of("courier")["lines"]["differs"] == 0
    assert answer.of("courier")["lines"]["open"] == 1


def test_defects_need_tests(project: Project) -> None:
    project.change("courier", lambda _, defects: defects["D11.2"].update(tests=[]))

    assert project.json().findings("courier") == [("D11.2", "needs a test")]


@pytest.mark.parametrize(
    ("test", "problem"),
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
def test_lines_are_open_if_a_test_did_not_pass(project: Project, test: str, problem: str) -> None:
    project.prove("R4.3", test)

    answer = project.json()

    assert answer.code == 1
    assert answer.findings("courier") == [("R4.3", f"{test} {problem}")]


def test_all_cases_of_a_test_must_pass(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_has_cases")

    answer = project.json()

    assert answer.code == 1
    failed = f"{PROOF}::test_it_has_cases[no] failed"
    assert answer.findings("courier") == [("R4.3", failed)]


def test_names_may_have_cases_and_groups(project: Project) -> None:
    project.prove("R4.3", f"{PROOF}::test_it_has_cases[a::b [c]]")
    project.prove("R4.4", f"{PROOF}::TestGroup::test_it_is_in_a_group")

    assert project.json().code == 0


def test_tests_that_back_many_lines_are_listed(project: Project) -> None:
    group, case = f"{PROOF}::TestGroup::test_it_is_in_a_group", f"{PROOF}::test_it_has_cases[yes]"
    named = [HOLDS] * 7 + [case] * 6 + [group] * 46
    entries = {f"R4.{n}": {"tests": [test]} for n, test in enumerate(named, 1)}
    project.change("courier", lambda lines, _: lines.update(entries))

    answer = project.check("first.xml")

    assert answer.code == 0
    assert project.json().of("courier")["shared"] == {group: 46, HOLDS: 7}
    listed = [line.split() for line in answer.text.splitlines()]
    assert ["courier", "46", "lines", group] in listed
    assert all(case not in words for words in listed)
    # The other four ledgers of the rig lean on one test each.
    assert "Warning: 6 tests back more than 6 lines of a system each:" in answer.text


def test_tests_in_other_folders_can_be_listed(project: Project) -> None:
    project.prove("R4.3", OWN)
    project.prove("R4.4", f"{PROOF}::test_it_has_cases[yes]")
    project.prove("R4.5", f"{PROOF}::test_it_was_renamed")

    answer = project.check("--elsewhere")

    assert answer.code == 0
    assert answer.text.splitlines() == [f"{PROOF}::test_it_has_cases[yes]", HOLDS]


def test_the_script_reads_the_ledgers_of_this_project(tmp_path: Path) -> None:
    printed = python(ROOT, "docs/systems/check.py", "--json")

    verdicts = {one["package"]: one for one in msgspec.json.decode(printed)}
    assert list(verdicts) == list(PACKAGES)
    wrong = [
        (package, finding["number"], finding["text"])
        for package, verdict in verdicts.items()
        for finding in verdict["findings"]
        if not finding["text"].endswith("was not run")
    ]
    assert wrong == []
