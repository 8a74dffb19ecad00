"""Where a server's items and tokens are kept, engine by engine."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deadletter.core.errors import ConfigError
from deadletter.ports import Engine, Guards, KeepsItems
from deadletter.settings import Access, Serve, Settings
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring import serving
from deadletter.wiring.engines import Paired, open_engine
from deadletter.wiring.serving import OpenEngine, serving_engine

TIME_AND_CHANCE: Any = {"clock": SystemClock(), "dice": SystemDice()}


@pytest.fixture
async def whole() -> AsyncIterator[Any]:
    """An engine that keeps everything."""
    engine = await open_engine("memory://")
    yield engine
    await engine.close()


def bare(engine: Any, **more: Any) -> Any:
    """The same without items and tokens, as MongoDB is; or with some of it."""
    ports = ("features", "broker", "letters", "ledger", "atomic_burial", "atomic_replay")
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    return SimpleNamespace(
        **{name: getattr(engine, name) for name in ports}, close=close, closed=closed, **more
    )


def databases(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("*.db")]


async def stood_on(settings: Settings) -> OpenEngine:
    async with serving_engine(settings, **TIME_AND_CHANCE) as ground:
        return ground


async def test_an_engine_that_keeps_everything_is_enough(tmp_path: Path) -> None:
    ground = await stood_on(Settings(url=f"sqlite:///{tmp_path}/office.db"))

    assert isinstance(ground.engine, KeepsItems)
    assert ground.items is ground.engine.items
    assert isinstance(ground.engine, Guards)
    assert ground.access is ground.engine.access
    assert databases(tmp_path) == ["office.db"]


async def test_without_access_no_tokens_are_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/office.db"

    ground = await stood_on(Settings(url=url, serve=Serve(access="off")))

    assert ground.access is None


async def test_an_office_without_tokens_has_them_in_a_file(
    tmp_path: Path, whole: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = bare(whole)

    async def opening(url: str, **more: Any) -> Any:
        return office if url == "mongodb://x" else await open_engine(url, **more)

    monkeypatch.setattr(serving, "open_engine", opening)
    file = tmp_path / "access.db"
    settings = Settings(url="mongodb://x", access=Access(store=f"sqlite:///{file}"))

    async with serving_engine(settings, **TIME_AND_CHANCE) as ground:
        assert ground.items is None
        assert ground.access is not None
        assert await ground.access.tokens() == []
        assert file.exists()
    assert office.closed == [True]


async def test_a_store_that_cannot_keep_tokens_is_refused_and_all_is_closed(
    whole: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    office, beside = bare(whole), bare(whole)

    async def opening(url: str, **more: Any) -> Any:
        return office if url == "mongodb://x" else beside

    monkeypatch.setattr(serving, "open_engine", opening)
    settings = Settings(url="mongodb://x", access=Access(store="mongodb://me:hunter2@x/y"))

    with pytest.raises(ConfigError, match="cannot store tokens") as refused:
        await stood_on(settings)
    assert "hunter2" not in str(refused.value)
    assert office.closed == beside.closed == [True]


async def test_of_two_engines_the_one_that_can_keeps_items_and_tokens(whole: Any) -> None:
    paired: Any = Paired(bare(whole), whole)

    assert isinstance(paired, KeepsItems)
    assert isinstance(paired, Guards)
    assert paired.items is whole.items
    assert paired.access is whole.access


async def test_of_two_that_can_items_are_with_messages_and_tokens_with_letters(whole: Any) -> None:
    queue = bare(whole, items=object(), access=object())

    paired: Any = Paired(queue, whole)

    assert paired.items is queue.items
    assert paired.access is whole.access


async def test_of_two_that_cannot_nobody_does(whole: Any) -> None:
    paired: Any = Paired(bare(whole), bare(whole))

    assert not isinstance(paired, KeepsItems)
    assert not isinstance(paired, Guards)
