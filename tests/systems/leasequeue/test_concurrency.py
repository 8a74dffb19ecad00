"""
Many at once, in place of a race detector: whoever is first, the sum is right.

Two server processes on one store make it worse than threads would.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from deadletter.client import LeasedItem
from deadletter.core.errors import DeadLetterError
from systems.leasequeue.conftest import POSTGRESQL, SQLITE
from systems.leasequeue.rig import WITHIN, Queues, Server, client_of, imported, serving

ITEMS, SOURCES = 120, 40


@pytest.fixture
async def crowd(server: Server) -> AsyncIterator[list[Queues]]:
    """Eight clients of one server, with the same queues."""
    async with AsyncExitStack() as stack:
        yield await _clients(stack, [server.address] * 8)


@pytest.fixture(scope="module", params=[SQLITE, POSTGRESQL])
def pair(request: pytest.FixtureRequest, place: Path) -> Iterator[tuple[str, str]]:
    """Two servers that share a store."""
    first: Server = request.getfixturevalue(f"server_on_{request.param}")
    with serving(first.store, place / "other.log") as other:
        yield first.address, other.address


@pytest.fixture
async def both(pair: tuple[str, str]) -> AsyncIterator[list[Queues]]:
    """Eight clients, four of each server."""
    async with AsyncExitStack() as stack:
        yield await _clients(stack, [*pair] * 4)


async def _clients(stack: AsyncExitStack, addresses: list[str]) -> list[Queues]:
    clients = [await stack.enter_async_context(client_of(address)) for address in addresses]
    first = Queues(clients[0])
    return [first, *(Queues(client, first.suffix) for client in clients[1:])]


async def _brought_once(crowd: list[Queues]) -> None:
    """All of them import the same, each in its own order and partition."""
    await crowd[0].create("dead", partitions=2)
    name = crowd[0].name("dead")

    async def bring(place: int, queues: Queues) -> int:
        order = [f"s-{(n * 7 + place * 5) % SOURCES}" for n in range(SOURCES)]
        added = 0
        for start in range(0, SOURCES, 8):
            batch = [imported(source) for source in order[start : start + 8]]
            added += len(await queues.client.import_items(name, batch, place % 2))
        return added

    added = await asyncio.gather(*(bring(n, one) for n, one in enumerate(crowd)))

    stored = [*await crowd[0].items("dead"), *await crowd[0].items("dead", 1)]
    assert sum(added) == SOURCES
    assert Counter(item.source_id for item in stored) == Counter(f"s-{n}" for n in range(SOURCES))


async def test_the_same_imports_by_many_bring_each_once(crowd: list[Queues]) -> None:
    await _brought_once(crowd)


async def test_the_same_imports_at_two_servers_bring_each_once(both: list[Queues]) -> None:
    await _brought_once(both)


async def _settled_once(crowd: list[Queues]) -> None:
    """Consumers who fight over each item: completed, given up, or left to die."""
    first = crowd[0]
    await first.create_pair(max_attempts=2, lease_timeout=0.4)
    await first.produce(*[b"%d" % n for n in range(ITEMS)])
    done: Counter[int] = Counter()

    async def settle(queues: Queues, item: LeasedItem, is_done: bool) -> None:
        try:
            if is_done:
                await queues.complete(item)
                done[int(item.payload)] += 1
            else:
                await queues.retry(item, dead=True)
        except DeadLetterError:
            pass  # somebody was faster, or the lease has run out

    async def consume(place: int, queues: Queues) -> None:
        rival = crowd[place - 1]
        while await queues.count():
            for item in await queues.leases(limit=10, wait=0.1):
                number = int(item.payload)
                if number % 3:  # by one of two who believe they have it
                    await asyncio.gather(
                        settle(queues, item, is_done=number % 2 == 0),
                        settle(rival, item, is_done=number % 5 != 0),
                    )

    async with asyncio.timeout(WITHIN):
        await asyncio.gather(*(consume(n, one) for n, one in enumerate(crowd)))

    dead = Counter(int(item.payload) for item in await first.items("dead"))
    assert done + dead == Counter(range(ITEMS))
    assert {n for n in range(ITEMS) if n % 3 == 0} <= set(dead)
    assert done
    assert set(dead) - {n for n in range(ITEMS) if n % 3 == 0}


async def test_many_consumers_settle_each_item_once(crowd: list[Queues]) -> None:
    await _settled_once(crowd)


async def test_consumers_at_two_servers_settle_each_item_once(both: list[Queues]) -> None:
    await _settled_once(both)


async def test_chains_cannot_be_made_by_two_at_once(crowd: list[Queues]) -> None:
    """A to B and B to C at the same moment: one of them is refused, or both."""
    first = crowd[0]
    for turn in range(10):
        names = [f"{letter}{turn}" for letter in "abc"]
        for name in names:
            await first.create(name)
        a, b, c = names
        await asyncio.gather(
            crowd[1].update(a, dead_queue=b),
            crowd[2].update(b, dead_queue=c),
            return_exceptions=True,
        )

        dead_queues = [(await first.info(name)).dead_queue for name in (a, b)]
        assert None in dead_queues


async def test_a_dead_queue_deleted_while_items_die_loses_none_quietly(crowd: list[Queues]) -> None:
    """Refused as long as it is used; every item is in it afterwards."""
    first = crowd[0]
    await first.create_pair()
    await first.produce(*[b"x"] * 50)

    async def delete() -> bool:
        try:
            await crowd[1].delete("dead")
        except DeadLetterError:
            return False
        return True

    async def die(queues: Queues) -> None:
        for item in await queues.leases(limit=10):
            await queues.retry(item, dead=True)

    answers = await asyncio.gather(
        *(die(queues) for queues in crowd[2:7]), *(delete() for _ in range(10))
    )

    assert not any(answers)
    assert await first.count("dead") == 50
