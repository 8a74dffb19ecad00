"""Whatever can be sent comes through the offices that need a server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from deadletter.app import App
from engines import mongodb_rig
from engines.postgresql_time import a_database
from office.journey import batches, travel
from servers import Server


@pytest.fixture(params=["postgresql to mongodb", "mongodb to postgresql"])
async def apps(
    request: pytest.FixtureRequest, postgresql_server: Server, mongodb_server: Server
) -> AsyncIterator[tuple[App, App]]:
    async with (
        a_database(postgresql_server.url) as postgresql,
        mongodb_rig.a_database(mongodb_server.url) as mongodb,
        App(postgresql) as one,
        App("memory://", office=mongodb) as other,
    ):
        yield (one, other) if request.param.startswith("postgresql") else (other, one)


@given(batch=batches)
@example(batch={"x" * 8192: {"body": b"", "key": "\0" * 8192}})
@example(batch={"\0": {"body": b"\xff"}, "a\0": {"body": b"", "headers": {"\0": b""}}})
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # each example has its own mailbox
        HealthCheck.too_slow,
    ],
)
async def test_any_message_comes_through_every_step(
    apps: tuple[App, App], batch: dict[str, dict[str, Any]]
) -> None:
    await travel(*apps, batch)
