"""What the plan asks of these tests themselves."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from systems.leasequeue.rig import HERE

PUBLIC = {
    "deadletter",
    "deadletter.client",
    "deadletter.core.errors",
    "deadletter.queue_server.model",
    "deadletter.testing.fakes",
}
SHARED = (
    "test_source_id.py",
    "test_validation.py",
    "test_movement.py",
    "test_max_attempts.py",
    "test_changes.py",
    "test_fair_shares.py",
)
STORAGES = {"memory", "sqlite", "postgresql"}


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_every_test_asks_the_public_client_and_never_the_storage() -> None:
    files = set(HERE.glob("*.py")) - {HERE / "dying_server.py"}  # which is a server
    assert len(files) > len(SHARED)

    for file in files:
        ours = {name for name in _imported(file) if name.startswith("deadletter")}
        assert ours <= PUBLIC, file.name


def test_every_behaviour_is_shown_on_every_storage() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *SHARED],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    by_test: dict[str, set[str]] = defaultdict(set)
    for line in found.stdout.splitlines():
        test, is_test, case = line.rstrip("]").partition("[")
        if is_test and "::" in test:
            by_test[test] |= set(case.split("-"))

    assert len(by_test) > 30
    for test, cases in by_test.items():
        assert cases >= STORAGES, test
