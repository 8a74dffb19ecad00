"""
The plugin for pytest: fixtures that test the App that the setting `dlq_app` names.

    [tool.pytest.ini_options]
    dlq_app = "shop:app"

Nothing of deadletter is imported before a test asks for a fixture.
"""

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .app import App
    from .harness import AppTest, SyncAppTest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting."""
    parser.addini("dlq_app", "the App that the fixtures dlq and async_dlq test, as module:name")


def pytest_configure(config: pytest.Config) -> None:
    """Add the fixture for tests that await, if pytest-asyncio is there to run it."""
    if config.pluginmanager.hasplugin("asyncio"):
        config.pluginmanager.register(_async_fixtures(), "deadletter-asyncio")


@pytest.fixture
def dlq(pytestconfig: pytest.Config) -> "Iterator[SyncAppTest]":
    """Test the App of the setting `dlq_app`: `with app.testing() as dlq`."""
    with _app(pytestconfig).testing() as test:
        yield test


def _async_fixtures() -> object:
    fixture = import_module("pytest_asyncio").fixture

    class AsyncFixtures:
        @fixture  # type: ignore[untyped-decorator]
        async def async_dlq(self, pytestconfig: pytest.Config) -> "AsyncIterator[AppTest]":
            """Test the App of the setting `dlq_app`: `async with app.testing() as async_dlq`."""
            async with _app(pytestconfig).testing() as test:
                yield test

    return AsyncFixtures()


def _app(config: pytest.Config) -> "App":
    from .loading import load_app  # noqa: PLC0415 -- it costs nothing when unused

    name = config.getini("dlq_app")
    if not name:
        raise pytest.UsageError(
            'the fixture needs the setting dlq_app: write dlq_app = "shop:app" under'
            " [tool.pytest.ini_options] in pyproject.toml, or use app.testing() in the test"
        )
    return load_app(str(name))
