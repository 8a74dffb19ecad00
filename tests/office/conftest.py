from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deadletter.office.replay import Replay
from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.wiring.engines import open_engine
from office.making import NOW


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def dice() -> SeededDice:
    return SeededDice(7)


@pytest.fixture(params=["memory", "sqlite"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, dice: SeededDice
) -> AsyncIterator[Engine]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/office.db"}
    engine = await open_engine(urls[request.param], clock=clock, dice=dice)
    yield engine
    await engine.close()


@pytest.fixture
def store(engine: Engine) -> LetterStore:
    assert engine.letters is not None
    return engine.letters


@pytest.fixture(params=["in one", "step by step"])
def replay(
    request: pytest.FixtureRequest,
    engine: Engine,
    store: LetterStore,
    clock: FakeClock,
    dice: SeededDice,
) -> Replay:
    atomic_replay = engine.atomic_replay if request.param == "in one" else None
    return Replay(store, engine.broker, clock, dice, engine.ledger, atomic_replay=atomic_replay)
