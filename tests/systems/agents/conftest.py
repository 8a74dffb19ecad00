"""Fixtures: mailboxes in memory and on a real Redis server, and in memory with a fake clock."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadletter.testing.fakes import FakeClock
from engines.redis_rig import fresh
from systems.agents.rig import Rig

ON_REDIS = pytest.param("redis", marks=pytest.mark.xdist_group("redis_server"))


@pytest.fixture(params=["memory", ON_REDIS])
def rig(request: Any, tmp_path: Path) -> Iterator[Rig]:
    """Return a rig on every engine, in real time."""
    if request.param == "memory":
        yield from closed(Rig("memory://"))
    else:
        url = fresh(request.getfixturevalue("redis_server").url)
        yield from closed(Rig(url, office=f"sqlite:///{tmp_path}/office.db"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def timed(clock: FakeClock) -> Iterator[Rig]:
    """Return a rig in memory, with a fake clock."""
    yield from closed(Rig("memory://", clock=clock))


def closed(rig: Rig) -> Iterator[Rig]:
    try:
        yield rig
    finally:
        rig.backend.close()
