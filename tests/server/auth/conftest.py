"""The real application with access on and a clock that can be set."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import AsyncTestClient
from msgspec.structs import replace

from deadletter.core.access import Role
from deadletter.core.letter import AuditEntry
from deadletter.ports import AccessStore, Engine
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.wiring.engines import open_engine
from server.conftest import context_of, token

Client = AsyncTestClient[Litestar]

SESSION = "/api/v1/session"
TOKENS = "/api/v1/tokens"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/office.db"


@pytest.fixture
async def engine(url: str, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = await open_engine(url, clock=clock, dice=SeededDice())
    yield engine
    await engine.close()


@pytest.fixture
def guarded(engine: Engine, settings: Settings, clock: FakeClock) -> ServerContext:
    """A server context with access on."""
    return replace(context_of(engine, settings=settings, guarded=True), clock=clock)


@pytest.fixture
def access(guarded: ServerContext) -> AccessStore:
    assert guarded.access is not None
    return guarded.access


@pytest.fixture
async def visitor(guarded: ServerContext) -> AsyncIterator[Client]:
    """A client without a token or session."""
    async with visiting(guarded) as client:
        yield client


@pytest.fixture
async def admin(guarded: ServerContext) -> str:
    """The token of an administrator."""
    return await token(guarded, Role.ADMIN, name="root")


@asynccontextmanager
async def visiting(
    context: ServerContext, base: str = "http://dlq.example"
) -> AsyncIterator[Client]:
    """Open a client of a new application."""
    async with AsyncTestClient(build(context), base_url=base) as client:
        yield client


def bearer(shown: str) -> dict[str, str]:
    """Return the header with a token."""
    return {"Authorization": f"Bearer {shown}"}


async def sign_in(client: Client, shown: str) -> dict[str, str]:
    """Sign in and return the headers that changes need."""
    answer = await client.post(SESSION, json={"token": shown})
    assert answer.status_code == 201, answer.text
    return {"X-CSRF-Token": answer.json()["csrf"]}


async def acts(context: ServerContext) -> list[AuditEntry]:
    """Return all entries of the audit."""
    return list(await context.store.audit(limit=1000))
