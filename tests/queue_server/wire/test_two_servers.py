"""Two servers over one store: what one is told, those who wait at the other get."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from types import ModuleType

import httpx
import pytest

from deadletter.testing.fakes import eventually
from deadletter.wiring.engines import open_engine
from engines.postgresql_time import a_database
from queue_server.wire.wire_rig import Wire, served_by
from server.conftest import context_of
from servers.fixtures import needing_postgresql

SOON = 2.0  # seconds: far less than anybody would find it by looking now and then


@pytest.fixture(params=["sqlite", needing_postgresql()])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{request.getfixturevalue('tmp_path')}/items.db"
    else:
        server = request.getfixturevalue("postgresql_server")
        async with a_database(server.url) as database:
            yield database


@pytest.fixture
async def pair(url: str, messages: ModuleType) -> AsyncIterator[tuple[Wire, Wire]]:
    async with AsyncExitStack() as stack:
        wires = []
        for _ in range(2):
            engine = await open_engine(url)
            stack.push_async_callback(engine.close)
            served = await stack.enter_async_context(served_by(context_of(engine), []))
            http = httpx.AsyncClient(base_url=served.url, timeout=60.0)
            await stack.enter_async_context(http)
            wires.append(Wire(http, messages, "protobuf"))
        yield wires[0], wires[1]


async def _waiting(wire: Wire, queue: str) -> bool:
    stats = await wire("queue.stats", queue_name=queue)
    return bool(stats["logical_queues"][0]["lease_waiting"])


async def test_a_produce_at_one_wakes_who_waits_at_the_other(pair: tuple[Wire, Wire]) -> None:
    here, there = pair
    await here.create()
    waiting = asyncio.create_task(here.lease(within="1m"))
    await eventually(lambda: _waiting(here, "jobs"))

    await there.produce("over there")

    async with asyncio.timeout(SOON):
        (item,) = await waiting
    assert item["bytes"] == "b3ZlciB0aGVyZQ=="


async def test_a_move_to_the_dead_queue_wakes_clients_of_the_other_server(
    pair: tuple[Wire, Wire],
) -> None:
    here, there = pair
    await here.create("dead")
    await here.create(dead_queue="dead", max_attempts=1)
    waiting = asyncio.create_task(here.lease(queue="dead", within="1m"))
    await eventually(lambda: _waiting(here, "dead"))
    await there.produce("poison")
    (item,) = await there.lease()

    await there.retry(item)

    async with asyncio.timeout(SOON):
        assert len(await waiting) == 1


async def test_a_due_retry_wakes_clients_of_the_other_server(pair: tuple[Wire, Wire]) -> None:
    here, there = pair
    await here.create()
    await there.produce("again")
    (item,) = await there.lease()
    waiting = asyncio.create_task(here.lease(within="1m"))
    await eventually(lambda: _waiting(here, "jobs"))
    due = datetime.now(UTC) + timedelta(milliseconds=500)

    await there.retry(item, retry_at=due.isoformat())

    async with asyncio.timeout(0.5 + SOON):
        (again,) = await waiting
    assert datetime.now(UTC) >= due
    assert again["attempts"] == 2


async def test_an_item_is_lent_by_one_of_them_only(pair: tuple[Wire, Wire]) -> None:
    await pair[0].create()
    clients = [
        asyncio.create_task(pair[number % 2].lease(client=f"{number}", within="1m"))
        for number in range(20)
    ]
    for number in range(20):
        await pair[number % 2].produce(f"{number}")

    async with asyncio.timeout(20):
        lent = [item for items in await asyncio.gather(*clients) for item in items]

    assert len({item["id"] for item in lent}) == len(lent) == 20
    assert {item["attempts"] for item in lent} == {1}
