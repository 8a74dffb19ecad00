"""What other people's consumers give up on is found, with all that was in it."""

from collections.abc import AsyncIterator

import nats
import pytest
from nats.js import JetStreamContext

from deadletter.backends.nats.advisories import Exhausted
from deadletter.backends.nats.engine import NatsEngine
from deadletter.core.errors import ConfigError
from engines.nats_rig import fresh, opened
from servers import Server

LIMIT = 2  # deliveries


@pytest.fixture
async def theirs(nats_server: Server) -> AsyncIterator[JetStreamContext]:
    """Somebody else's stream and consumer, which gives up after two deliveries."""
    client = await nats.connect(nats_server.url)
    stream = client.jetstream()
    await stream.add_stream(name="BILLS", subjects=["bills.>"])
    await stream.add_consumer(
        "BILLS", durable_name="payer", ack_policy="explicit", max_deliver=LIMIT
    )
    yield stream
    await stream.delete_stream("BILLS")
    await client.close()


@pytest.fixture
async def engine(nats_server: Server) -> AsyncIterator[NatsEngine]:
    async with opened(fresh(nats_server.url)) as engine:
        await engine.advisories.listen()
        yield engine
        await engine._link.ask(f"STREAM.DELETE.{engine.advisories._place.stream}")


async def give_up(stream: JetStreamContext, count: int) -> None:
    """Have the consumer fail until it gives up."""
    consumer = await stream.pull_subscribe_bind("payer", "BILLS")
    failed = 0
    while failed < LIMIT * count:  # a fetch may bring some of them only
        for message in await consumer.fetch(count, timeout=2):
            await message.nak()
            failed += 1
    with pytest.raises(TimeoutError):  # asking once more makes the server notice
        await consumer.fetch(count, timeout=0.1)
    await consumer.unsubscribe()


async def test_what_a_consumer_gave_up_on_comes_with_its_payload(
    theirs: JetStreamContext, engine: NatsEngine
) -> None:
    headers = {"Tenant": "eu", "Nats-Msg-Id": "bill-1"}
    ack = await theirs.publish("bills.eu", b"\x00pay\xff", headers=headers)

    await give_up(theirs, 1)
    (given_up,) = await engine.advisories.take(10, 5.0)

    delivery = given_up.delivery
    assert delivery.message.body == b"\x00pay\xff"
    assert delivery.message.id == "bill-1"
    assert delivery.message.headers == (("Tenant", b"eu"),)
    assert (delivery.mailbox, delivery.attempt) == ("bills.eu", LIMIT)
    assert delivery.position == f"BILLS/{ack.seq}"
    assert given_up.reason == (
        "the consumer payer of the stream BILLS gave up after 2 deliveries"
    )
    assert not given_up.gone


async def test_nothing_is_missed_while_nobody_listens(
    theirs: JetStreamContext, nats_server: Server
) -> None:
    url = fresh(nats_server.url)
    async with opened(url) as engine:
        await engine.advisories.listen()
    for number in range(20):
        await theirs.publish("bills.eu", b"%d" % number)

    await give_up(theirs, 20)

    async with opened(url) as engine:
        found: list[Exhausted] = []
        try:
            while len(found) < 20 and (batch := await engine.advisories.take(7, 5.0)):
                found += batch
            await engine.advisories.forget(found)
            left = await engine.advisories.take(1, 0.0)
        finally:
            await engine._link.ask(f"STREAM.DELETE.{engine.advisories._place.stream}")
    bodies = sorted(int(given_up.delivery.message.body) for given_up in found)
    assert bodies == list(range(20))
    assert left == []


async def test_what_was_kept_elsewhere_can_be_removed(
    theirs: JetStreamContext, engine: NatsEngine
) -> None:
    await theirs.publish("bills.eu", b"one")
    await theirs.publish("bills.us", b"stays")
    await give_up(theirs, 2)
    found = await engine.advisories.take(10, 5.0)

    one = [g for g in found if g.delivery.mailbox == "bills.eu"]
    await engine.advisories.forget(one, remove=True)

    assert (await theirs.stream_info("BILLS")).state.messages == 1


async def test_only_one_stream_can_catch_them(
    engine: NatsEngine, nats_server: Server
) -> None:
    async with opened(fresh(nats_server.url)) as second:
        with pytest.raises(ConfigError, match="use that one, or delete it"):
            await second.advisories.take(1, 0.0)


async def test_what_limits_have_removed_is_told_all_the_same(
    theirs: JetStreamContext, engine: NatsEngine
) -> None:
    ack = await theirs.publish("bills.eu", b"gone soon")
    await give_up(theirs, 1)
    await theirs.delete_msg("BILLS", ack.seq)

    (given_up,) = await engine.advisories.take(10, 5.0)

    assert given_up.gone
    assert given_up.delivery.message.body == b""
    assert given_up.delivery.position == f"BILLS/{ack.seq}"
    assert "had removed it" in given_up.reason
