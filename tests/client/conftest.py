from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from client.serving import Served, served
from deadletter.client import Client, QueueClient


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(f"sqlite:///{tmp_path}/office.db") as server:
        yield server


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Client]:
    async with Client(server.url) as client:
        yield client


@pytest.fixture
async def queue(server: Served) -> AsyncIterator[QueueClient]:
    async with QueueClient(server.url) as client:
        yield client
