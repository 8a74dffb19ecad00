"""An office on a clock that stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.wiring.engines import open_engine
from office.making import NOW


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def office_clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture(params=["memory", "sqlite"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, office_clock: FakeClock
) -> AsyncIterator[Engine]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/office.db"}
    engine = await open_engine(urls[request.param], clock=office_clock, dice=SeededDice(7))
    yield engine
    await engine.close()


@pytest.fixture
def store(engine: Engine) -> LetterStore:
    assert engine.letters is not None
    return engine.letters
