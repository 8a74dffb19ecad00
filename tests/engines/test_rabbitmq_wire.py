"""The broker falls silent, talks nonsense or takes nothing: it is said, and passes."""

import asyncio

import pytest

from deadletter.brokers.amqp import channel as channels
from deadletter.brokers.rabbitmq.engine import connect
from deadletter.core.errors import Unavailable
from deadletter.ports import Acked, Released
from deadletter.testing.fakes import FakeClock, eventually
from deadletter.testing.queue_bench import a_message
from engines.rabbitmq_rig import behind_proxy, beside, opened, usual
from servers import Server


async def test_a_silent_broker_is_given_up_by_its_heartbeat(rabbitmq_server: Server) -> None:
    async with behind_proxy(rabbitmq_server) as (_, proxy):
        url = f"{proxy.through(rabbitmq_server.url)}?heartbeat=1"
        engine = await connect(url, clock=FakeClock())
        await usual(engine, 1)
        channel = engine._mailboxes._box("orders").inbox.channel
        assert channel is not None

        proxy.blackhole = True

        await eventually(lambda: channel.closed is not None, within=10)
        proxy.blackhole = False
        await engine.close()


async def test_a_broker_that_confirms_nothing_is_unavailable_and_tried_again(
    rabbitmq_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_STUCK", 0.3)
    async with behind_proxy(rabbitmq_server) as (engine, proxy):
        sink = engine.broker.sink("orders")
        await sink.send([a_message()])

        proxy.blackhole = True
        with pytest.raises(Unavailable, match="confirmed nothing"):
            await sink.send([a_message()])
        proxy.blackhole = False

        await sink.send([a_message()])


async def test_a_server_that_does_not_speak_amqp_is_unavailable() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    with pytest.raises(Unavailable, match="is RabbitMQ running"):
        await connect(f"amqp://127.0.0.1:{port}/", clock=FakeClock())

    server.close()
    await server.wait_closed()


async def test_a_release_cut_off_in_the_middle_loses_nothing(rabbitmq_server: Server) -> None:
    async with behind_proxy(rabbitmq_server) as (engine, proxy):
        sent = [a_message(b"x" * 2000) for _ in range(20)]
        await engine.broker.sink("orders").send(sent)
        held = await usual(engine, 20)
        source = engine.broker.source("orders")

        proxy.cut_after = 1
        with pytest.raises(Unavailable):
            await source.settle([Released(delivery) for delivery in held])
        proxy.cut_after = None

        async with beside(rabbitmq_server.url) as other:
            found: set[str] = set()

            async def are_all_there() -> bool:
                there = other.broker.source("orders")
                for alone in (False, True):
                    batch = await there.receive(limit=50, wait=0, lease=30.0, alone=alone)
                    await there.settle([Acked(delivery) for delivery in batch])
                    found.update(delivery.message.id for delivery in batch)
                return found == {message.id for message in sent}

            await engine.close()
            await eventually(are_all_there, within=20)


async def test_many_channels_come_and_go(rabbitmq_server: Server) -> None:
    async with opened(rabbitmq_server.url) as engine:
        for _ in range(30):
            await engine.broker.sink("orders").send([a_message()])
            await usual(engine, 1)
            engine._mailboxes._box("orders").inbox.close()

        assert (await engine.broker.source("orders").settle([])) == []
