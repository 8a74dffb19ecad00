"""Queue servers on every engine that lends, and clients in both forms."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from msgspec import structs

from deadletter.core.events import Event
from deadletter.wiring.engines import open_engine
from engines.postgresql_time import a_database
from queue_server.wire.wire_rig import Served, Wire, generated, served_by
from server.conftest import context_of
from servers.fixtures import needing_postgresql


@pytest.fixture(scope="session")
def messages(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return generated(tmp_path_factory.mktemp("generated"))


@pytest.fixture(params=["memory", "sqlite", needing_postgresql()])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """An empty engine of each kind."""
    if request.param == "memory":
        yield "memory://"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/items.db"
    else:
        server = request.getfixturevalue("postgresql_server")
        async with a_database(server.url) as database:
            yield database


@pytest.fixture
async def served(url: str) -> AsyncIterator[Served]:
    """The real app, on a real port."""
    engine = await open_engine(url)
    try:
        events: list[Event] = []
        context = structs.replace(context_of(engine), observe=events.append)
        async with served_by(context, events) as served:
            yield served
    finally:
        await engine.close()


@pytest.fixture(params=["protobuf", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def wire(served: Served, messages: ModuleType, form: str) -> AsyncIterator[Wire]:
    """A client."""
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0) as http:
        yield Wire(http, messages, form)
