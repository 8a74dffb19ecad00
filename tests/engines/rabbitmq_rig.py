"""Engines on the test broker that begin without the queues of the test before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from deadletter.brokers.rabbitmq.engine import RabbitEngine, connect
from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery
from deadletter.ports import Clock
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE
from engines.proxy import FaultProxy, fault_proxy
from servers import Server

NAMES = ("orders", "returns", "orders-dead", "dead", "work")


async def emptied(engine: RabbitEngine) -> None:
    """Delete the queues that tests use."""
    for name in NAMES:
        try:
            await engine.broker.delete(name, force=True)
        except NotFound:
            continue


@asynccontextmanager
async def opened(url: str, clock: Clock | None = None) -> AsyncIterator[RabbitEngine]:
    """An engine with nothing in it."""
    engine = await connect(url, clock=clock or FakeClock())
    try:
        await emptied(engine)
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def beside(url: str) -> AsyncIterator[RabbitEngine]:
    """Another engine, which leaves the queues as they are."""
    engine = await connect(url, clock=FakeClock())
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def behind_proxy(
    server: Server, clock: Clock | None = None
) -> AsyncIterator[tuple[RabbitEngine, FaultProxy]]:
    """An engine that can be cut off."""
    async with (
        fault_proxy(urlsplit(server.url).port or 5672) as proxy,
        opened(proxy.through(server.url), clock) as engine,
    ):
        yield engine, proxy


async def usual(engine: RabbitEngine, limit: int, wait: float = 0.0) -> list[Delivery]:
    """What can be had in company."""
    source = engine.broker.source("orders")
    return list(await source.receive(limit=limit, wait=wait, lease=LEASE))


async def alone(engine: RabbitEngine) -> Delivery | None:
    """A suspect, if there is one."""
    source = engine.broker.source("orders")
    found = await source.receive(limit=1, wait=0, lease=LEASE, alone=True)
    return found[0] if found else None
