"""Who waits for a message costs nothing, and is woken at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deadletter.brokers.redis.engine import RedisEngine, connect
from deadletter.core.errors import Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Engine
from deadletter.testing.queue_bench import LEASE, a_message
from engines.redis_rig import tuned


@pytest.fixture
async def engines() -> AsyncIterator[tuple[RedisEngine, RedisEngine]]:
    """Two engines, as if in two processes, on a server nobody else uses."""
    with tuned() as server:
        one, other = await connect(server.url), await connect(server.url)
        await one.broker.source("orders").receive(limit=1, wait=0, lease=LEASE)
        yield one, other
        await one.close()
        await other.close()


async def waiting(engine: Engine, count: int = 1) -> "list[asyncio.Task[list[Delivery]]]":
    tasks = []
    for _ in range(count):
        source = engine.broker.source("orders")
        receiving = source.receive(limit=1, wait=10.0, lease=LEASE)
        tasks.append(asyncio.create_task(receiving))
    await asyncio.sleep(0.1)
    return tasks


async def let_go(tasks: "list[asyncio.Task[list[Delivery]]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def calls(engine: RedisEngine) -> int:
    """How many commands the server has run, but for those of scripts."""
    said = (await engine._runner.command("INFO", "commandstats")).decode()
    return sum(
        int(line.split("calls=")[1].split(",")[0])
        for line in said.splitlines()
        if line.startswith(("cmdstat_eval", "cmdstat_blpop"))
    )


async def test_messages_of_others_wake_a_receiver_within_milliseconds(
    engines: tuple[RedisEngine, RedisEngine],
) -> None:
    one, other = engines
    sink, loop = other.broker.sink("orders"), asyncio.get_running_loop()
    took = []
    for _ in range(9):
        (task,) = await waiting(one)
        begun = loop.time()
        await sink.send([a_message()])
        assert len(await task) == 1
        took.append(loop.time() - begun)

    assert sorted(took)[4] < 0.1  # the median: others may be busy at times


async def test_waiting_costs_nothing(engines: tuple[RedisEngine, RedisEngine]) -> None:
    one, other = engines
    tasks = await waiting(one, 5)
    before = await calls(other)

    await asyncio.sleep(0.5)

    assert await calls(other) == before
    assert not any(task.done() for task in tasks)
    await let_go(tasks)


async def test_one_message_does_not_wake_everybody(
    engines: tuple[RedisEngine, RedisEngine],
) -> None:
    one, other = engines
    await other.broker.sink("elsewhere").send([a_message()])  # the script is known
    tasks = await waiting(one, 10)
    before = await calls(other)

    await other.broker.sink("orders").send([a_message()])
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.1)

    assert sum(task.done() for task in tasks) == 1
    assert await calls(other) - before <= 4  # it, the signal, the claim, the signal again
    await let_go(tasks)


async def test_many_messages_wake_as_many(engines: tuple[RedisEngine, RedisEngine]) -> None:
    one, other = engines
    tasks = await waiting(one, 10)

    await other.broker.sink("orders").send([a_message() for _ in range(10)])

    found = await asyncio.wait_for(asyncio.gather(*tasks), 5.0)
    assert len({d.message.id for (d,) in found}) == 10


async def test_a_cancelled_receiver_passes_the_signal_on(
    engines: tuple[RedisEngine, RedisEngine],
) -> None:
    one, other = engines
    for _ in range(10):
        gone, stays = await waiting(one, 2)
        sending = asyncio.create_task(other.broker.sink("orders").send([a_message()]))
        await asyncio.sleep(0)
        gone.cancel()
        await sending
        results = await asyncio.wait_for(asyncio.gather(gone, stays, return_exceptions=True), 5.0)
        assert sum(isinstance(result, list) for result in results) == 1


async def test_a_waiting_receiver_wakes_when_a_delayed_message_is_due(
    engines: tuple[RedisEngine, RedisEngine],
) -> None:
    one, other = engines
    sink, loop = other.broker.sink("orders"), asyncio.get_running_loop()
    tasks = await waiting(one, 2)
    begun = loop.time()
    await sink.send([a_message(id="later")], delay=0.5)
    await asyncio.sleep(0.05)

    await sink.send([a_message(id="now")])  # whoever knew of the other may take it

    found = await asyncio.wait_for(asyncio.gather(*tasks), 5.0)
    assert {d.message.id for (d,) in found} == {"now", "later"}
    assert 0.4 < loop.time() - begun < 2.0


async def test_receivers_waiting_at_close_get_an_error(
    engines: tuple[RedisEngine, RedisEngine],
) -> None:
    one, _ = engines
    (task,) = await waiting(one)

    await one.close()

    with pytest.raises(Unavailable):
        await asyncio.wait_for(task, 5.0)
