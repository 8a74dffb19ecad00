"""Every item produced is completed or dead, exactly once, whoever consumes it."""

import asyncio
import random
from collections import Counter

import pytest

from deadletter.queue_server.model import LeaseQueue
from queue_server.wire.wire_rig import Said, Served, Wire

pytestmark = pytest.mark.slow

COUNT, CONSUMERS, RETRIED = 120, 4, 0.4
SEED = 20261116


@pytest.fixture(params=["protobuf"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Crowd:
    """Consumers that complete, give back and abandon, and note what became of what."""

    def __init__(self, wire: Wire) -> None:
        self.done: Counter[str] = Counter()  # completed, as the server confirmed
        self.dead: Counter[str] = Counter()
        self.resurrected: list[str] = []
        self._wire = wire
        self._draw = random.Random(SEED)

    @property
    def is_over(self) -> bool:
        return self.done.total() + self.dead.total() >= COUNT

    async def produce(self) -> None:
        numbers = list(range(COUNT))
        while numbers:
            size = self._draw.randint(1, 9)
            await self._wire.produce(*map(str, numbers[:size]))
            del numbers[:size]

    async def consume(self, name: str) -> None:
        while not self.is_over:
            known = set(self.done) | set(self.dead)
            for item in await self._lease("jobs", 5, name):
                if item["bytes"] in known:
                    self.resurrected.append(item["bytes"])
                chance = self._draw.random()
                if chance < RETRIED:
                    await self._wire.retry(item, dead=chance < RETRIED / 10)
                elif chance > 0.95:
                    continue  # abandoned: its lease runs out
                else:
                    await self._wire.complete(item)
                    self.done[item["bytes"]] += 1

    async def bury(self) -> None:
        while not self.is_over:
            items = await self._lease("dead", 50, "atomic_burial")
            if items:
                await self._wire.complete(*items, queue="dead")
                self.dead.update(item["bytes"] for item in items)

    async def _lease(self, queue: str, count: int, name: str) -> list[dict[str, str]]:
        try:
            return await self._wire.lease(count, queue=queue, client=name, within="200ms")
        except Said as said:
            if said.code != 454:
                raise
            return []


async def test_four_consumers_and_retries_lose_and_double_nothing(
    wire: Wire, served: Served
) -> None:
    await served.store.create_queue(
        LeaseQueue(name="dead", lease_timeout=60.0, expire_timeout=60.0)
    )
    await wire.create(dead_queue="dead", max_attempts=3, lease_timeout="1s", requested_partitions=2)
    crowd = Crowd(wire)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(crowd.produce())
        for number in range(CONSUMERS):
            group.create_task(crowd.consume(f"consumer-{number}"))
        group.create_task(crowd.bury())

    assert crowd.resurrected == []
    assert set((crowd.done + crowd.dead).values()) == {1}
    assert (crowd.done + crowd.dead).total() == COUNT
    assert crowd.dead
    for partition in (0, 1):
        assert await wire.items(partition=partition) == []
    assert await wire.items("dead") == []
