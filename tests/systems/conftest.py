"""The five systems from end to end; all of this needs servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import Server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.systems)


@pytest.fixture(autouse=True)
def every_server_is_back_afterwards(started_servers: list[Server]) -> Iterator[None]:
    """A test may leave its server killed; the next one finds it running."""
    yield
    for server in started_servers:
        server.start()
