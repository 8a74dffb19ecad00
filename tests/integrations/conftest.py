"""The servers that task queues work with; they are those of the engines."""

from pathlib import Path

import pytest

from engines.conftest import every_server_is_back_afterwards

__all__ = ["every_server_is_back_afterwards"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and {"redis_server", "rabbitmq_server"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.engines)
