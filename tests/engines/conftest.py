"""
The servers that the engines are tested on, each started when the first test asks.

Without its server a test is skipped and says what to do; where the variable CI is
set, it fails instead. Each process of a parallel run has servers of its own.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import (
    Kafka,
    KafkaMock,
    Missing,
    MongoDB,
    Nats,
    PostgreSQL,
    RabbitMQ,
    Redis,
    Server,
    Sqs,
)

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents or not isinstance(item, pytest.Function):
            continue
        item.add_marker(pytest.mark.engines)
        # In a parallel run, tests of one server go to one process: it starts once.
        needs = [name for name in item.fixturenames if name.endswith("_server")]
        if needs:
            item.add_marker(pytest.mark.xdist_group(min(needs)))


@pytest.fixture(scope="session")
def started_servers() -> list[Server]:
    return []


@pytest.fixture(autouse=True)
def every_server_is_back_afterwards(started_servers: list[Server]) -> Iterator[None]:
    """A test may leave its server killed; the next one finds it running."""
    yield
    for server in started_servers:
        server.start()


def serve(kind: type[Server], started: list[Server]) -> Iterator[Server]:
    try:
        server = kind()
    except Missing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"{missing} (CI is set: nothing is skipped)")
        pytest.skip(str(missing))
    try:
        server.start()
        started.append(server)
        yield server
        started.remove(server)
    finally:
        server.close()


def server_of(kind: type[Server]) -> Any:
    """A server for the whole session, started when the first test asks."""

    @pytest.fixture(scope="session")
    def server(started_servers: list[Server]) -> Iterator[Server]:
        yield from serve(kind, started_servers)

    return server


postgresql_server = server_of(PostgreSQL)
redis_server = server_of(Redis)
nats_server = server_of(Nats)
mongodb_server = server_of(MongoDB)
sqs_server = server_of(Sqs)
rabbitmq_server = server_of(RabbitMQ)
kafka_server = server_of(Kafka)


@pytest.fixture(scope="session")
def kafka_mock() -> KafkaMock:
    return KafkaMock()
