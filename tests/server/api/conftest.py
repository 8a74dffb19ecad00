"""Callers of every role, for one office with access on."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from litestar import Litestar
from litestar.testing import AsyncTestClient

from deadletter.core.access import Role
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import Serve, Settings
from server.conftest import token

Api = AsyncTestClient[Litestar]
Caller = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
async def guarded_api(guarded: ServerContext) -> AsyncIterator[Api]:
    """A client of a server with access on."""
    async with AsyncTestClient(build(guarded), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def caller(guarded: ServerContext) -> Caller:
    """Return a function that returns the headers of a role, limited to sources."""

    async def headers(role: Role, *sources: str, name: str = "") -> dict[str, str]:
        shown = await token(guarded, role, *sources, name=name)
        return {"authorization": f"Bearer {shown}"}

    return headers


@pytest.fixture
def settings() -> Settings:
    """Without the console: these tests ask the API, and start twice as fast."""
    return Settings(serve=Serve(console="off"))
