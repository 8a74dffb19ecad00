"""The documentation is followed to the letter, and leads where it says."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import deadletter
from deadletter.cli.app import NAMES
from deadletter.core import errors, events
from deadletter.settings import Settings
from docs.reading import (
    BACKENDS,
    MORE_PAGES,
    PAGES,
    ROOT,
    anchors,
    blocks,
    commands,
    headings,
    links,
)

SOURCE = Path(deadletter.__file__).parent
GENERATED = {"cli.md"}  # as long as there are commands
# Set by us for processes of ours, by Kubernetes, or for a profile (profiles.md).
ELSEWHERE = {
    "DLQ_LISTENER_FD",
    "DLQ_PLACE",
    "DLQ_POLL_INTERVAL_MS",
    "DLQ_PROGRESS_FD",
    "DLQ_SERVICE_HOST",
    "DLQ_SERVICE_PORT",
    "DLQ_SUPERVISOR_FD",
    "DLQ_TTL_DAYS",
}
# Lines of a page that somebody should want to read. Prose is wrapped at 120 columns.
LONGEST = 300


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed_to_the_letter(page: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DLQ_")}
    environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE.parent), str(ROOT / "tests")])

    followed = subprocess.run(
        [sys.executable, "-m", "docs.page", str(page)],
        env=environ,
        cwd=ROOT / "tests",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert followed.returncode == 0, followed.stderr[-2000:]


@pytest.mark.parametrize(
    "page", [*PAGES, *MORE_PAGES], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in links(page.read_text()) if not _leads(page, link)]

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_enough_to_be_read(page: Path) -> None:
    lines = page.read_text().count("\n")

    assert lines <= LONGEST or page.name in GENERATED


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    named = re.findall(r"`([\w./-]+/(?:[\w-]+\.\w+)?)`", text)
    places = (ROOT, SOURCE)

    missing = [n for n in named if not any((place / n).exists() for place in places)]

    assert named
    assert missing == []


def test_every_page_can_be_reached_from_the_index() -> None:
    index = set(links((ROOT / "docs" / "index.md").read_text()))

    missing = {
        str(page.relative_to(ROOT / "docs")) for page in PAGES if page.name != "README.md"
    } - index

    assert missing <= {"index.md"}


def test_every_engine_has_a_page() -> None:
    engines = {
        file.parent.name
        for ring in ("stores", "brokers")
        for file in SOURCE.glob(f"{ring}/[a-z]*/__init__.py")
    }

    assert engines - {page.stem for page in BACKENDS} == {"memory", "amqp", "redis_common"}


@pytest.mark.parametrize("page", BACKENDS, ids=lambda page: page.stem)
def test_pages_of_engines_are_alike(page: Path) -> None:
    asked = ["What it promises", "Set-up", "Tuning", "Limits"]

    told = [heading for heading in headings(page.read_text()) if heading in asked]

    assert told == asked


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_shown_by_example(name: str) -> None:
    # The reference has them all; somebody should also have used each once.
    shown = "\n".join(p.read_text() for p in PAGES if p.name not in GENERATED)

    assert re.search(rf"dlq (--\S+ )?{name}\b", shown)


def test_every_setting_event_and_error_is_mentioned() -> None:
    told = "\n".join(page.read_text() for page in PAGES)
    names = [kind.__name__ for kind in get_args(events.AnyEvent)]
    names += [kind.__struct_config__.tag for kind in get_args(events.AnyEvent)]
    names += [n for n, kind in vars(errors).items() if _is_error(kind)]
    names += _settings(Settings)

    assert [name for name in names if f"`{name}" not in told] == []


def test_every_variable_that_is_read_is_told_where_settings_are() -> None:
    read = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r"\bDLQ_[A-Z_]+[A-Z]\b", file.read_text())
    }
    told = (ROOT / "docs" / "settings.md").read_text()

    assert {"DLQ_SERVER", "DLQ_TOKEN_FILE"} <= read
    assert sorted(name for name in read - ELSEWHERE if f"`{name}`" not in told) == []


def test_extras_that_are_named_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"'(?:deadletter|\.)\[([\w,]+)\]'", told))
    extras = {extra for several in named for extra in several.split(",")}

    assert "pip install ." in (ROOT / "README.md").read_text()
    assert extras - set(project["optional-dependencies"]) == set()
    assert {page.stem for page in BACKENDS} - extras == {"sqlite"}


def test_the_public_names_are_the_ones_the_pages_import() -> None:
    imported: set[str] = set()
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.language == "python":
                imported |= _imported_from_deadletter(block.text)

    assert imported - set(deadletter.__all__) == set()


def test_troubleshooting_quotes_what_is_really_said() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quotes = re.findall(r"(?m)^> (.*)$", page)
    said = list(_sentences())

    invented = [quote for quote in quotes if not _is_said(quote, said)]

    assert len(quotes) > 10
    assert invented == []


def test_the_example_of_a_transcript_is_not_just_skipped() -> None:
    # The check itself must be able to fail: a page without commands proves nothing.
    quickstart = (ROOT / "docs" / "quickstart.md").read_text()
    typed = [
        command
        for block in blocks(quickstart)
        if block.language == "console"
        for command in commands(block.text)
    ]

    assert len(typed) > 10
    assert sum(bool(command.shown) for command in typed) > 8


def _leads(page: Path, link: str) -> bool:
    place, _, anchor = link.partition("#")
    if place.startswith(("http://", "https://")):
        return True
    target = (page.parent / place).resolve() if place else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target.read_text())


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, errors.DeadLetterError | errors.Signal)


def _settings(kind: type[msgspec.Struct], under: str = "") -> list[str]:
    keys: list[str] = []
    for field in msgspec.structs.fields(kind):
        key = f"{under}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            keys += _settings(field.type, f"{key}.")
        else:
            keys += [key, "DLQ_" + key.replace(".", "_").upper()]
    return keys


def _imported_from_deadletter(code: str) -> set[str]:
    return {
        alias.name
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module == "deadletter"
        for alias in node.names
    }


def _sentences() -> Iterator[str]:
    """Every text in the source; what is filled in later is an ellipsis."""
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                )


def _is_said(quote: str, said: list[str]) -> bool:
    parts = (part.strip(" :;,.?") for part in quote.split("…"))
    return all(any(part in sentence for sentence in said) for part in parts)


def test_the_table_of_systems_names_tests_that_exist() -> None:
    rows = list(_table(ROOT / "docs" / "recipes" / "tested.md"))
    wrong = []
    for system, *cells in rows:
        [file] = re.findall(r"`(test_\w+\.py)`", system)
        before: list[str] = []
        for cell in cells:
            before = re.findall(r"`((?:test_\w+\.py::)?test_\w+)`", cell) or before
            is_named = "`test_" in cell or "the same test" in cell
            if not is_named and not cell.startswith("not possible: "):
                wrong.append(f"{system}: {cell!r} names no test")
            named = before if is_named else ()
            wrong += [f"{system}: no {one}" for one in named if not _is_test(file, one)]

    assert wrong == []
    assert {len(row) for row in rows} == {6}
    systems = " ".join(row[0] for row in rows)
    names = ("Celery", "RQ", "Dramatiq", "BullMQ", "RabbitMQ", "Kafka", "SQS", "NATS")
    assert [name for name in names if name not in systems] == []


def _table(page: Path) -> Iterator[list[str]]:
    """The rows of a page's table, without its head."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def _is_test(file: str, name: str) -> bool:
    file, _, name = name.rpartition("::") if "::" in name else (file, "", name)
    path = ROOT / "tests" / "interop" / file
    return path.exists() and f"def {name}(" in path.read_text()
