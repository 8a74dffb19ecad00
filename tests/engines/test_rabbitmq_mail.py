"""Messages of others come whole, ours can be read by others, no byte is changed."""

import struct
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aiormq
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from deadletter.brokers.amqp import frames
from deadletter.brokers.rabbitmq import messages as table
from deadletter.brokers.rabbitmq import queues
from deadletter.brokers.rabbitmq.engine import RabbitEngine
from deadletter.brokers.rabbitmq.messages import NEW, Story, Unpacked, packed, unpacked
from deadletter.core.message import Message
from deadletter.core.signing import Keys
from deadletter.testing.fakes import START
from deadletter.testing.queue_bench import a_message, release
from deadletter.testing.queue_contract import messages
from engines.rabbitmq_rig import opened, usual
from servers import Server

_HEADER = struct.pack(">HHQ", 60, 0, 0)
KEYS = Keys(b"the key of this office")


def sent(message: Message, story: Story = NEW) -> bytes:
    return _HEADER + packed(message, story, to="orders", keys=KEYS)


def read_back(header: bytes, body: bytes, keys: Keys = KEYS, mailbox: str = "orders") -> Unpacked:
    return unpacked(header, body, START, mailbox=mailbox, keys=keys)


stories = st.builds(
    Story,
    attempts=st.integers(0, 2**31),
    spared=st.integers(0, 2**31),
    first_at=st.none() | st.integers(0, 2**60),
    history=st.text(),
    left=st.integers(0, 2**60),
    copied=st.just(True),
)


@pytest.fixture
async def engine(rabbitmq_server: Server) -> AsyncIterator[RabbitEngine]:
    async with opened(rabbitmq_server.url) as engine:
        await engine.broker.sink("orders").send([])
        await usual(engine, 1)  # now there is a queue
        yield engine


async def publish(server: Server, body: bytes, **properties: object) -> None:
    """Somebody who does not know us sends something."""
    connection = await aiormq.connect(server.url)
    channel = await connection.channel()
    properties.setdefault("delivery_mode", 2)
    await channel.basic_publish(
        body,
        routing_key="orders",
        properties=Basic.Properties(**properties),  # type: ignore[arg-type]
    )
    await connection.close()


@given(message=messages, story=stories)
def test_packed_messages_are_unpacked_unchanged(message: Message, story: Story) -> None:
    read = read_back(sent(message, story), message.body)

    assert (read.message, read.story, read.lost) == (message, story, 0)


def test_a_story_that_none_of_us_has_signed_is_the_users() -> None:
    message = a_message(b"x", headers=(("a", b"1"),))
    story = Story(attempts=99, history="lies", left=5, copied=True)
    header = sent(message, story)

    for lie in (
        read_back(header, b"x", Keys(b"another key")),
        read_back(header, b"x", mailbox="payments"),
        read_back(header, b"y"),
    ):
        assert lie.unsigned
        assert lie.story == Story(left=5)
        assert lie.message.headers[0] == ("a", b"1")
        assert dict(lie.message.headers)["dlq-history"] == b"lies"
    assert read_back(header, b"x").story == story


def test_a_delay_needs_no_signature() -> None:
    """A producer may belong to another office, and has a wish to wait anyway."""
    waiting = sent(a_message(b"x"), Story(left=5, copied=True))
    read = read_back(waiting, b"x", Keys(b"b"))

    assert (read.story, read.unsigned) == (Story(left=5), False)


@pytest.mark.parametrize("at", [10**18, -(10**18)])
def test_times_that_no_calendar_has_do_not_stop_the_worker(at: int) -> None:
    more = msgspec.msgpack.encode({"at": at})
    entries = [table.binary(b"dlq-more", more)]

    read = read_back(_HEADER + table.write({}, entries), b"x")

    assert read.message.sent_at == START


@given(message=messages, long=st.sampled_from(["id", "content_type", "reply_to"]))
def test_values_too_long_for_amqp_properties_are_restored(message: Message, long: str) -> None:
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    stretched = Message(**{**fields, long: "ü" * 500})

    read = read_back(sent(stretched), stretched.body)

    assert read.message == stretched


@given(noise=st.binary(max_size=200), body=st.binary(max_size=20))
def test_properties_that_are_none_do_not_hide_the_body(noise: bytes, body: bytes) -> None:
    assert read_back(_HEADER + noise, body).message.body == body


