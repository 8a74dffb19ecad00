"""One server of each storage for the whole folder; queues of its own for each test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engines.postgresql_time import a_database
from servers import Missing, golang
from servers import Server as Database
from servers.fixtures import do_without, needing_postgresql
from systems.leasequeue.rig import Queues, Server, client_of, serving

MEMORY, SQLITE, POSTGRESQL = "memory", "sqlite", needing_postgresql()


@contextmanager
def _database(server: Database) -> Iterator[str]:
    """An empty database of PostgreSQL, for tests of several event loops."""
    opening = a_database(server.url)
    with asyncio.Runner() as runner:
        yield runner.run(opening.__aenter__())
        runner.run(opening.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def go() -> Path:
    """The command `go`; without it the test is skipped."""
    try:
        return golang.find()
    except Missing as missing:
        do_without(missing)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("leasequeue")


@pytest.fixture(scope="session")
def server_on_memory(place: Path) -> Iterator[Server]:
    with serving("memory://", place / "memory.log") as server:
        yield server


@pytest.fixture(scope="session")
def server_on_sqlite(place: Path) -> Iterator[Server]:
    with serving(f"sqlite:///{place}/items.db", place / "sqlite.log") as server:
        yield server


@pytest.fixture(scope="session")
def server_on_postgresql(place: Path, postgresql_server: Any) -> Iterator[Server]:
    with _database(postgresql_server) as url, serving(url, place / "postgresql.log") as server:
        yield server


@pytest.fixture(params=[MEMORY, SQLITE, POSTGRESQL])
def server(request: pytest.FixtureRequest) -> Server:
    """Whatever items are kept in, a server that lends them."""
    server: Server = request.getfixturevalue(f"server_on_{request.param}")
    return server


@pytest.fixture
async def queues(server: Server) -> AsyncIterator[Queues]:
    async with client_of(server.address) as client:
        yield Queues(client)


@pytest.fixture(params=[SQLITE, POSTGRESQL])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store that outlives its servers."""
    if request.param == SQLITE:
        yield f"sqlite:///{tmp_path}/items.db"
    else:
        with _database(request.getfixturevalue("postgresql_server")) as url:
            yield url


@pytest.fixture
def victim(stored: str, tmp_path: Path) -> Iterator[Server]:
    """A server of one's own, to be started and killed."""
    server = Server(stored, tmp_path / "victim.log")
    yield server
    server.kill()


@pytest.fixture
async def doomed(victim: Server) -> AsyncIterator[Queues]:
    """Queues on the server that is killed; what fails is not asked again."""
    async with client_of(victim.address, attempts=1) as client:
        yield Queues(client)
