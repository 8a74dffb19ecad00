"""
The servers as fixtures, each started when the first test asks; a plugin of pytest.

Without its server a test is skipped and says what to do; where the variable CI is
set, it fails instead. Each process of a parallel run has servers of its own, one of a
kind, whichever folder asks.
"""

import os
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from . import (
    Consul,
    Kafka,
    Missing,
    MongoDB,
    Nats,
    OpenId,
    PostgreSQL,
    RabbitMQ,
    Redis,
    Server,
    Sqs,
)
from .node import Node


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadgroup":
        return None
    from .scheduling import ByServer

    config.option.loadscopereorder = False  # many tests are not always long ones
    return ByServer(config, log)


def needing(kind: str) -> Any:
    """The name of a server as a parameter, for tests that ask for it by and by."""
    marks = [pytest.mark.engines, pytest.mark.xdist_group(f"{kind}_server")]
    return pytest.param(kind, marks=marks)


def needing_postgresql() -> Any:
    """The parameter `postgresql`, for tests that ask for its server by and by."""
    return needing("postgresql")


def needing_mongodb() -> Any:
    """The parameter `mongodb`, for tests that ask for its server by and by."""
    return needing("mongodb")


@pytest.fixture(scope="session")
def started_servers() -> list[Server]:
    return []


def do_without(missing: Missing) -> NoReturn:
    """Skip a test whose server is not here, or fail it where nothing may be missing."""
    if os.environ.get("CI"):
        pytest.fail(f"{missing} (CI is set: nothing is skipped)")
    pytest.skip(str(missing))


def serve(kind: type[Server], started: list[Server]) -> Iterator[Server]:
    try:
        server = kind()
    except Missing as missing:
        do_without(missing)
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


@pytest.fixture(scope="session")
def node() -> Node:
    """Node with the real BullMQ."""
    try:
        return Node()
    except Missing as missing:
        do_without(missing)


postgresql_server = server_of(PostgreSQL)
redis_server = server_of(Redis)
nats_server = server_of(Nats)
mongodb_server = server_of(MongoDB)
sqs_server = server_of(Sqs)
rabbitmq_server = server_of(RabbitMQ)
kafka_server = server_of(Kafka)
consul_server = server_of(Consul)
openid_server = server_of(OpenId)
