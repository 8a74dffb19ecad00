"""The requirements of the five systems are complete, and pages show them."""

import importlib
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from docs.ledger_fixtures import SCRIPTS
from docs.ledger_rig import HOLDS, PACKAGES
from docs.reading import ROOT

# How many lines of each document have each tag: none may become less binding.
TAGS = {
    "relayer": "MUST 92, MUST NOT 5, SHOULD 7, MAY/FUTURE 3, FUTURE 1, INFO 6",
    "pipeline": "MUST 41, SHOULD 1, FUTURE 5, INFO 5",
    "leasequeue": "MUST 106, MUST NOT 6, SHOULD 1, INFO 18",
    "agents": "MUST 94, MUST NOT 3, SHOULD 25, MAY 4, INFO 2",
    "courier": "MUST 56, MAY 1, INFO 2",
}
DEFECTS = {"relayer": 3, "pipeline": 6, "leasequeue": 8, "agents": 3, "courier": 8}
INTERNAL = {"relayer": 10, "leasequeue": 3}


@pytest.fixture(scope="module")
def requirements() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("requirements")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the requirements that a test may change."""
    return shutil.copytree(SCRIPTS / "requirements", tmp_path / "requirements")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_line_of_a_document_is_there(requirements: ModuleType, package: str) -> None:
    system = requirements.load_systems()[package]

    counts = Counter(line.tag for line in system.lines.values())
    tags = ("MUST", "MUST NOT", "SHOULD", "MAY", "MAY/FUTURE", "FUTURE", "INFO")
    assert ", ".join(f"{tag} {counts[tag]}" for tag in tags if counts[tag]) == TAGS[package]
    assert sum(line.internal for line in system.lines.values()) == INTERNAL.get(package, 0)
    assert len(system.defects) == DEFECTS[package]


def test_no_two_lines_of_a_document_have_the_same_text(requirements: ModuleType) -> None:
    for system in requirements.load_systems().values():
        counts = Counter(line.text for line in system.lines.values())
        assert [text for text, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"R4.3"', '"R4.60"', "courier.toml: line 3 must be R4.3, got R4.60"),
        ('tag = "MUST"', 'tag = "OUGHT"', "courier.toml: Invalid enum value 'OUGHT'"),
        ("text = ", "says = ", "courier.toml: Object contains unknown field `says`"),
        ("is `gateway-api`.", "is.", None),
        ('text = "The producer is `gateway-api`."', 'text = " "', "needs a text"),
    ],
)
def test_malformed_requirements_are_rejected(
    requirements: ModuleType, folder: Path, old: str, new: str, problem: str | None
) -> None:
    file = folder / "courier.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))

    if problem is None:
        assert requirements.load_systems(folder)["courier"].lines["R4.4"].text.endswith("is.")
    else:
        with pytest.raises(ValueError, match=problem):
            requirements.load_systems(folder)


@pytest.fixture
def tables(requirements: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`docs/ledger_facts.py` on a ledger with a line of each status."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("ledger_facts")
    entries = dict.fromkeys(requirements.load_systems()["courier"].lines, f'tests = ["{HOLDS}"]')
    entries |= {"R4.4": 'differs = "There are two producers."', "R4.58": 'context = "a misprint"'}
    del entries["R4.5"]
    text = "".join(f'[lines."{n}"]\n{entry}\n' for n, entry in entries.items())
    (tmp_path / "courier.toml").write_text(text)
    read = importlib.import_module("ledger").load_ledger
    monkeypatch.setattr(module, "load_ledger", lambda package: read(package, tmp_path))
    return module


def test_pages_show_requirements_status_and_tests(tables: ModuleType) -> None:
    lines = tables.ledger_tables("courier").splitlines()

    summary = "Of 59 lines, 56 are proven, 1 differ and 1 are open; 1 have nothing to prove."
    link = "[`test_it_holds`](../../tests/test_proof.py)"
    assert summary in lines
    assert f"| R4.3 | MUST | BullMQ on Redis transports the messages. | proven | {link} |" in lines
    assert "| R4.4 | MUST | The producer is `gateway-api`. | differs |  |" in lines
    assert "| R4.4 | The producer is `gateway-api`. | There are two producers. |" in lines
    assert "| R4.5 | MUST | The consumer is `gateway-worker`. | open |  |" in lines
    assert any(line.startswith("| R4.58") and "context: a misprint" in line for line in lines)
    assert any(line.startswith("| D11.1 | Events") and "| open |" in line for line in lines)


def test_readme_and_overview_quote_proven_differing_and_open(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = {"courier": tables.load_systems()["courier"]}
    monkeypatch.setattr(tables, "load_systems", lambda: systems)

    readme, overview = tables.numbers_table(), tables.systems_table()

    system = "[Courier](docs/systems/courier.md)"
    assert f"| {system}: signed events" in readme
    assert readme.endswith("| `make example-courier` | 59 | 56 | 1 | 1 |")
    assert "| [Courier](courier.md) | R4.1 to 59 | 56 | 1 | 1 | 1 | 1 |" in overview
    assert overview.endswith("| [Courier](courier.md) | 8 | 0 | 0 | 8 |")


def test_readme_and_overview_have_the_tables() -> None:
    assert "<!-- table: numbers -->" in (ROOT / "README.md").read_text()
    assert "<!-- table: systems -->" in (SCRIPTS / "index.md").read_text()
