"""Whatever can be sent can be kept, listed, found, exported, imported and replayed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from deadletter.app import App
from office.journey import batches, travel


@pytest.fixture(params=["memory to sqlite", "sqlite to memory"])
async def apps(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[App, App]]:
    urls = ["memory://", f"sqlite:///{tmp_path}/office.db"]
    if request.param.startswith("sqlite"):
        urls.reverse()
    async with App(urls[0]) as here, App(urls[1]) as there:
        yield here, there


@given(batch=batches)
@example(batch={"x" * 8192: {"body": b"", "key": "\0" * 8192}})
@example(batch={"\0": {"body": b"\xff"}, "a\0": {"body": b"", "headers": {"\0": b""}}})
@settings(
    max_examples=60,
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
