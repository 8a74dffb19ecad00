"""The servers that dead places are drained from; they are those of the engines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deadletter.backends.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from engines.conftest import (
    every_server_is_back_afterwards,
    kafka_server,
    nats_server,
    rabbitmq_server,
    redis_server,
    sqs_server,
    started_servers,
)

__all__ = [
    "every_server_is_back_afterwards",
    "kafka_server",
    "nats_server",
    "rabbitmq_server",
    "redis_server",
    "sqs_server",
    "started_servers",
]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents or not isinstance(item, pytest.Function):
            continue
        needs = [name for name in item.fixturenames if name.endswith("_server")]
        if needs:
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.xdist_group(min(needs)))


@pytest.fixture
def office() -> Iterator[MemoryEngine]:
    """An office in memory, on the real clock: servers have theirs."""
    return MemoryEngine(clock=SystemClock(), dice=SeededDice())
