"""A replica takes over under load: nothing that it had is lost, nothing is doubled."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import redis.asyncio as client

from deadletter.brokers.redis.engine import RedisEngine, connect
from deadletter.ports import Acked, Fate
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message, info
from engines.patience import insist
from engines.proxy import FaultProxy, fault_proxy
from engines.redis_rig import Tuned, tuned
from servers.common import HOST, PASSWORD

SENT = 200


@contextmanager
def a_pair() -> Iterator[tuple[Tuned, Tuned]]:
    """A primary and the replica that may take its place."""
    with (
        tuned("--masterauth", PASSWORD) as primary,
        tuned(*("--masterauth", PASSWORD, "--replicaof", HOST, str(primary.port))) as replica,
    ):
        yield primary, replica


async def command(server: Tuned, *words: str | int) -> Any:
    async with client.from_url(server.url) as connection:
        return await connection.execute_command(*words)


async def is_following(replica: Tuned) -> bool:
    return "'master_link_status': 'up'" in str(await command(replica, "INFO", "replication"))


async def leads(server: Tuned) -> bool:
    return "master" in str((await command(server, "ROLE"))[0])


class Load:
    """Some who send and some who work, who never give up."""

    def __init__(self, engine: RedisEngine) -> None:
        self.sent: set[str] = set()
        self.handled: Counter[str] = Counter()
        self._engine = engine
        self._done = asyncio.Event()

    async def produce(self) -> None:
        sink = self._engine.broker.sink("orders")
        for _ in range(SENT // 5):
            messages = [a_message() for _ in range(5)]
            await insist(lambda m=messages: sink.send(m))
            self.sent.update(message.id for message in messages)

    async def consume(self) -> None:
        source = self._engine.broker.source("orders")
        while not self._done.is_set():
            found = await insist(lambda: source.receive(limit=7, wait=0.2, lease=5))
            batch = [Acked(delivery) for delivery in found]
            answers = await insist(lambda b=batch: source.settle(b))
            self.handled.update(
                settled.delivery.message.id
                for settled, ours in zip(batch, answers, strict=True)
                if ours
            )

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """As long as the block lasts, and then until all that was sent is handled."""
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self.consume()) for _ in range(3)]
            producers = [group.create_task(self.produce()) for _ in range(2)]
            yield
            await asyncio.wait(producers)
            await eventually(lambda: self.handled.keys() >= self.sent, within=60)
            self._done.set()
            await asyncio.wait(workers)


@pytest.fixture
async def stage() -> AsyncIterator[tuple[Tuned, Tuned, FaultProxy, RedisEngine]]:
    with a_pair() as (primary, replica):
        await eventually(lambda: is_following(replica), within=20)
        async with fault_proxy(primary.port) as proxy:
            engine = await connect(proxy.through(primary.url))
            yield primary, replica, proxy, engine
            await engine.close()


async def test_an_orderly_failover_loses_and_doubles_nothing(
    stage: tuple[Tuned, Tuned, FaultProxy, RedisEngine],
) -> None:
    primary, replica, proxy, engine = stage
    load = Load(engine)

    async with load.under_way():
        await eventually(lambda: len(load.handled) > SENT // 4)
        await command(primary, "FAILOVER")
        await eventually(lambda: leads(replica), within=20)
        await asyncio.sleep(0.1)  # for a while we ask who only replicates by now
        proxy.turn_to(replica.port)

    assert load.handled == Counter(load.sent)
    counts = await info(engine.broker)
    assert counts.tally == {"sent": 2 * SENT, Fate.HANDLED: 2 * SENT}
    assert (counts.ready, counts.claimed, counts.suspects) == (0, 0, 0)


async def test_replicated_messages_survive_the_loss_of_the_primary(
    stage: tuple[Tuned, Tuned, FaultProxy, RedisEngine],
) -> None:
    primary, replica, proxy, engine = stage
    load = Load(engine)
    await load.produce()
    source = engine.broker.source("orders")
    held = await source.receive(limit=50, wait=0, lease=1.0)
    await command(primary, "WAIT", 1, 10_000)

    await asyncio.to_thread(primary.kill)
    await command(replica, "REPLICAOF", "NO", "ONE")
    proxy.turn_to(replica.port)

    ours = await insist(lambda: source.extend(held, lease=60))
    assert ours == [True] * 50  # whoever held them still does
    assert await insist(lambda: source.settle([Acked(one) for one in held]))
    load.handled.update(one.message.id for one in held)
    load.sent |= {one.message.id for one in held}
    async with load.under_way():
        pass

    assert load.handled == Counter(load.sent)
