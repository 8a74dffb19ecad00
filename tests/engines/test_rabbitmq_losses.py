"""Connections break and channels close: nothing is lost, the innocent are spared."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from deadletter.brokers.amqp import frames
from deadletter.brokers.rabbitmq import mailbox, queues
from deadletter.brokers.rabbitmq.engine import RabbitEngine, connect
from deadletter.core.errors import Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Released
from deadletter.testing.fakes import FakeClock, eventually
from deadletter.testing.queue_bench import LEASE, a_message, info, release
from engines.proxy import FaultProxy
from engines.rabbitmq_rig import alone, behind_proxy, opened, usual
from servers import Server


@pytest.fixture
async def wired(rabbitmq_server: Server) -> AsyncIterator[tuple[RabbitEngine, FaultProxy]]:
    async with behind_proxy(rabbitmq_server) as wired:
        yield wired


async def suspect_of(engine: RabbitEngine) -> Delivery:
    """The suspect that will be there in a moment."""
    found: list[Delivery] = []

    async def is_there() -> bool:
        with suppress(Unavailable):  # the first to notice that it is broken
            assert await usual(engine, 10) == []
            found.extend(filter(None, [await alone(engine)]))
        return bool(found)

    await eventually(is_there)
    return found[0]


async def test_deliveries_of_a_broken_connection_are_suspect_and_not_charged(
    wired: tuple[RabbitEngine, FaultProxy],
) -> None:
    engine, proxy = wired
    await engine.broker.sink("orders").send([a_message()])
    (held,) = await usual(engine, 1)

    proxy.reset()
    suspect = await suspect_of(engine)

    assert suspect.message == held.message
    assert (suspect.attempt, suspect.spared, suspect.suspect) == (2, 1, True)


async def test_a_delivery_that_was_lost_alone_is_charged(
    wired: tuple[RabbitEngine, FaultProxy],
) -> None:
    engine, proxy = wired
    await engine.broker.sink("orders").send([a_message()])
    await usual(engine, 1)
    proxy.reset()
    await suspect_of(engine)
    proxy.reset()

    again = await suspect_of(engine)

    assert (again.attempt, again.spared, again.charged) == (3, 1, 2)


async def test_nothing_that_came_ahead_is_handed_out_after_its_channel_died(
    wired: tuple[RabbitEngine, FaultProxy],
) -> None:
    engine, proxy = wired
    await engine.broker.sink("orders").send([a_message() for _ in range(5)])
    await usual(engine, 1)  # the others have come as well, and wait here

    proxy.reset()
    found = [await suspect_of(engine) for _ in range(5)]

    assert len({suspect.message.id for suspect in found}) == 5
    assert (
        await engine.broker.source("orders").settle([Acked(suspect) for suspect in found])
        == [True] * 5
    )


async def test_a_settle_on_a_dead_channel_changes_nothing(
    wired: tuple[RabbitEngine, FaultProxy],
) -> None:
    engine, proxy = wired
    await engine.broker.sink("orders").send([a_message(), a_message()])
    one, two = await usual(engine, 2)
    source = engine.broker.source("orders")

    proxy.reset()
    await suspect_of(engine)

    assert await source.extend([one], lease=LEASE) == [False]
    assert await source.settle([Acked(one), Released(two)]) == [False, False]
    assert await suspect_of(engine)


async def test_a_channel_that_the_broker_closes_is_opened_again(rabbitmq_server: Server) -> None:
    # As it does when a delivery is not settled for half an hour.
    async with opened(rabbitmq_server.url) as engine:
        await engine.broker.sink("orders").send([a_message()])
        (held,) = await usual(engine, 1)
        inbox = engine._mailboxes._box("orders").inbox
        channel = inbox.channel
        assert channel is not None

        channel.ack({999}, [])  # there is no such delivery: an error of the channel
        await eventually(lambda: channel.closed is not None)

        source = engine.broker.source("orders")
        assert await source.settle([Acked(held)]) == [False]
        assert (await suspect_of(engine)).message == held.message


async def test_a_waiting_receive_outlives_its_connection(
    wired: tuple[RabbitEngine, FaultProxy],
) -> None:
    engine, proxy = wired
    waiting = asyncio.create_task(usual(engine, 1, wait=10.0))
    await eventually(lambda: engine._mailboxes._box("orders").inbox._prefetch)

    proxy.reset()

    async def is_sent() -> bool:
        with suppress(Unavailable):  # until it is connected again
            await engine.broker.sink("orders").send([a_message()])
            return True
        return False

    await eventually(is_sent)
    assert len(await asyncio.wait_for(waiting, 5)) == 1


async def test_a_broker_that_cannot_be_reached_is_unavailable(
    wired: tuple[RabbitEngine, FaultProxy],
) -> None:
    engine, proxy = wired
    await usual(engine, 1)
    proxy.refuse = True
    proxy.reset()

    with pytest.raises(Unavailable, match="is unreachable"):
        await engine.broker.sink("orders").send([a_message()])
    with pytest.raises(Unavailable, match="is unreachable"):
        await usual(engine, 1)
    proxy.refuse = False

    await engine.broker.sink("orders").send([a_message()])
    assert len(await usual(engine, 1)) == 1


async def test_unclaimed_deliveries_are_returned_uncounted_on_close(
    rabbitmq_server: Server,
) -> None:
    url = rabbitmq_server.url
    async with opened(url) as engine:
        await engine.broker.sink("orders").send([a_message() for _ in range(5)])
        leaving = await connect(url, clock=FakeClock())
        (held,) = await usual(leaving, 1)
        await leaving.broker.source("orders").settle([Acked(held)])

        await leaving.close()
        found = await usual(engine, 10)

        assert len(found) == 4
        assert {(d.attempt, d.spared, d.suspect) for d in found} == {(1, 0, False)}


async def test_prefetched_messages_that_stay_unclaimed_are_returned(
    rabbitmq_server: Server,
) -> None:
    clock = FakeClock()
    async with (
        opened(rabbitmq_server.url, clock) as idle,
        opened(rabbitmq_server.url, clock) as busy,
    ):
        await idle.broker.sink("orders").send([a_message() for _ in range(5)])
        assert len(await usual(idle, 1)) == 1
        assert await usual(busy, 10) == []

        clock.advance(61.0)
        await idle.broker.sweep()

        assert len(await usual(busy, 10)) == 4


async def test_a_queue_that_was_deleted_is_made_again(rabbitmq_server: Server) -> None:
    async with opened(rabbitmq_server.url) as engine, opened(rabbitmq_server.url) as other:
        await engine.broker.sink("orders").send([a_message()])
        await usual(engine, 1)
        await other.broker.delete("orders")

        await engine.broker.sink("orders").send([a_message()])

        assert len(await usual(engine, 1, wait=5.0)) == 1


async def test_a_release_that_failed_may_be_repeated(
    rabbitmq_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(rabbitmq_server.url) as engine:
        await engine.broker.sink("orders").send([a_message(), a_message()])
        one, two = await usual(engine, 2)
        source = engine.broker.source("orders")
        post = engine._mailboxes._sender
        send = post.send

        async def fails(*_: object) -> None:
            raise Unavailable("for a moment")

        await release(source, one)
        monkeypatch.setattr(post, "send", fails)
        with pytest.raises(Unavailable):
            await source.settle([Released(two)])
        monkeypatch.setattr(post, "send", send)
        await release(source, two)

        assert len(await usual(engine, 10)) == 2


async def test_deliveries_being_settled_stay_claimed(
    rabbitmq_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(rabbitmq_server.url) as engine:
        await engine.broker.sink("orders").send([a_message()])
        (held,) = await usual(engine, 1)
        source = engine.broker.source("orders")
        post = engine._mailboxes._sender
        send, answers = post.send, []

        async def meanwhile(*letters: object) -> None:
            answers.extend(await source.extend([held], lease=LEASE))
            answers.extend(await source.settle([Acked(held)]))
            await send(*letters)  # type: ignore[arg-type]

        monkeypatch.setattr(post, "send", meanwhile)

        await release(source, held)

        assert answers == [True, False]


async def test_a_delay_too_long_for_the_broker_is_taken_in_turns(
    rabbitmq_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "LONGEST_DELAY", 300)
    monkeypatch.setattr(mailbox, "LONGEST_DELAY", 300)
    loop = asyncio.get_running_loop()
    async with opened(rabbitmq_server.url) as engine:
        await engine.broker.sink("orders").send([a_message()], delay=0.8)
        sent = loop.time()

        (delivery,) = await usual(engine, 1, wait=5.0)

        assert loop.time() - sent > 0.75
        assert (delivery.attempt, delivery.suspect) == (1, False)


async def test_a_delay_is_never_shorter_and_at_most_twice_as_long(rabbitmq_server: Server) -> None:
    loop = asyncio.get_running_loop()
    async with opened(rabbitmq_server.url) as engine:
        sink = engine.broker.sink("orders")
        asked = (0.9, 0.6, 0.3, 1.2, 0.2)
        began = loop.time()
        for delay in asked:
            await sink.send([a_message(str(delay).encode())], delay=delay)

        took = {}
        while len(took) < len(asked):
            for delivery in await usual(engine, 10, wait=5.0):
                took[float(delivery.message.body)] = loop.time() - began

        # A second for a machine that has other things to do.
        assert all(delay <= took[delay] < 2 * delay + 1.0 for delay in asked), took


async def test_counts_tell_what_is_where(rabbitmq_server: Server) -> None:
    async with opened(rabbitmq_server.url) as engine:
        sink = engine.broker.sink("orders")
        await sink.send([a_message() for _ in range(5)])
        await sink.send([a_message(), a_message()], delay=60.0)
        await usual(engine, 1)

        counts = await info(engine.broker)

        assert (counts.ready, counts.delayed, counts.claimed) == (4, 2, 1)


@pytest.mark.parametrize("multiple", [False, True])
async def test_an_ack_that_was_changed_on_its_way_loses_no_message(
    rabbitmq_server: Server, multiple: bool
) -> None:
    async with opened(rabbitmq_server.url) as engine:
        sent = [a_message(id=f"m-{number}") for number in range(8)]
        await engine.broker.sink("orders").send(sent)
        first, second, _ = await usual(engine, 3)
        channel = first.receipt.channel
        await eventually(lambda: first.receipt.channel._delivered == 8)

        # The broker hears of another delivery, or of all up to it.
        wrong = 7 if multiple else second.receipt.tag
        channel._wire.send(frames.ack(channel.number, wrong, multiple=multiple))
        await engine.broker.source("orders").settle([Acked(first), Acked(second)])
        await eventually(lambda: channel.closed)

        await until_all_came(engine, {message.id for message in sent[2:]})


async def until_all_came(engine: RabbitEngine, wanted: set[str]) -> None:
    """Take and settle what comes, in company and alone, until all of these came."""
    came: set[str] = set()

    async def is_all() -> bool:
        with suppress(Unavailable):
            found = await usual(engine, 10)
            found += filter(None, [await alone(engine)])
            came.update(delivery.message.id for delivery in found)
            source = engine.broker.source("orders")
            await source.settle([Acked(delivery) for delivery in found])
        return came >= wanted

    await eventually(is_all, within=20)
