"""Rules no linter has: how this code stays readable, pure and safe."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import deadletter

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "deadletter"
MODULES = sorted(SOURCE.rglob("*.py"))
TREES = {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text()) for file in MODULES}
FILES = sorted(
    file
    for folder in ("src", "tests", "bench", "examples")
    for file in (ROOT / folder).rglob("*.py")
)

# Whoever needs time or chance has them handed in. The test kit makes its own, and
# a command, the outermost ring of all, may look at the clock.
OWN_TIME = {
    "testing": "makes time and chance for tests",
    "cli": "is where people are",
    "system.py": "is what is handed in",
    "stores/sqlite/connection.py": "waits for a locked file, compares with the file system's clock",
    "stores/postgresql/database.py": "waits for others in the way, in real time",
    "runtime/isolation_child.py": "is a process of its own, with nobody to hand it in",
}
CLOCKS = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
}
DICE = {"random"}
MAKES_IDS = {"uuid1", "uuid3", "uuid4", "uuid5", "uuid6", "uuid7", "uuid8"}

# Messages are hostile: nothing that could run what is in them is ever imported.
DANGEROUS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}
DANGEROUS_CALLS = {"eval", "exec"}


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What is imported: the module, and the name out of it if there is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.module or "", alias.name) for alias in node.names)


def calls(tree: ast.AST) -> Iterator[str]:
    """What is used by a dotted name of two parts, or called by a plain one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            yield f"{node.value.attr}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def names(tree: ast.AST) -> Iterator[str]:
    """Every function that is defined, and every constant text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def clocks_and_dice(tree: ast.AST) -> set[str]:
    """Every way in which a module asks the system for time or chance."""
    found = CLOCKS & set(calls(tree))
    for module, what in imports(tree):
        if module.partition(".")[0] in DICE:
            found.add(module)
        if f"{module}.{what}" in CLOCKS or (module == "uuid" and what in MAKES_IDS):
            found.add(f"{module}.{what}")
    return found | {call for call in calls(tree) if call.partition(".")[2] in MAKES_IDS}


def dangers(tree: ast.AST) -> set[str]:
    """Every way in which a module could run what it reads."""
    imported = {module.partition(".")[0] for module, _ in imports(tree)}
    return (imported & DANGEROUS) | (set(calls(tree)) & DANGEROUS_CALLS)


def test_files_stay_readable() -> None:
    lines = {name(file): file.read_text().count("\n") for file in FILES}

    # Too long: what are its two halves?
    assert {file: count for file, count in lines.items() if count > 600} == {}


def test_the_rings_hold(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True)

    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize("verb", ["reopen", "discard", "restore"])
def test_a_verb_of_letters_is_written_in_one_place(verb: str) -> None:
    """Routes, commands and both offices are made from the table of verbs."""
    found = {
        module
        for module, tree in TREES.items()
        if module.startswith(("office", "server", "client", "cli")) and verb in names(tree)
    }

    # The second one is the method for programs that select letters by a query.
    assert found == {"office/verbs.py", "client/letters.py"}


def test_there_are_few_public_names() -> None:
    assert 1 <= len(deadletter.__all__) <= 45
    assert len(set(deadletter.__all__)) == len(deadletter.__all__)


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    silent = []
    for public in deadletter.__all__:
        thing = getattr(deadletter, public)
        documented = inspect.isclass(thing) or inspect.isroutine(thing)
        if documented and not (thing.__doc__ or "").strip():
            silent.append(public)

    assert silent == []


def test_time_and_dice_are_handed_in() -> None:
    found = {
        module: wrong
        for module, tree in TREES.items()
        if not module.startswith(tuple(OWN_TIME)) and (wrong := clocks_and_dice(tree))
    }

    assert found == {}


def test_every_exception_to_that_is_still_needed() -> None:
    needed = {
        exception
        for exception in OWN_TIME
        for module, tree in TREES.items()
        if module.startswith(exception) and clocks_and_dice(tree)
    }

    assert needed | {"testing", "cli"} == set(OWN_TIME)


def test_nothing_can_run_what_a_message_says() -> None:
    found = {module: wrong for module, tree in TREES.items() if (wrong := dangers(tree))}

    assert found == {}


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b")
    found = [name(file) for file in MODULES if later.search(file.read_text())]

    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [module for module, tree in TREES.items() if not ast.get_docstring(tree)]

    assert silent == []


def test_no_registry_is_recorded_in_the_locks() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        assert not re.search(r"https?://", lock.read_text()), lock.name


@pytest.mark.parametrize(
    "code",
    [
        "import time\nnow = time.time()",
        "from time import time",
        "from datetime import datetime\nnow = datetime.now()",
        "import datetime\nnow = datetime.datetime.utcnow()",
        "import random",
        "from random import Random",
        "import uuid\nnew = uuid.uuid4()",
        "from uuid import uuid4",
    ],
)
def test_the_rule_of_time_and_dice_has_teeth(code: str) -> None:
    assert clocks_and_dice(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "import time\nsince = time.monotonic()",
        "from uuid import UUID",
        "from datetime import datetime\nwhen = datetime.fromisoformat(text)",
    ],
)
def test_the_rule_of_time_and_dice_lets_the_harmless_pass(code: str) -> None:
    assert not clocks_and_dice(ast.parse(code))


@pytest.mark.parametrize(
    "code", ["import pickle", "from marshal import loads", "import yaml.loader", "eval(text)"]
)
def test_the_rule_of_hostile_messages_has_teeth(code: str) -> None:
    assert dangers(ast.parse(code))
