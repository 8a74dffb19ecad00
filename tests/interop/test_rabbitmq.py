"""
Other people's queues on RabbitMQ, there and back: none lost, doubled or changed.

The foreign client is pika.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deadletter.brokers.rabbitmq import drain_properties as amqp_properties
from deadletter.brokers.rabbitmq.drain_journal import Marks
from deadletter.core.campaign import Care, Outcome
from deadletter.core.letter import State
from deadletter.core.message import Lineage, Message
from deadletter.office.replay import Replay
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import SeededDice
from deadletter.wiring.foreign import WayBack, opened_foreign
from intake.rig import BY, drained, intake, letters, sent_back, store
from interop.rabbitmq_shop import KINDS, Shop
from servers import Server

pytestmark = pytest.mark.engines


@pytest.fixture(params=KINDS)
def shop(rabbitmq_server: Server, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = Shop(rabbitmq_server.url, request.param)
    yield made
    made.connection.close()


@pytest.fixture
def classic(rabbitmq_server: Server) -> Iterator[Shop]:
    made = Shop(rabbitmq_server.url)
    yield made
    made.connection.close()


@pytest.fixture
def office() -> MemoryEngine:
    return MemoryEngine(clock=SystemClock(), dice=SeededDice())


# Draining.


async def test_equal_messages_without_ids_are_all_kept(shop: Shop, office: MemoryEngine) -> None:
    for _ in range(100):
        shop.send(b"same")
    shop.reject(100)

    async with opened_foreign(shop.url) as foreign:
        looking = intake(foreign.drain(shop.dead), office)
        assert len(await looking.look(20)) == 20
        await looking.end()
        for _ in range(3):
            some = intake(foreign.drain(shop.dead), office)
            assert len(await some.once(10)) == 10
            await some.end()
        await drained(foreign.drain(shop.dead), office)

    assert len(await letters(office)) == 100
    assert shop.depth(shop.dead) == 0
    assert not shop.has(f"deadletter.drain.{shop.dead}")


async def test_queues_of_ours_expire(classic: Shop, office: MemoryEngine) -> None:
    day = 24 * 3600 * 1000
    journal = {"x-max-length": 1, "x-overflow": "drop-head", "x-expires": 14 * day}
    lineage = Lineage(letter_id="a" * 24, generation=1, campaign=classic.name)
    copy = Message(id="m-1", body=b"b", sent_at=datetime.now(UTC), lineage=lineage)
    marks = Marks(classic.name, classic.name, lambda: asyncio.sleep(0))
    classic.send(b"same", key=classic.dead)

    async with opened_foreign(classic.url) as foreign:
        drain = foreign.drain(classic.dead)
        await drain.take(1)
        await foreign.sink(classic.name).send([copy])
        # The broker refuses another declaration than the first.
        for queue, arguments in (
            (f"deadletter.drain.{classic.dead}", journal),
            (marks.queue, {"x-expires": day}),
        ):
            classic.channel.queue_declare(queue, durable=True, arguments=arguments)
        await drain.close()


async def test_two_drains_at_once_keep_each_message_once(
    classic: Shop, office: MemoryEngine
) -> None:
    for _ in range(60):
        classic.send(b"same", key=classic.dead)

    async def drain() -> None:
        async with opened_foreign(classic.url) as foreign:
            some = intake(foreign.drain(classic.dead), office)
            while await some.once(5):
                pass
            await some.end()

    await asyncio.gather(drain(), drain())

    assert len(await letters(office)) == 60


async def test_a_drain_takes_no_more_than_it_is_asked_for(shop: Shop, office: MemoryEngine) -> None:
    for number in range(4):
        shop.send(b"body", key=shop.dead, message_id=str(number))

    async with opened_foreign(shop.url) as foreign:
        some = intake(foreign.drain(shop.dead), office)
        await some.once(2)
        await some.end()

    left = [shop.next(shop.dead)[0].redelivered for _ in range(2)]
    assert left == [False, False]


# The way back.


async def refusals(office: MemoryEngine) -> list[str]:
    """Why letters were not sent."""
    [campaign] = await store(office).campaigns(limit=1)
    page = await store(office).campaign_items(campaign.id, limit=100)
    return [one.why for one in page.items if one.outcome is Outcome.REFUSED]


async def test_the_home_is_found_behind_delay_queues(
    shop: Shop, rabbitmq_server: Server, office: MemoryEngine
) -> None:
    delay = f"{shop.name}.delay"
    shop.declare(delay, dead=shop.name, **{"x-message-ttl": 1})
    shop.send(b"late", key=delay, message_id="m")
    shop.reject()

    async with opened_foreign(shop.url) as foreign:
        [letter] = await drained(foreign.drain(shop.dead), office)
        await sent_back(foreign, shop.url, office)

    assert letter.head.source == shop.name
    assert shop.next(shop.name)[2] == b"late"


async def test_a_topic_consumer_sees_its_routing_key_again(
    shop: Shop, office: MemoryEngine
) -> None:
    exchange = f"{shop.name}.events"
    shop.channel.exchange_declare(exchange, "topic", durable=True)
    shop.channel.queue_bind(shop.name, exchange, "order.*.created")
    shop.send(b"order", exchange=exchange, key="order.eu.created")
    shop.reject()

    async with opened_foreign(shop.url) as foreign:
        await drained(foreign.drain(shop.dead), office)
        await sent_back(foreign, shop.url, office)

    method, _, _ = shop.next(shop.name)
    assert (method.exchange, method.routing_key) == (exchange, "order.eu.created")


async def test_letters_go_straight_into_their_queue_if_the_url_says_so(
    classic: Shop, office: MemoryEngine
) -> None:
    exchange = f"{classic.name}.events"
    others = f"{classic.name}.others"
    classic.declare(others)
    classic.channel.exchange_declare(exchange, "fanout", durable=True)
    for queue in (classic.name, others):
        classic.channel.queue_bind(queue, exchange)
    classic.send(b"order", exchange=exchange, key="any")
    classic.reject()
    classic.handle(others)

    url = f"{classic.url}?back=queue"
    async with opened_foreign(url) as foreign:
        await drained(foreign.drain(classic.dead), office)
        await sent_back(foreign, url, office)

    assert classic.next(classic.name)[0].routing_key == classic.name
    assert classic.depth(others) == 0


async def test_a_copy_that_leads_nowhere_was_not_sent(classic: Shop, office: MemoryEngine) -> None:
    exchange = f"{classic.name}.events"
    classic.channel.exchange_declare(exchange, "topic", durable=True)
    classic.channel.queue_bind(classic.name, exchange, "order.#")
    for key in ("order.eu", "order.us"):
        classic.send(key.encode(), exchange=exchange, key=key)
    classic.reject(2)
    classic.channel.queue_unbind(classic.name, exchange, "order.#")
    classic.channel.queue_bind(classic.name, exchange, "order.eu")

    async with opened_foreign(classic.url) as foreign:
        await drained(foreign.drain(classic.dead), office)
        await sent_back(foreign, classic.url, office)

    assert [body for _, _, body in classic.handle()] == [b"order.eu"]
    [why] = await refusals(office)
    assert "no queue is bound" in why
    assert "order.us" in why
    states = {one.message.body: one.head.state for one in await letters(office)}
    assert states == {b"order.eu": State.REPLAYING, b"order.us": State.PENDING}


async def test_a_missing_exchange_says_what_to_do(classic: Shop, office: MemoryEngine) -> None:
    exchange = f"{classic.name}.events"
    classic.channel.exchange_declare(exchange, "fanout", durable=True)
    classic.channel.queue_bind(classic.name, exchange)
    classic.send(b"order", exchange=exchange, key="any")
    classic.reject()
    classic.channel.exchange_delete(exchange)

    async with opened_foreign(classic.url) as foreign:
        await drained(foreign.drain(classic.dead), office)
        await sent_back(foreign, classic.url, office)

    [why] = await refusals(office)
    assert "is gone: make it again, or add ?back=queue" in why


async def test_letters_go_back_oldest_first(shop: Shop, office: MemoryEngine) -> None:
    for number in range(30):
        shop.send(b"%d" % number)
    shop.reject(30)

    async with opened_foreign(shop.url) as foreign:
        await drained(foreign.drain(shop.dead), office)
        await sent_back(foreign, shop.url, office)

    assert [int(body) for _, _, body in shop.handle()] == list(range(30))


async def test_a_copy_that_dies_again_returns_and_one_that_is_handled_does_not(
    shop: Shop, office: MemoryEngine
) -> None:
    for _ in range(2):
        shop.send(b"same")
    shop.reject(2)

    async with opened_foreign(shop.url) as foreign:
        first = await drained(foreign.drain(shop.dead), office)
        await sent_back(foreign, shop.url, office)
        shop.reject()
        assert len(shop.handle()) == 1
        [again] = await drained(foreign.drain(shop.dead), office)

    assert again.id in {letter.id for letter in first}
    states = Counter(letter.head.state for letter in await letters(office))
    assert states == {State.PENDING: 1, State.REPLAYING: 1}


# Content.


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _table(entries: dict[str, bytes]) -> bytes:
    named = (
        bytes((len(name.encode()),)) + name.encode() + value for name, value in entries.items()
    )
    return b"F" + _sized(b"".join(named))


NUMBERS = {
    b"b": st.integers(-(2**7), 2**7 - 1).map(struct.Struct(">b").pack),
    b"B": st.integers(0, 2**8 - 1).map(struct.Struct(">B").pack),
    b"s": st.integers(-(2**15), 2**15 - 1).map(struct.Struct(">h").pack),
    b"u": st.integers(0, 2**16 - 1).map(struct.Struct(">H").pack),
    b"I": st.integers(-(2**31), 2**31 - 1).map(struct.Struct(">i").pack),
    b"i": st.integers(0, 2**32 - 1).map(struct.Struct(">I").pack),
    b"l": st.integers(-(2**63), 2**63 - 1).map(struct.Struct(">q").pack),
    b"f": st.floats(width=32, allow_nan=False, allow_infinity=False).map(struct.Struct(">f").pack),
    b"d": st.floats(allow_nan=False, allow_infinity=False).map(struct.Struct(">d").pack),
    b"t": st.booleans().map(struct.Struct(">?").pack),
    b"T": st.integers(0, 2**32).map(struct.Struct(">Q").pack),
    b"V": st.just(b""),
    b"D": st.tuples(st.integers(0, 9), st.integers(0, 2**31 - 1)).map(
        lambda pair: struct.pack(">BI", *pair)
    ),
    b"S": st.text(st.characters(codec="utf-8"), max_size=8).map(lambda text: _sized(text.encode())),
    b"x": st.binary(max_size=8).map(_sized),
}
names = st.text("abcxyz-ü", min_size=1, max_size=8)
plain = st.one_of(
    [kind.map(letter.__add__) for letter, kind in NUMBERS.items()]  # type: ignore[arg-type]
)


fields = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda some: b"A" + _sized(b"".join(some))),
        st.dictionaries(names, inner, max_size=3).map(_table),
    ),
    max_leaves=6,
)
texts = st.none() | st.text("abc:/ü", min_size=1, max_size=20)
properties = st.fixed_dictionaries(
    {
        "content_type": texts,
        "content_encoding": texts,
        "delivery_mode": st.sampled_from((None, 1, 2)),
        "priority": st.none() | st.integers(0, 255),
        "correlation_id": texts,
        "reply_to": texts,
        "expiration": st.none() | st.just("3600000"),
        "message_id": texts,
        "timestamp": st.none() | st.integers(0, 2**40),
        "type": texts,
        "app_id": texts,
    }
)


class _Encoded(pika.BasicProperties):  # type: ignore[misc]
    """Properties whose table of headers is encoded already."""

    def __init__(self, table: bytes, **given: Any) -> None:
        super().__init__(headers={}, **given)
        self._table = table

    def encode(self) -> list[bytes]:
        pieces = super().encode()
        # The empty table is the only piece of four zeros.
        return [self._table if piece == bytes(4) else piece for piece in pieces]


@given(
    st.lists(
        st.tuples(st.dictionaries(names, fields, max_size=5), properties), min_size=20, max_size=40
    )
)
@settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # with a server, shrinking takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_headers_and_properties_are_the_same_bytes_again(
    classic: Shop, sent: list[tuple[dict[str, bytes], dict[str, Any]]]
) -> None:
    """Of what the consumer was handed first, and is handed again."""
    office = MemoryEngine(clock=SystemClock(), dice=SeededDice())
    for number, (headers, given_ones) in enumerate(sent):
        table = _table({"n": b"I" + struct.pack(">i", number), **headers})[1:]
        classic.channel.basic_publish(
            "", classic.name, b"%d" % number, _Encoded(table, **given_ones)
        )
    first = asyncio.run(_peeked(classic, len(sent)))
    classic.reject(len(sent))

    asyncio.run(_there_and_back(classic, office))

    again = asyncio.run(_peeked(classic, len(sent)))
    classic.handle()
    for body, header in first.items():
        assert _comparable(again[body]) == _comparable(header)


async def _peeked(shop: Shop, number: int) -> dict[bytes, bytes]:
    """Headers of messages as they travel, by their bodies; all stay there."""
    from pamqp import commands as spec

    from deadletter.brokers.amqp.address import read_url
    from deadletter.brokers.amqp.connection import connect
    from deadletter.brokers.amqp.frames import Content

    connection = await connect(read_url(shop.url))
    channel = await connection.channel()
    found: dict[bytes, bytes] = {}
    for _ in range(number):
        content = await channel.call(spec.Basic.Get(queue=shop.name))
        assert isinstance(content, Content)
        found[content.body] = content.properties
    await channel.leave()
    await connection.close()
    assert len(found) == number
    return found


async def _there_and_back(shop: Shop, office: MemoryEngine) -> None:
    async with opened_foreign(shop.url) as foreign:
        await drained(foreign.drain(shop.dead), office)
        way = WayBack(foreign, shop.url)
        replay = Replay(store(office), way, SystemClock(), SystemDice())
        campaign = await replay.start("is:pending", BY, care=Care(key_order=False))
        await replay.run(campaign.id)


def _comparable(header: bytes) -> tuple[dict[str, bytes], list[tuple[str, bytes]]]:
    read = amqp_properties.read(header)
    assert read is not None
    plain = {**read.plain}
    plain.pop("message_id", None) if "sha256-" in str(plain.get("message_id")) else None
    # The broker sorts headers by their names when a message dies.
    return plain, sorted(one for one in read.headers or () if not one[0].startswith("dlq-"))


async def test_pika_reads_the_values_that_it_wrote(shop: Shop, office: MemoryEngine) -> None:
    headers = {
        "small": 7,
        "large": 2**40,
        "price": Decimal("12.34"),
        "at": datetime(2026, 5, 4, tzinfo=UTC),
        "bytes": b"\xff\x00",
        "text": "ü",
        "none": None,
        "list": [1, "a", {"deep": [2**40, None]}],
        "yes": True,
    }
    shop.send(b"body", headers=headers, expiration="3600000", priority=3, type="order")
    _, before, _ = shop.next(shop.name)
    shop.channel.basic_nack(0, multiple=True)
    shop.reject()

    await _there_and_back(shop, office)

    _, after, _ = shop.next(shop.name)
    for name in headers:
        assert after.headers[name] == before.headers[name]
    names = ("expiration", "priority", "type", "delivery_mode", "content_type")
    assert [getattr(after, n) for n in names] == [getattr(before, n) for n in names]
