"""A lost answer is neither a lost nor a doubled message."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from deadletter.brokers.redis.engine import RedisEngine, Registry, connect
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Fate, QueueOptions, Released, Settlement
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import LEASE, a_message, drained, info
from engines.patience import insist
from engines.proxy import fault_proxy
from engines.redis_rig import Deaf, fresh
from servers import Server

ALL = 10  # more answers than anybody waits for


@pytest.fixture
async def engine(redis_server: Server) -> AsyncIterator[RedisEngine]:
    engine = await connect(fresh(redis_server.url))
    yield engine
    await engine.close()


@pytest.fixture
async def deaf(engine: RedisEngine) -> Deaf:
    await engine.broker.sink("orders").send([])
    await engine.broker.source("orders").receive(limit=1, wait=0, lease=LEASE)
    return Deaf(engine)


async def received(engine: RedisEngine, count: int) -> list[Delivery]:
    deliveries = await drained(engine.broker.source("orders"))
    assert len(deliveries) == count
    return deliveries


async def test_a_send_whose_answer_is_lost_is_not_doubled(engine: RedisEngine, deaf: Deaf) -> None:
    messages = [a_message(), a_message()]
    deaf.misses = 2

    await engine.broker.sink("orders").send(messages)

    found = await received(engine, 2)
    assert [d.message for d in found] == messages
    assert (await info(engine.broker)).tally == {"sent": 2}


async def test_a_send_that_failed_for_all_we_know_may_be_repeated(
    engine: RedisEngine, deaf: Deaf
) -> None:
    message = a_message()
    deaf.misses = ALL
    with pytest.raises(Unavailable):
        await engine.broker.sink("orders").send([message])

    deaf.misses = 0
    await engine.broker.sink("orders").send([message])
    await engine.broker.sink("orders").send([message])  # this time on purpose

    await received(engine, 2)


async def test_a_receive_whose_answer_is_lost_costs_no_attempt(
    engine: RedisEngine, deaf: Deaf
) -> None:
    await engine.broker.sink("orders").send([a_message() for _ in range(5)])
    deaf.misses = 1

    found = await received(engine, 5)

    assert {d.attempt for d in found} == {1}


async def test_a_receive_that_failed_for_all_we_know_is_made_up_for(
    engine: RedisEngine, deaf: Deaf
) -> None:
    await engine.broker.sink("orders").send([a_message() for _ in range(5)])
    source = engine.broker.source("orders")
    deaf.misses = ALL
    with pytest.raises(Unavailable):
        await source.receive(limit=3, wait=0, lease=LEASE)

    deaf.misses = 0
    found = await source.receive(limit=5, wait=0, lease=LEASE)

    assert {(d.attempt, d.spared) for d in found} == {(1, 0)}
    assert len(found) == 5


@pytest.mark.parametrize("misses", [1, ALL])
async def test_a_settlement_whose_answer_is_lost_is_made_once(
    engine: RedisEngine, deaf: Deaf, misses: int
) -> None:
    await engine.broker.sink("orders").send([a_message() for _ in range(3)])
    acked, released, spared = await received(engine, 3)
    source = engine.broker.source("orders")
    settlements = [
        Acked(acked, Fate.BURIED),
        Released(released, history="told"),
        Released(spared, charged=False),
    ]

    deaf.misses = misses
    if misses == ALL:
        with pytest.raises(Unavailable):
            await source.settle(settlements)
        deaf.misses = 0
    answers = await source.settle(settlements)

    assert answers == [True, True, True]
    assert (await info(engine.broker)).tally == {"sent": 3, Fate.BURIED: 1}
    back = await received(engine, 2)
    assert [(d.attempt, d.spared, d.history) for d in back] == [(2, 0, "told"), (2, 1, "")]
    assert await source.settle(settlements) == [False, False, False]


async def test_a_repeated_release_does_not_affect_the_next_claim(
    engine: RedisEngine, deaf: Deaf
) -> None:
    await engine.broker.sink("orders").send([a_message()])
    (delivery,) = await received(engine, 1)
    source = engine.broker.source("orders")
    deaf.misses = ALL
    with pytest.raises(Unavailable):
        await source.settle([Released(delivery)])
    deaf.misses = 0
    (theirs,) = await received(engine, 1)

    assert await source.settle([Released(delivery)]) == [False]
    assert await source.settle([Acked(theirs)]) == [True]


async def test_an_extension_whose_answer_is_lost_holds(engine: RedisEngine, deaf: Deaf) -> None:
    await engine.broker.sink("orders").send([a_message()])
    (delivery,) = await received(engine, 1)
    deaf.misses = 1

    assert await engine.broker.source("orders").extend([delivery], lease=LEASE)


async def test_scripts_the_server_has_forgotten_are_sent_again(engine: RedisEngine) -> None:
    source = engine.broker.source("orders")
    for _ in range(3):
        await engine.broker.sink("orders").send([a_message()])
        await engine._runner.command("SCRIPT", "FLUSH")
        found = await received(engine, 1)
        await engine._runner.command("SCRIPT", "FLUSH")
        assert await source.settle([Acked(d) for d in found]) == [True]


async def test_options_that_changed_meanwhile_are_looked_at_again(
    engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.broker.create(QueueOptions(name="a"))
    await engine.broker.create(QueueOptions(name="b"))
    read = Registry._read

    async def slow(self: Registry) -> object:
        said = await read(self)
        monkeypatch.undo()
        await engine.broker.update(QueueOptions(name="b", dead_queue="a"))
        return said

    monkeypatch.setattr(Registry, "_read", slow)

    with pytest.raises(ConfigError, match="cannot have its own dead_queue"):
        await engine.broker.update(QueueOptions(name="a", dead_queue="b"))


async def test_a_body_taken_away_from_outside_blocks_nobody(engine: RedisEngine) -> None:
    await engine.broker.sink("orders").send([a_message() for _ in range(3)])
    bodies = next(key for key in engine.broker._mailbox("orders").keys if "bodies" in key)
    first, *_ = await engine._runner.command("HKEYS", bodies)
    await engine._runner.command("HDEL", bodies, first)
    source = engine.broker.source("orders")

    found = await source.receive(limit=9, wait=1.0, lease=LEASE)

    assert len(found) == 2
    assert (await info(engine.broker)).tally == {"sent": 3, Fate.PURGED: 1}


async def test_a_connection_that_says_nothing_is_given_up(redis_server: Server) -> None:
    async with fault_proxy(redis_server.port) as proxy:
        engine = await connect(fresh(proxy.through(redis_server.url)))
        proxy.blackhole = True

        with pytest.raises(Unavailable):
            await engine.broker.sink("orders").send([a_message()])

        proxy.blackhole = False
        await engine.broker.sink("orders").send([a_message()])
        await engine.close()


async def test_a_waiting_receive_survives_cut_connections(redis_server: Server) -> None:
    async with fault_proxy(redis_server.port) as proxy:
        engine = await connect(fresh(proxy.through(redis_server.url)))
        source = engine.broker.source("orders")
        waiting = asyncio.create_task(source.receive(limit=1, wait=30, lease=LEASE))
        await eventually(lambda: engine._runner._patient._used, within=10)
        await asyncio.sleep(0.05)

        proxy.reset()
        with pytest.raises(Unavailable):
            await waiting
        waiting = asyncio.create_task(source.receive(limit=1, wait=30, lease=LEASE))
        await engine.broker.sink("orders").send([a_message()])

        assert len(await asyncio.wait_for(waiting, 5.0)) == 1
        await engine.close()


def _acked(batch: Sequence[Settlement], answers: Sequence[bool]) -> list[str]:
    both = list(zip(batch, answers, strict=True))
    # What was handed back may be somebody else's by the time we ask again.
    assert all(ours for settlement, ours in both if isinstance(settlement, Acked))
    return [s.delivery.message.id for s, _ in both if isinstance(s, Acked)]


async def test_under_cuts_at_any_time_nothing_is_lost_or_doubled(redis_server: Server) -> None:
    random = Random(7)
    sent: set[str] = set()
    settled: list[str] = []
    done = asyncio.Event()

    async def produce(engine: RedisEngine) -> None:
        sink = engine.broker.sink("orders")
        for _ in range(40):
            messages = [a_message() for _ in range(5)]
            await insist(lambda m=messages: sink.send(m))
            sent.update(message.id for message in messages)

    async def consume(engine: RedisEngine) -> None:
        source = engine.broker.source("orders")
        while not done.is_set():
            found = await insist(lambda: source.receive(limit=7, wait=0.2, lease=60))
            batch = [Acked(d) if d.attempt > 1 else Released(d, history="once") for d in found]
            answers = await insist(lambda b=batch: source.settle(b))
            settled.extend(_acked(batch, answers))

    async def cut(proxy) -> None:
        while not done.is_set():
            await asyncio.sleep(random.uniform(0.005, 0.05))
            random.choice([proxy.reset, proxy.cut])()

    async with fault_proxy(redis_server.port) as proxy:
        url = fresh(redis_server.url)
        direct = await connect(url)
        engine = await connect(proxy.through(url))
        async with asyncio.TaskGroup() as group:
            group.create_task(cut(proxy))
            workers = [group.create_task(consume(engine)) for _ in range(3)]
            producers = [group.create_task(produce(engine)) for _ in range(2)]
            await asyncio.wait(producers)
            await eventually(lambda: len(settled) >= len(sent), within=60)
            done.set()
            await asyncio.wait(workers)
        counts = await info(direct.broker)
        await engine.close()
        await direct.close()

    assert sorted(settled) == sorted(sent)
    assert counts.tally == {"sent": len(sent), Fate.HANDLED: len(sent)}
    assert (counts.ready, counts.claimed, counts.suspects) == (0, 0, 0)
