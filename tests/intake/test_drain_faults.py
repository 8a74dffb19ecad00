"""Draining goes on when the server was away: none lost, none doubled."""

import asyncio
import contextlib
from typing import Any

import aiormq
import pytest
from pamqp.commands import Basic
from redis.asyncio import Redis

from deadletter import App
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice, eventually
from deadletter.wiring.foreign import opened_foreign
from intake.rig import intake, letters
from servers import Server

COUNT = 300


@contextlib.asynccontextmanager
async def following(url: str, place: str, office: MemoryEngine) -> Any:
    stop = asyncio.Event()
    async with opened_foreign(url) as foreign:
        running = asyncio.create_task(intake(foreign.drain(place), office).run(stop))
        yield
        stop.set()
        await running


async def counted(office: MemoryEngine) -> list[str]:
    return sorted(letter.head.message_id for letter in await letters(office))


async def publish(url: str, numbers: range, *, make: bool = False) -> None:
    connection = await aiormq.connect(url)
    channel = await connection.channel()
    if make:
        await channel.queue_declare("faults.dead", durable=True)
    for number in numbers:
        await channel.basic_publish(
            b"{}",
            routing_key="faults.dead",
            properties=Basic.Properties(message_id=f"m-{number:03}", delivery_mode=2),
        )
    await connection.close()


async def test_rabbitmq_is_restarted_under_us(
    rabbitmq_server: Server, office: MemoryEngine
) -> None:
    if not rabbitmq_server.ours:
        pytest.skip("that server is not ours to stop")
    half = COUNT // 2
    await publish(rabbitmq_server.url, range(half), make=True)

    async with following(rabbitmq_server.url, "faults.dead", office):
        await eventually(lambda: _has(office, 1))
        await asyncio.to_thread(rabbitmq_server.kill)
        await asyncio.to_thread(rabbitmq_server.start)
        await publish(rabbitmq_server.url, range(half, COUNT))
        await eventually(lambda: _has(office, COUNT), within=40)

    assert await counted(office) == [f"m-{number:03}" for number in range(COUNT)]
    assert {one.head.revision for one in await letters(office)} == {0}


async def test_redis_is_restarted_under_us(redis_server: Server, office: MemoryEngine) -> None:
    if not redis_server.ours:
        pytest.skip("that server is not ours to stop")
    client: Any = Redis.from_url(redis_server.url)
    await client.flushdb()
    for number in range(COUNT):
        await _bury(client, number)
    await client.aclose()

    async with following(redis_server.url, "bullmq:mail", office):
        await eventually(lambda: _has(office, 1))
        await asyncio.to_thread(redis_server.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(redis_server.start)
        await eventually(lambda: _has(office, COUNT), within=20)
    client = Redis.from_url(redis_server.url)
    left = await client.zcard("bull:mail:failed")
    await client.aclose()

    assert left == 0
    assert len(await counted(office)) == COUNT


async def test_an_app_drains_while_it_works(redis_server: Server) -> None:
    client: Any = Redis.from_url(redis_server.url)
    await client.flushdb()
    await _bury(client, 1)
    app = App("memory://", clock=SystemClock(), dice=SeededDice())
    app.drain(redis_server.url, "bullmq:mail")
    stop = asyncio.Event()

    async with app:
        working = asyncio.create_task(app.work(stop))
        store = await app.letters()

        async def kept() -> bool:
            return bool(await store.counts())

        await eventually(kept)
        stop.set()
        assert await working == 0
        [source] = await store.counts()
    await client.aclose()

    assert source == "mail"


async def _bury(client: Any, number: int) -> None:
    fields = {"data": "{}", "failedReason": "x", "finishedOn": "1700000000000"}
    await client.hset(f"bull:mail:{number}", mapping=fields)
    await client.zadd("bull:mail:failed", {str(number): number})


async def _has(office: MemoryEngine, count: int) -> bool:
    assert office.letters is not None
    counts = await office.letters.counts()
    return sum(sum(states.values()) for states in counts.values()) >= count