@given(st.data())
def test_acks_name_each_delivery_once_and_no_other(data: st.DataObject) -> None:
    unacked = sorted(data.draw(st.sets(st.integers(1, 60), min_size=1)))
    tags = set(data.draw(st.lists(st.sampled_from(unacked), min_size=1)))

    forgotten: set[int] = set()
    for frame in frames.acks(7, tags, unacked):
        tag, multiple = frames.confirmed(frame[7:-1])
        named = {t for t in unacked if t <= tag} if multiple else {tag}
        assert multiple or not named & forgotten
        forgotten |= named

    assert forgotten == tags


@given(st.integers(1, 10 * queues.LONGEST_DELAY))
def test_a_delay_waits_among_those_that_wait_less_than_twice_as_long(delay: int) -> None:
    at = queues.delay_bucket(delay)

    assert at in queues.delay_buckets()
    assert at <= max(delay, queues.SHORTEST_DELAY)
    assert delay < 2 * at or at * 2 > queues.LONGEST_DELAY


async def test_a_message_of_somebody_else_comes_whole(
    engine: RabbitEngine, rabbitmq_server: Server
) -> None:
    at = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    await publish(
        rabbitmq_server,
        b"\x00\xff",
        message_id="theirs-1",
        content_type="application/x-odd",
        correlation_id="c-1",
        message_type="order",
        reply_to="answers",
        timestamp=at,
        headers={"tenant": "eu", "retries": 3, "deep": {"er": [1, 2]}, "traceparent": "00-1-2-01"},
    )

    (delivery,) = await usual(engine, 1)

    message = delivery.message
    assert (message.id, message.body, message.sent_at) == ("theirs-1", b"\x00\xff", at)
    assert (message.content_type, message.reply_to) == ("application/x-odd", "answers")
    assert message.traceparent == "00-1-2-01"
    assert dict(message.headers) == {
        "tenant": b"eu",
        "retries": b"3",
        "deep": b'{"er":[1,2]}',
        "traceparent": b"00-1-2-01",
        "amqp-correlation-id": b"c-1",
        "amqp-type": b"order",
    }
    assert (delivery.attempt, delivery.suspect) == (1, False)


async def test_a_message_without_an_id_keeps_the_one_it_gets(
    engine: RabbitEngine, rabbitmq_server: Server
) -> None:
    await publish(rabbitmq_server, b"one")
    await publish(rabbitmq_server, b"two")
    one, two = await usual(engine, 2)
    source = engine.broker.source("orders")

    await release(source, one)
    (again,) = await usual(engine, 1)

    assert one.message.id
    assert one.message.id != two.message.id
    assert again.message == one.message


async def test_earlier_x_death_headers_survive_a_delay_unchanged(
    engine: RabbitEngine, rabbitmq_server: Server
) -> None:
    # The broker drops what it takes for a circle, and adds to these headers itself.
    death = {"queue": "orders", "reason": "expired", "count": 3, "exchange": ""}
    await publish(
        rabbitmq_server,
        b"dead once",
        message_id="d-1",
        headers={"x-death": [death], "x-first-death-queue": "orders", "a": "b"},
    )
    (first,) = await usual(engine, 1)
    source = engine.broker.source("orders")

    await release(source, first, 0.3, history="told")
    (second,) = await usual(engine, 1, wait=5.0)
    await release(source, second, 0.3)
    (third,) = await usual(engine, 1, wait=5.0)

    assert first.message.header("x-death")
    assert first.message == second.message == third.message
    assert (third.attempt, third.history) == (3, "told")


async def test_ours_can_be_read_by_others(engine: RabbitEngine, rabbitmq_server: Server) -> None:
    message = a_message(
        b'{"n": 1}',
        content_type="application/json",
        reply_to="answers",
        headers=(("tenant", b"eu"), ("amqp-correlation-id", b"c-9")),
    )
    plain = a_message(headers=(("zebra", b"1"), ("apple", b"2")))
    reading = engine._mailboxes._box("orders")
    await reading.give_back()  # they are for somebody else
    await engine.broker.sink("orders").send([message, plain])

    connection = await aiormq.connect(rabbitmq_server.url)
    channel = await connection.channel()
    got = await channel.basic_get("orders")
    other = await channel.basic_get("orders")
    await connection.close()

    properties = got.header.properties
    assert (got.body, properties.message_id) == (message.body, message.id)
    assert properties.content_type == "application/json"
    assert (properties.reply_to, properties.delivery_mode) == ("answers", 2)
    assert properties.correlation_id == "c-9"
    headers = other.header.properties.headers or {}
    assert (headers["zebra"], headers["apple"]) == ("1", "2")
