"""The server is killed in the middle of things: nothing is lost, nothing doubled."""

import asyncio
import random
import signal
from collections import Counter
from contextlib import suppress

import pytest

from deadletter.client import LeasedItem
from deadletter.core.errors import DeadLetterError
from deadletter.testing.fakes import eventually
from systems.leasequeue.rig import HERE, WITHIN, Queues, Server, client_of, payloads

SEED = 20261116
DYING = str(HERE / "dying_server.py")


@pytest.mark.parametrize("step", ["moved", "written", "committed"])
async def test_killed_between_the_steps_of_a_move(
    victim: Server, doomed: Queues, step: str
) -> None:
    """
    Whatever of the move was written, afterwards the item is in one place.

    If that is its source still, the server that comes after moves it.
    """
    await asyncio.to_thread(victim.start, DYING, DIE_AFTER=step)
    await doomed.create_pair(max_attempts=1, lease_timeout=1.0)
    await doomed.produce(b"poison")
    item = await doomed.lease()

    with pytest.raises(DeadLetterError):  # nobody is there to say how it went
        await doomed.retry(item)
    assert await asyncio.to_thread(victim.ended) == -signal.SIGKILL
    await asyncio.to_thread(victim.start)

    await eventually(lambda: _is_moved(doomed), within=WITHIN)
    (dead,) = await doomed.items("dead")
    assert (dead.payload, dead.source_id) == (b"poison", item.id)
    assert await doomed.bring(item.id) == []  # a repeated move adds nothing


async def test_a_sweep_that_is_killed_is_done_again(victim: Server, doomed: Queues) -> None:
    """The same when nobody asked for the move: leases ran out."""
    await asyncio.to_thread(victim.start, DYING, DIE_AFTER="written")
    await doomed.create_pair(max_attempts=1, lease_timeout=0.5)
    await doomed.produce(b"1", b"2", b"3")
    lent = await doomed.leases()

    assert await asyncio.to_thread(victim.ended) == -signal.SIGKILL
    await asyncio.to_thread(victim.start)

    await eventually(lambda: _is_moved(doomed), within=WITHIN)
    dead = await doomed.items("dead")
    assert [one.source_id for one in dead] == [item.id for item in lent]
    assert payloads(dead) == [b"1", b"2", b"3"]
    assert [await doomed.bring(item.id) for item in lent] == [[], [], []]


async def _is_moved(queues: Queues) -> bool:
    return await queues.count("dead") > 0 and not await queues.count()


async def test_sources_are_known_after_a_restart(victim: Server, doomed: Queues) -> None:
    """Those of the items that are there, and no others."""
    await asyncio.to_thread(victim.start)
    await doomed.create_pair()
    await doomed.produce(b"x")
    item = await doomed.die()
    await doomed.bring("there")
    (gone,) = await doomed.bring("gone")
    await doomed.client.delete_items(doomed.name("dead"), [gone.id])
    await asyncio.to_thread(victim.kill)
    await asyncio.to_thread(victim.start)

    added = [bool(await doomed.bring(source)) for source in (item.id, "there", "gone")]

    assert added == [False, False, True]
    assert [one.source_id for one in await doomed.items("dead")] == [item.id, "there", "gone"]


class Crowd:
    """Producers and consumers who note what they know for certain."""

    def __init__(self, queues: Queues) -> None:
        self.produced: set[int] = set()  # confirmed
        self.completed: Counter[int] = Counter()  # confirmed
        self.perhaps: set[int] = set()  # asked for, and maybe never answered
        self.is_over = asyncio.Event()
        self._queues = queues
        self._numbers = iter(range(10**9))

    async def produce(self) -> None:
        while not self.is_over.is_set():
            batch = [next(self._numbers) for _ in range(5)]
            try:
                await self._queues.produce(*[b"%d" % number for number in batch])
            except DeadLetterError:
                await asyncio.sleep(0.02)
            else:
                self.produced |= set(batch)

    async def consume(self) -> None:
        while not self.is_over.is_set():
            try:
                for item in await self._queues.leases(limit=5, wait=0.3):
                    await self._settle(item)
            except DeadLetterError:
                await asyncio.sleep(0.02)

    async def _settle(self, item: LeasedItem) -> None:
        number = int(item.payload)
        if number % 4 == 0:
            await self._queues.retry(item)
            return
        self.perhaps.add(number)
        await self._queues.complete(item)
        self.completed[number] += 1


async def test_killed_under_load_again_and_again(victim: Server, doomed: Queues) -> None:
    """`make faults` does the same fifty times, in tests/faults/test_server_storm.py."""
    await asyncio.to_thread(victim.start)
    await doomed.create_pair(max_attempts=2, lease_timeout=1.0)
    crowd, draw = Crowd(doomed), random.Random(SEED)
    async with asyncio.timeout(2 * WITHIN), asyncio.TaskGroup() as group:
        group.create_task(crowd.produce())
        for _ in range(3):
            group.create_task(crowd.consume())
        for _ in range(2):
            await asyncio.sleep(draw.uniform(0.1, 0.4))
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
        known = len(crowd.produced)
        await eventually(lambda: len(crowd.produced) > known + 20, within=WITHIN)
        crowd.is_over.set()

    dead, completed = await _rest_is_settled(victim, doomed)
    ended = Counter(crowd.completed) + completed
    assert crowd.produced - set(dead) - set(ended) - crowd.perhaps == set(), "LOST"
    assert [n for n, times in dead.items() if times > 1] == [], "DEAD TWICE"
    assert [n for n, times in ended.items() if times > 1] == [], "COMPLETED TWICE"
    assert set(dead) & set(ended) == set(), "DEAD AND COMPLETED"
    assert {n for n in crowd.produced if n % 4 == 0} <= set(dead), "NOT DEAD"


async def _rest_is_settled(victim: Server, doomed: Queues) -> tuple[Counter[int], Counter[int]]:
    """What is dead, and what was completed, when nothing is left in the source."""
    completed: Counter[int] = Counter()
    async with client_of(victim.address) as client, asyncio.timeout(WITHIN):
        rest = Queues(client, doomed.suffix)
        while await rest.count():
            for item in await rest.leases(limit=5, wait=1.5):
                with suppress(DeadLetterError):  # too slow: it comes again, or is dead
                    if int(item.payload) % 4 == 0:
                        await rest.retry(item)
                    else:
                        await rest.complete(item)
                        completed[int(item.payload)] += 1
        dead = Counter(int(item.payload) for item in await rest.items("dead"))
    return dead, completed
