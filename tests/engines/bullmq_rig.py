"""Queues of BullMQ on the test server, each test with its own prefix."""

from deadletter.brokers.bullmq.engine import BullEngine, connect
from deadletter.kit import micros
from deadletter.testing.fakes import FakeClock
from engines import redis_rig


def fresh(url: str) -> str:
    """The URL of a server, for queues of BullMQ behind a prefix nobody has used."""
    return redis_rig.fresh(url).replace("redis://", "bullmq://", 1)


async def on_clock(url: str, clock: FakeClock) -> BullEngine:
    """The engine, on the test's clock instead of the server's."""
    return await connect(url, now=lambda: micros(clock.now()))
