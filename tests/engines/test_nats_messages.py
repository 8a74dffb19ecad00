"""What NATS is told and what it tells back: no message vanishes, none is altered."""

from collections.abc import AsyncIterator

import nats
import pytest
from msgspec import structs

from deadletter.brokers.nats.engine import NatsEngine
from deadletter.core.errors import Refused
from deadletter.core.message import Lineage, Message
from deadletter.ports import Acked, Released
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import LEASE, a_message, drained, info, release
from engines.nats_rig import fresh, opened
from servers import Server


@pytest.fixture
async def engine(nats_server: Server) -> AsyncIterator[NatsEngine]:
    async with opened(fresh(nats_server.url)) as engine:
        yield engine


async def arrived(engine: NatsEngine) -> list[Message]:
    return [d.message for d in await drained(engine.broker.source("orders"))]


async def test_the_same_message_sent_again_arrives_once(engine: NatsEngine) -> None:
    message = a_message()
    sink = engine.broker.sink("orders")

    await sink.send([message])
    await sink.send([message])

    assert await arrived(engine) == [message]


async def test_another_body_under_the_same_id_arrives_too(engine: NatsEngine) -> None:
    first = a_message(b"one", id="same")
    second = a_message(b"two", id="same")
    third = a_message(b"two", id="same", headers=(("tenant", b"eu"),))
    sink = engine.broker.sink("orders")

    await sink.send([first])
    await sink.send([second, third])

    assert await arrived(engine) == [first, second, third]


async def test_a_replayed_copy_arrives_each_time(engine: NatsEngine) -> None:
    original = a_message()
    copies = [
        structs.replace(original, lineage=Lineage(letter_id="l", generation=n, campaign="c"))
        for n in (1, 2, 3)
    ]
    sink = engine.broker.sink("orders")

    for message in (original, *copies):
        await sink.send([message])

    assert await arrived(engine) == [original, *copies]


async def test_a_repetition_of_what_was_handled_does_not_come_back(engine: NatsEngine) -> None:
    message, sink = a_message(), engine.broker.sink("orders")
    source = engine.broker.source("orders")
    await sink.send([message])
    (delivery,) = await drained(source)
    assert await source.settle([Acked(delivery)]) == [True]

    await sink.send([message])

    assert await drained(source) == []


@pytest.mark.parametrize(
    "headers",
    [
        (("tenant", b"eu"), ("Shard", b"7 of 9")),
        (("tenant", b"eu"), ("tenant", b"us")),
        (("tenant", b"eu"), ("Tenant", b"us")),
        (("odd", b" spaces "), ("empty", b"")),
        (("bytes", bytes(range(256))),),
        (("line", b"a\r\nNats-Rollup: all"),),
        (("Nats-Msg-Id", b"mine"), ("dlq-message", b"{}"), ("Status", b"503")),
        (("name: with colon", b"x"), ("", b"y"), ("ü", b"z")),
    ],
)
async def test_headers_of_any_kind_arrive_as_they_were_sent(
    engine: NatsEngine, headers: tuple[tuple[str, bytes], ...]
) -> None:
    message = a_message(headers=headers)

    await engine.broker.sink("orders").send([message])

    assert await arrived(engine) == [message]


async def test_more_headers_than_the_server_takes_are_refused_before_anything_goes(
    engine: NatsEngine,
) -> None:
    long = a_message(headers=tuple((f"h-{n}", b"x" * 8_000) for n in range(9)))

    with pytest.raises(Refused, match=r"72,.* bytes of headers .* NATS accepts 64,000"):
        await engine.broker.sink("orders").send([a_message(), long])

    assert await arrived(engine) == []


async def test_usual_headers_can_be_read_by_everybody(
    engine: NatsEngine, nats_server: Server
) -> None:
    message = a_message(b"plain", headers=(("tenant", b"eu"),))
    await engine.broker.sink("orders").send([message])
    place = engine.broker.source("orders")._box.place
    client = await nats.connect(nats_server.url)

    raw = await client.jetstream().get_last_msg(place.stream, place.subject)

    assert raw.data == b"plain"
    assert raw.headers is not None
    assert raw.headers["tenant"] == "eu"
    await client.close()


@pytest.mark.parametrize("ours", ["not json", "{}", '{"id": 7}', "[]"])
async def test_foreign_content_of_our_header_is_ignored(
    engine: NatsEngine, nats_server: Server, ours: str
) -> None:
    await engine.broker.sink("orders").send([])
    source = engine.broker.source("orders")
    await source.receive(limit=1, wait=0, lease=LEASE)
    place = source._box.place
    client = await nats.connect(nats_server.url)
    try:
        headers = {"dlq-message": ours, "Nats-Msg-Id": "theirs"}
        await client.jetstream().publish(place.subject, b"\xff", headers=headers)

        (delivery,) = await source.receive(limit=9, wait=10, lease=LEASE)
    finally:
        await client.close()
    message = delivery.message
    assert (message.id, message.body, message.headers) == ("theirs", b"\xff", ())


async def test_delivery_notes_are_deleted_with_their_message(engine: NatsEngine) -> None:
    await engine.broker.sink("orders").send([a_message() for _ in range(3)])
    source = engine.broker.source("orders")
    deliveries = await drained(source)
    await source.settle([Released(d, history="told") for d in deliveries])
    notes = source._box.notes

    async def noted() -> int:
        book = await notes._link.ask(f"STREAM.INFO.{notes._book}")
        return int(book["state"]["messages"]) - 1  # the list of mailboxes

    assert await noted() == 3
    again = await drained(source)
    assert {d.history for d in again} == {"told"}
    assert await source.settle([Acked(d) for d in again]) == [True] * 3

    await eventually(lambda: _is(noted, 0))


async def test_a_deleted_mailbox_leaves_no_notes_for_its_successor(engine: NatsEngine) -> None:
    source = engine.broker.source("orders")
    await engine.broker.sink("orders").send([a_message()])
    (delivery,) = await drained(source)
    await release(source, delivery, history="of the old one")
    await engine.broker.delete("orders")

    await engine.broker.sink("orders").send([a_message()])

    (fresh_one,) = await drained(source)
    await release(source, fresh_one)
    (again,) = await drained(source)
    assert (again.attempt, again.history) == (2, "")
    assert (await info(engine.broker)).claimed == 1


async def _is(count, expected: int) -> bool:
    return await count() == expected
