"""The real app on an office of its own, for all tests of the service."""

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


def place_of(
    engine: Engine, *, settings: Settings | None = None, guarded: bool = False
) -> ServerContext:
    """What the server stands on, over an open engine."""
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
def place(engine: Engine, settings: Settings) -> ServerContext:
    """An open office that asks nobody who they are."""
    return place_of(engine, settings=settings)


@pytest.fixture
async def api(place: ServerContext) -> AsyncIterator[AsyncTestClient[Litestar]]:
    """Somebody on this machine, who may do everything."""
    async with AsyncTestClient(build(place), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
async def guarded(engine: Engine, settings: Settings) -> ServerContext:
    """An open office that asks for tokens."""
    place = place_of(engine, settings=settings, guarded=True)
    if place.access is None:
        pytest.fail("the engine keeps no tokens")
    return place


async def token(place: ServerContext, role: Role, *sources: str, name: str = "") -> str:
    """A token for somebody of this role, as they show it."""
    assert place.access is not None
    to = Identity(name=name or f"{role}-of-the-test", role=role, sources=sources)
    kept, shown = mint(to, at=place.clock.now(), by="test")
    await place.access.add_token(kept)
    return shown
