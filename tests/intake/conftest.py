"""The servers that dead places are drained from; they are those of the engines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from engines.conftest import every_server_is_back_afterwards

__all__ = ["every_server_is_back_afterwards"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and isinstance(item, pytest.Function):
            needs = [name for name in item.fixturenames if name.endswith("_server")]
            if needs:
                item.add_marker(pytest.mark.engines)


@pytest.fixture
def office() -> Iterator[MemoryEngine]:
    """An office in memory, on the real clock: servers have theirs."""
    return MemoryEngine(clock=SystemClock(), dice=SeededDice())
