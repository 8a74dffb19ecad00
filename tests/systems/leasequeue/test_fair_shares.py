"""Waiting clients share what comes, as real requests that wait at a server."""

import asyncio

import pytest

from deadletter.testing.fakes import eventually
from systems.leasequeue.rig import WITHIN, Queues, Server, waiting

CASES = [
    pytest.param([20, 6, 1], 23, [16, 6, 1], id="different"),
    pytest.param([10] * 5, 10, [2] * 5, id="equal"),
    pytest.param([1000] * 5, 10, [2] * 5, id="large"),
    pytest.param([3, 3], 7, [3, 3], id="plenty"),
]


@pytest.mark.parametrize(("wants", "available", "shares"), CASES)
async def test_waiting_leases_share_what_comes(
    queues: Queues, server: Server, wants: list[int], available: int, shares: list[int]
) -> None:
    await queues.create()
    name = queues.name("jobs")
    leasing = []
    for place, want in enumerate(wants, start=1):  # they come in this order
        leasing.append(asyncio.create_task(queues.client.lease(name, limit=want, wait=WITHIN)))
        await eventually(lambda n=place: waiting(server.address, name) == n, within=WITHIN)

    await queues.produce(*[b"%d" % n for n in range(available)])

    found = [lease.items for lease in await asyncio.gather(*leasing)]
    assert [len(items) for items in found] == shares
    order = [item.payload for items in found for item in items]
    assert order == [b"%d" % n for n in range(sum(shares))]
    assert {item.attempts for items in found for item in items} == {1}


async def test_with_fewer_items_than_clients_the_first_are_served(
    queues: Queues, server: Server
) -> None:
    await queues.create()
    name = queues.name("jobs")
    leasing = []
    for place in range(1, 4):
        leasing.append(asyncio.create_task(queues.client.lease(name, limit=5, wait=WITHIN)))
        await eventually(lambda n=place: waiting(server.address, name) == n, within=WITHIN)

    await queues.produce(b"0", b"1")
    served = await asyncio.gather(*leasing[:2])
    assert waiting(server.address, name) == 1
    await queues.produce(b"2")

    found = [*served, await leasing[2]]
    assert [[item.payload for item in lease.items] for lease in found] == [[b"0"], [b"1"], [b"2"]]
