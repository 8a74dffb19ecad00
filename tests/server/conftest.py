"""The real application with an office of its own, for all tests of the server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import AsyncTestClient

from deadletter.core.access import Identity, Role
from deadletter.office.office import Office
from deadletter.ports import Engine, Guards, KeepsItems
from deadletter.server.app import build
from deadletter.server.auth.keys import mint
from deadletter.server.context import SearchShares, ServerContext
from deadletter.settings import Settings
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import open_engine
from deadletter.wiring.foreign import Ways


def context_of(
    engine: Engine, *, settings: Settings | None = None, guarded: bool = False
) -> ServerContext:
    """Return the server context of an open engine."""
    clock, dice = SystemClock(), SystemDice()
    assert engine.letters is not None
    return ServerContext(
        engine=engine,
        store=engine.letters,
        office=Office(
            engine,
            clock,
            dice,
            servers=Ways((settings or Settings()).source_urls, clock=clock),
            presume_after=(settings or Settings()).presume_after,
            approve_above=(settings or Settings()).serve.approve_above,
        ),
        items=engine.items if isinstance(engine, KeepsItems) else None,
        access=engine.access if guarded and isinstance(engine, Guards) else None,
        clock=clock,
        dice=dice,
        settings=settings or Settings(),
        searches=SearchShares(clock, share=(settings or Settings()).serve.search_share),
        observe=lambda event: None,
    )


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await open_engine(f"sqlite:///{tmp_path}/office.db")
    yield engine
    await engine.close()


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def context(engine: Engine, settings: Settings) -> ServerContext:
    """A server context with access off."""
    return context_of(engine, settings=settings)


@pytest.fixture
async def api(context: ServerContext) -> AsyncIterator[AsyncTestClient[Litestar]]:
    """A local client, which may do everything."""
    async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
async def guarded(engine: Engine, settings: Settings) -> ServerContext:
    """A server context with access on."""
    context = context_of(engine, settings=settings, guarded=True)
    if context.access is None:
        pytest.fail("the engine keeps no tokens")
    return context


async def token(context: ServerContext, role: Role, *sources: str, name: str = "") -> str:
    """Create a token of this role and return its secret."""
    assert context.access is not None
    to = Identity(name=name or f"{role}-of-the-test", role=role, sources=sources)
    kept, shown = mint(to, at=context.clock.now(), by="test")
    await context.access.add_token(kept)
    return shown
