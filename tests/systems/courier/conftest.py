"""A rig for each test: queues of its own, and an office that is empty."""

from collections.abc import AsyncIterator

import pytest

from engines.bullmq_rig import fresh
from engines.mongodb_rig import emptied
from servers import Server
from systems.courier.rig import Rig, rigged


@pytest.fixture
def environ() -> dict[str, str]:
    """What a test sets differently."""
    return {}


@pytest.fixture
async def rig(
    redis_server: Server, mongodb_server: Server, environ: dict[str, str]
) -> AsyncIterator[Rig]:
    mongodb = await emptied(mongodb_server.url)
    async with rigged(fresh(redis_server.url), mongodb, **environ) as rig:
        yield rig
