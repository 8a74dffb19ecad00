"""Cut connections, lost workers, stopped receives: what is ours stays told right."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from deadletter.brokers.nats.engine import NatsEngine
from deadletter.core.errors import Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Fate, QueueOptions, Released, Settlement
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import LEASE, a_message, drained, info, release
from engines.nats_rig import HastyClock, fresh, hasty, opened, pass_by
from engines.patience import insist
from engines.proxy import FaultProxy, fault_proxy
from servers import Server

SHORT = 10.0  # short seconds of a lease


@pytest.fixture
async def hurried(nats_server: Server) -> AsyncIterator[NatsEngine]:
    engine = await hasty(fresh(nats_server.url), HastyClock())
    yield engine
    await engine.close()


async def look(engine: NatsEngine, *, wait: float = 0.5) -> Sequence[Delivery]:
    source = engine.broker.source("orders")
    return await source.receive(limit=10, wait=wait, lease=SHORT)


async def lose(engine: NatsEngine) -> None:
    """Have a worker take everything, and die."""
    assert await look(engine)
    engine.broker.source("orders")._box.claims.clear()
    await pass_by(SHORT)


async def test_an_ack_that_was_not_confirmed_is_not_reported_as_done(nats_server: Server) -> None:
    async with (
        fault_proxy(nats_server.port) as proxy,
        opened(proxy.through(fresh(nats_server.url))) as engine,
    ):
        await engine.broker.sink("orders").send([a_message(), a_message()])
        source = engine.broker.source("orders")
        one, two = await drained(source)
        proxy.blackhole = True
        settling = asyncio.create_task(source.settle([Acked(one), Released(two)]))
        await asyncio.sleep(0.05)

        proxy.reset()
        with pytest.raises(Unavailable):
            await settling
        with pytest.raises(Unavailable):  # cut off: nothing is kept for later
            await source.settle([Acked(one)])
        proxy.blackhole = False
        await eventually(lambda: engine._link.is_connected)

        assert await source.settle([Acked(one), Released(two)]) == [True, True]
        (again,) = await drained(source)
        assert (again.message.id, again.attempt) == (two.message.id, 2)


async def test_a_waiting_receive_is_told_of_a_cut_and_goes_on_afterwards(
    nats_server: Server,
) -> None:
    async with (
        fault_proxy(nats_server.port) as proxy,
        opened(proxy.through(fresh(nats_server.url))) as engine,
    ):
        source = engine.broker.source("orders")
        receiving = source.receive(limit=1, wait=30, lease=LEASE)
        waiting = asyncio.create_task(receiving)
        await asyncio.sleep(0.1)

        proxy.reset()
        with pytest.raises(Unavailable):
            await waiting
        await eventually(lambda: engine._link.is_connected)
        await engine.broker.sink("orders").send([a_message()])

        assert len(await source.receive(limit=1, wait=5, lease=LEASE)) == 1


class Traffic:
    """Somebody who sends, and others who receive and settle, whatever happens."""

    def __init__(self, engine: NatsEngine) -> None:
        self.engine = engine
        self.random = Random(7)
        self.sent: set[str] = set()
        self.handled: set[str] = set()
        self.done = asyncio.Event()

    async def produce(self, count: int) -> None:
        sink = self.engine.broker.sink("orders")
        for _ in range(count):
            messages = [a_message() for _ in range(3)]
            await insist(lambda m=messages: sink.send(m))
            self.sent |= {message.id for message in messages}

    async def consume(self) -> None:
        source = self.engine.broker.source("orders")
        while not self.done.is_set():
            batch = [
                delivery
                for alone in (False, True)
                for delivery in await insist(
                    lambda a=alone: source.receive(limit=9, wait=0, lease=1.0, alone=a)
                )
            ]
            settlements = [self.settlement(delivery) for delivery in batch]
            # Told again after a cut, it may say that it is no longer ours: by then
            # somebody else has it, or the ack came through and the answer did not.
            await insist(lambda s=settlements: source.settle(s))
            self.handled |= {
                one.delivery.message.id for one in settlements if isinstance(one, Acked)
            }
            await asyncio.sleep(0.01)

    def settlement(self, delivery: Delivery) -> Settlement:
        if self.random.random() < 0.8:
            return Acked(delivery)
        return Released(delivery, history="again")


async def is_empty(engine: NatsEngine) -> bool:
    with suppress(Unavailable):
        there = await info(engine.broker)
        return there.ready + there.claimed + there.suspects == 0
    return False


async def cuts(proxy: FaultProxy, random: Random) -> None:
    while True:
        await asyncio.sleep(random.uniform(0.2, 0.8))
        random.choice([proxy.reset, proxy.cut])()


async def test_under_cuts_at_any_time_nothing_is_lost(nats_server: Server) -> None:
    async with (
        fault_proxy(nats_server.port) as proxy,
        opened(proxy.through(fresh(nats_server.url))) as engine,
        asyncio.TaskGroup() as group,
    ):
        traffic = Traffic(engine)
        cutting = group.create_task(cuts(proxy, traffic.random))
        for _ in range(3):
            group.create_task(traffic.consume())

        await traffic.produce(200)
        cutting.cancel()

        await eventually(lambda: is_empty(engine), within=20)
        traffic.done.set()
    assert len(traffic.sent) == 600
    assert traffic.handled == traffic.sent


async def test_a_suspect_out_of_attempts_is_doomed_where_it_was_found(hurried: NatsEngine) -> None:
    await hurried.broker.create(QueueOptions(name="orders", max_attempts=1))
    await hurried.broker.sink("orders").send([a_message()])
    source = hurried.broker.source("orders")
    await lose(hurried)  # in company: not charged
    assert not await look(hurried)
    assert (await hurried.broker.sweep()).doomed == ()
    (alone,) = await source.receive(limit=1, wait=0, lease=SHORT, alone=True)
    source._box.claims.clear()
    await pass_by(SHORT)
    assert not await look(hurried)

    (doomed,) = (await hurried.broker.sweep()).doomed

    assert (alone.attempt, alone.charged) == (2, 1)
    assert (doomed.attempt, doomed.charged) == (2, 1)
    assert await source.settle([Acked(doomed, Fate.BURIED)]) == [True]
    assert (await info(hurried.broker)).claimed == 0


async def test_suspects_that_wait_for_their_turn_stay_ours(hurried: NatsEngine) -> None:
    await hurried.broker.sink("orders").send([a_message()])
    await lose(hurried)
    assert not await look(hurried)
    source = hurried.broker.source("orders")

    await pass_by(3 * SHORT)

    assert not await look(hurried)
    (alone,) = await source.receive(limit=1, wait=0, lease=SHORT, alone=True)
    assert (alone.attempt, alone.spared, alone.suspect) == (2, 1, True)


async def test_suspects_of_a_process_that_ends_are_found_by_the_next(nats_server: Server) -> None:
    url = fresh(nats_server.url)
    first = await hasty(url, HastyClock())
    await first.broker.sink("orders").send([a_message()])
    await lose(first)
    assert not await look(first)

    await first.close()
    second = await hasty(url, HastyClock())
    assert not await look(second)
    source = second.broker.source("orders")
    (alone,) = await source.receive(limit=1, wait=0, lease=SHORT, alone=True)

    # Being set aside in the first process was no attempt.
    assert (alone.attempt, alone.spared, alone.suspect) == (2, 1, True)
    await release(source, alone, history="ran well")
    (proven,) = await look(second)
    assert (proven.attempt, proven.charged, proven.suspect) == (3, 2, False)
    await second.close()


async def test_deliveries_to_a_cancelled_receive_cost_no_attempt(nats_server: Server) -> None:
    async with opened(fresh(nats_server.url)) as engine:
        source = engine.broker.source("orders")
        receiving = source.receive(limit=5, wait=30, lease=LEASE)
        waiting = asyncio.create_task(receiving)
        await asyncio.sleep(0.05)
        sending = engine.broker.sink("orders").send([a_message() for _ in range(5)])
        sent = asyncio.create_task(sending)
        await asyncio.sleep(0.002)

        waiting.cancel()
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
        await sent

        found = [] if isinstance(result, BaseException) else list(result)
        while len(found) < 5:
            batch = await source.receive(limit=5, wait=5, lease=LEASE)
            assert batch
            found += batch
        assert {(d.attempt, d.spared) for d in found} == {(1, 0)}


async def test_a_delayed_message_is_no_attempt_until_it_is_due(hurried: NatsEngine) -> None:
    await hurried.broker.sink("orders").send([a_message()], delay=4.0)
    assert not await look(hurried, wait=0)

    (delivery,) = await look(hurried, wait=5)

    assert (delivery.attempt, delivery.spared, delivery.suspect) == (1, 0, False)


async def test_a_message_is_handed_out_within_milliseconds(nats_server: Server) -> None:
    async with opened(fresh(nats_server.url)) as engine:
        source, loop = engine.broker.source("orders"), asyncio.get_running_loop()
        await engine.broker.sink("orders").send([])
        took = []
        for _ in range(20):
            receiving = source.receive(limit=10, wait=5, lease=LEASE)
            waiting = asyncio.create_task(receiving)
            await asyncio.sleep(0.01)
            begun = loop.time()
            await engine.broker.sink("orders").send([a_message()])
            (delivery,) = await waiting
            took.append(loop.time() - begun)
            await source.settle([Acked(delivery)])

    assert sorted(took)[10] < 0.1  # the median; the server syncs to disk


async def test_deliveries_received_again_before_their_release_was_answered_are_claimed(
    nats_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(fresh(nats_server.url)) as engine:
        source = engine.broker.source("orders")
        await engine.broker.sink("orders").send([a_message()])
        (first,) = await source.receive(limit=1, wait=5, lease=LEASE)
        link, again = source._box.link, []
        in_turn = link.in_turn

        async def answered_late(sendings: Sequence[Any]) -> None:
            await in_turn(sendings)
            monkeypatch.undo()
            again.extend(await source.receive(limit=1, wait=5, lease=LEASE))

        monkeypatch.setattr(link, "in_turn", answered_late)
        assert await source.settle([Released(first)]) == [True]

        assert [one.attempt for one in again] == [2]
        assert await source.settle([Acked(one) for one in again]) == [True]
