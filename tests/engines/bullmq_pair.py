"""A queue that the real BullMQ and ours share: fixtures, and short words."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from deadletter.brokers.bullmq.engine import BullEngine, connect
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Released
from engines.bullmq_rig import fresh
from servers import Server
from servers.node import Node, connection

QUEUE = "mail"
LEASE = 30.0


@pytest.fixture
def url(redis_server: Server, node: Node) -> str:
    return fresh(redis_server.url)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[BullEngine]:
    engine = await connect(url)
    yield engine
    await engine.close()


@pytest.fixture
def told(url: str) -> dict[str, Any]:
    """What every script is told."""
    return {**connection(url), "queue": QUEUE}


async def received(engine: BullEngine, count: int, **how: Any) -> list[Delivery]:
    """So many deliveries; what is delayed or comes later is waited for."""
    source = engine.broker.source(QUEUE)
    found: list[Delivery] = []
    while len(found) < count:
        asked = {"limit": count, "wait": 10.0, "lease": LEASE, **how}
        batch = await source.receive(**asked)
        assert batch, f"only {len(found)} of {count} came"
        found += batch
    return found


async def settled(engine: BullEngine, *settlements: Acked | Released) -> None:
    assert all(await engine.broker.source(QUEUE).settle(settlements))


async def seen(node: Node, told: dict[str, Any], *ids: str) -> dict[str, Any]:
    return await node.run("look", **told, ids=ids)
