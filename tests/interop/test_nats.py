"""NATS with nats-py as the client of others: drained, sent back, dying, killed."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from nats.js import api

from cli.conftest import Command, dlq
from deadletter.brokers.nats.drain import ADVISORIES, STREAM
from deadletter.core.campaign import Outcome
from deadletter.core.letter import State
from deadletter.intake.dialects import origin_of
from deadletter.ports import Arrival, CopyState, QueueOptions, SentCopy
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice, eventually
from deadletter.wiring.engines import opened
from deadletter.wiring.foreign import opened_foreign
from intake.conftest import office
from intake.rig import letters
from interop.clouds import (
    ONCE_EACH,
    POINTS,
    Foe,
    all_at_once,
    copy_of,
    counts_by_command,
    drain_by_command,
    eventually_done,
    replay_by_command,
    sent_back,
    taken_in,
    working,
)
from servers import Server

__all__ = ["dlq", "office"]

_numbers = count(1)
COUNT = 12  # messages in a place whose drain is killed


class Shop:
    """A work queue whose consumer gives up at the second failure, and a dead stream."""

    def __init__(self, client: Any) -> None:
        number = next(_numbers)
        self.client = client
        self.js: Any = client.jetstream()
        self.stream, self.subject = f"SHOP{number}", f"shop{number}.orders.new"
        self.dead, self.dead_subject = f"SHOP{number}-DLQ", f"dead{number}.orders"
        self.pull: Any = None

    async def make(self) -> "Shop":
        await self.js.add_stream(
            name=self.stream, subjects=[self.subject], retention=api.RetentionPolicy.WORK_QUEUE
        )
        await self.js.add_stream(name=self.dead, subjects=[self.dead_subject])
        config = api.ConsumerConfig(durable_name="worker", max_deliver=2, ack_wait=0.1)
        await self.js.add_consumer(self.stream, config)
        self.pull = await self.js.pull_subscribe_bind("worker", self.stream)
        return self

    async def fetch(self, number: int = 1) -> list[Any]:
        found: list[Any] = []
        with suppress(TimeoutError):
            while len(found) < number:
                found += await self.pull.fetch(number - len(found), 2)
        return found

    async def contents(self) -> list[Any]:
        """All messages that the stream has, in order, as they are there."""
        state = (await self.js.stream_info(self.stream)).state
        numbers = range(state.first_seq, state.last_seq + 1)
        return [await self.js.get_msg(self.stream, number) for number in numbers]

    async def die(self, number: int = 1) -> None:
        """Refuse them until the server says, once for each, that it gives up."""
        before = await self._said()

        async def told() -> bool:
            with suppress(TimeoutError):
                for message in await self.pull.fetch(number, 0.2):
                    await message.nak()
            return await self._said() >= before + number

        await eventually(told, within=20)

    async def publish_raw(self, subject: str, block: bytes, body: bytes) -> None:
        """Publish as a client of another language may: headers as these bytes."""
        head = f"HPUB {subject} {len(block)} {len(block) + len(body)}\r\n".encode()
        self.client._transport.write(head + block + body + b"\r\n")
        await self.client.flush()

    async def _said(self) -> int:
        return int((await self.js.stream_info(STREAM)).state.last_seq)


@pytest.fixture
async def client(nats_server: Server) -> AsyncIterator[Any]:
    client = await nats.connect(nats_server.url)
    js = client.jetstream()
    for info in await js.streams_info():
        await js.delete_stream(info.config.name or "")
    async with opened_foreign(nats_server.url) as foreign:
        drain = foreign.drain(ADVISORIES)  # listens from now on
        await drain.depth()
        await drain.close()
    yield client
    await client.close()


def block(*lines: bytes) -> bytes:
    return b"\r\n".join((b"NATS/1.0", *lines, b"", b""))


def of_producer(raw: bytes) -> bytes:
    """The headers without those of a replay."""
    lines = raw.split(b"\r\n")
    ours = (b"dlq-replay-", b"Nats-Msg-Id: dlq~")
    return b"\r\n".join(line for line in lines if not line.startswith(ours))


LINES = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=30).map(lambda value: b"X-Any: " + value),
        st.sampled_from(
            [
                b"Tenant: eu",
                b"Tenant: us",  # twice is both
                "Grüße: schöne".encode(),
                b"Tight:value",
                b"Spaced:   value  ",
                b"With Space: v",
                b"\xff\xfe: not utf-8",
                b"Empty:",
            ]
        ),
    ).filter(lambda line: not {13, 10} & set(line)),
    max_size=6,
)
MESSAGES = st.lists(st.tuples(LINES, st.binary(max_size=40)), min_size=4, max_size=10)


@ONCE_EACH
@given(messages=MESSAGES)
async def test_every_message_goes_back_as_its_producer_sent_it(
    nats_server: Server, messages: list[tuple[list[bytes], bytes]]
) -> None:
    client = await nats.connect(nats_server.url)
    shop = await Shop(client).make()
    office = MemoryEngine(clock=SystemClock(), dice=SeededDice())
    for lines, body in messages:
        await shop.publish_raw(shop.subject, block(*lines), body)
    number = len(messages)
    async with opened_foreign(nats_server.url) as foreign:
        await foreign.drain(ADVISORIES).depth()
        for _ in range(2):  # the second time it dies as a copy
            await shop.die(number)
            await taken_in(foreign.drain(ADVISORIES), office, number)
            await sent_back(foreign, nats_server.url, office)

    found = [(of_producer(b64decode(raw.hdrs)), raw.data or b"") for raw in await shop.contents()]
    await client.close()
    wanted = [(block(*lines), body) for lines, body in messages]
    assert sorted(found) == sorted(wanted)
    assert len(await letters(office)) == number


async def test_all_values_of_a_header_are_kept_in_order_and_the_subject_is_said(
    nats_server: Server, client: Any, office: MemoryEngine
) -> None:
    shop = await Shop(client).make()
    lines = (b"tag: one", b"tag: two", "stadt: Köln".encode())
    await shop.publish_raw(shop.dead_subject, block(*lines), b"body")
    async with opened_foreign(nats_server.url) as foreign:
        [letter] = await taken_in(foreign.drain(shop.dead), office, 1)

    origin = origin_of(letter.message)
    assert letter.message.headers[:3] == (
        ("tag", b"one"),
        ("tag", b"two"),
        ("stadt", "Köln".encode()),
    )
    assert origin is not None
    assert origin.said["subject"] == shop.dead_subject


async def test_a_letter_that_the_server_refuses_does_not_stop_the_others(
    nats_server: Server, client: Any, office: MemoryEngine
) -> None:
    shop = await Shop(client).make()
    info = await shop.js.stream_info(shop.stream)
    await shop.js.update_stream(info.config.evolve(max_msg_size=1_000))
    headers = {"topic_poisoned": shop.subject, "reason_poisoned": "no price"}
    for size in (1, 2_000, 2):
        await shop.js.publish(shop.dead_subject, b"x" * size, headers=headers)
    async with opened_foreign(nats_server.url) as foreign:
        await taken_in(foreign.drain(shop.dead), office, 3, shop.subject)
        campaign = await sent_back(foreign, nats_server.url, office)

    assert campaign.counts == {Outcome.SENT: 2, Outcome.REFUSED: 1}
    assert [message.data for message in await shop.contents()] == [b"x", b"xx"]


async def test_publish_instructions_of_a_producer_do_not_go_back(
    nats_server: Server, client: Any, office: MemoryEngine
) -> None:
    shop = await Shop(client).make()
    lines = (b"Nats-Expected-Last-Sequence: 0", b"tenant: eu")
    await shop.publish_raw(shop.subject, block(*lines), b"first")
    await shop.die()
    async with opened_foreign(nats_server.url) as foreign:
        await taken_in(foreign.drain(ADVISORIES), office, 1)
        campaign = await sent_back(foreign, nats_server.url, office)

    assert campaign.counts == {Outcome.SENT: 1}
    [back] = await shop.fetch()
    assert "Nats-Expected-Last-Sequence" not in back.headers
    assert back.headers["tenant"] == "eu"


async def test_a_copy_that_dies_again_returns_to_its_letter_and_oldest_goes_first(
    nats_server: Server, client: Any, office: MemoryEngine
) -> None:
    shop = await Shop(client).make()
    for number in range(10):
        headers = {"Nats-Msg-Id": f"m{number}"} if number % 2 else None
        await shop.js.publish(shop.subject, str(number).encode(), headers=headers)
    await shop.die(10)
    async with opened_foreign(nats_server.url) as foreign:
        await taken_in(foreign.drain(ADVISORIES), office, 10)
        await sent_back(foreign, nats_server.url, office)
        await shop.die(10)
        again = await taken_in(foreign.drain(ADVISORIES), office, 10)
        assert {one.head.state for one in again} == {State.PENDING}
        assert len(await letters(office)) == 10
        await sent_back(foreign, nats_server.url, office)

    back = await shop.contents()
    assert [int(message.data) for message in back] == list(range(10))
    ids = [message.headers["Nats-Msg-Id"] for message in back]
    assert ids[1::2] == [f"m{number}~2" for number in range(1, 10, 2)]


async def test_a_copy_is_handled_once_its_consumer_has_acknowledged_it(
    nats_server: Server, client: Any, office: MemoryEngine
) -> None:
    shop = await Shop(client).make()
    await shop.js.publish(shop.subject, b"body")
    await shop.die()
    async with opened_foreign(nats_server.url) as foreign:
        [letter] = await taken_in(foreign.drain(ADVISORIES), office, 1)
        await sent_back(foreign, nats_server.url, office)
        copy = copy_of(letter, shop.subject)
        looks: Any = foreign
        assert await looks.look([copy]) == [CopyState.THERE]
        [message] = await shop.fetch()
        assert await looks.look([copy]) == [CopyState.THERE]
        await message.ack_sync()
        assert await looks.look([copy]) == [CopyState.HANDLED]


async def test_a_copy_that_was_given_up_on_again_is_not_handled(
    nats_server: Server, client: Any, office: MemoryEngine
) -> None:
    shop = await Shop(client).make()
    await shop.js.publish(shop.subject, b"body")
    await shop.die()
    async with opened_foreign(nats_server.url) as foreign:
        [letter] = await taken_in(foreign.drain(ADVISORIES), office, 1)
        await sent_back(foreign, nats_server.url, office)
        await shop.die()
        copy = copy_of(letter, shop.subject)
        looks: Any = foreign
        assert await looks.look([copy]) != [CopyState.HANDLED]
        await shop.js.publish(shop.subject, b"another")
        [message] = await shop.fetch()
        await message.ack_sync()  # the consumer has gone past the copy now
        assert await looks.look([copy]) != [CopyState.HANDLED]


async def test_another_process_finds_the_copies_that_were_sent(
    nats_server: Server, client: Any, office: MemoryEngine
) -> None:
    shop = await Shop(client).make()
    for number in range(2):
        await shop.js.publish(shop.subject, str(number).encode())
    await shop.die(2)
    async with opened_foreign(nats_server.url) as foreign:
        kept = await taken_in(foreign.drain(ADVISORIES), office, 2)
        await sent_back(foreign, nats_server.url, office)
    copies = [copy_of(letter, shop.subject) for letter in kept]

    async def states() -> list[CopyState]:
        async with opened_foreign(nats_server.url) as another:
            looks: Any = another
            return [*await looks.look(copies)]

    before = await states()
    for message in await shop.fetch(2):
        await message.ack_sync()
    after = await states()  # they are gone from the work queue

    assert before == [CopyState.THERE] * 2
    assert after == [CopyState.HANDLED] * 2


@pytest.mark.parametrize("is_queue", [True, False])
async def test_copies_of_long_ago_are_looked_for_before_they_are_sent_again(
    nats_server: Server, client: Any, office: MemoryEngine, is_queue: bool
) -> None:
    shop = await Shop(client).make()
    if not is_queue:
        await shop.js.delete_stream(shop.stream)
        await shop.js.add_stream(name=shop.stream, subjects=[shop.subject])
    headers = {"topic_poisoned": shop.subject, "reason_poisoned": "no price"}
    await shop.js.publish(shop.dead_subject, b"body", headers=headers)
    async with opened_foreign(nats_server.url) as foreign:
        [letter] = await taken_in(foreign.drain(shop.dead), office, 1, shop.subject)
        await sent_back(foreign, nats_server.url, office)
    just_now = copy_of(letter, shop.subject)
    here = structs.replace(just_now, sent_at=just_now.sent_at - timedelta(minutes=5))
    never = structs.replace(here, generation=2)

    async def arrivals(*copies: SentCopy) -> list[Arrival]:
        async with opened_foreign(nats_server.url) as another:
            finds: Any = another
            return [trace.arrival for trace in await finds.find(copies)]

    found = await arrivals(just_now)
    later = await arrivals(here, never)
    await shop.js.purge_stream(shop.stream)
    gone = await arrivals(here)

    assert found == [Arrival.MISSING]  # the server drops it
    unknown = Arrival.UNKNOWABLE if is_queue else Arrival.LOST
    assert later == [Arrival.ARRIVED, Arrival.UNKNOWABLE if is_queue else Arrival.MISSING]
    assert gone == [unknown]


async def test_streams_of_our_own_engine_are_no_dead_places_whatever_their_names(
    nats_server: Server, client: Any, tmp_path: Path
) -> None:
    shop = await Shop(client).make()
    url = f"{nats_server.url}?prefix=dead-letter"
    async with opened(url, office=f"sqlite:///{tmp_path}/office.db") as engine:
        await engine.broker.create(QueueOptions(name="orders"))
    names = [info.config.name for info in await shop.js.streams_info()]
    assert "dead-letter-orders" in names

    async with opened_foreign(nats_server.url) as foreign:
        assert set(await foreign.places()) == {shop.dead, ADVISORIES}


async def with_the_dead(server: Server, number: int) -> Shop:
    """Return a shop whose consumer has given up on that many messages."""
    async with opened_foreign(server.url) as foreign:
        await foreign.drain(ADVISORIES).depth()  # listens from now on
        await taken_all(foreign.drain(ADVISORIES))
    client = await nats.connect(server.url)
    shop = await Shop(client).make()
    for one in range(number):
        await shop.js.publish(shop.subject, str(one).encode())
    await shop.die(number)
    await client.close()
    return shop


async def taken_all(drain: Any) -> None:
    while found := await drain.take(100):
        await drain.forget(found)
    await drain.close()


async def work(shop: Shop, server: Server, stop: Event, poison: bytes) -> None:
    """Handle messages until told to stop, and refuse one of them."""
    client = await nats.connect(server.url)
    pull = await client.jetstream().pull_subscribe_bind("worker", shop.stream)
    while not stop.is_set():
        with suppress(TimeoutError):
            for message in await pull.fetch(1, 0.1):
                is_refused = message.data == poison
                await (message.nak() if is_refused else message.ack_sync())
    await client.close()


def test_a_canary_is_confirmed_by_a_consumer_of_others_and_what_dies_again_has_failed(
    nats_server: Server, dlq: Command
) -> None:
    shop = asyncio.run(with_the_dead(nats_server, 5))
    url = nats_server.url

    def consumer(stop: Event, poison: bytes = b"") -> None:
        asyncio.run(work(shop, nats_server, stop, poison))

    drain_by_command(dlq, url, ADVISORIES, 5)
    with working(partial(consumer, poison=b"4")):
        first = replay_by_command(dlq, url, "--canary", "2", "--presume", "never")
        drain_by_command(dlq, url, ADVISORIES, 1)
    with working(consumer):
        second = replay_by_command(dlq, url, "--presume", "never", "--wait", "60")

    assert first["counts"] == {"confirmed": 2, "sent": 3}
    assert counts_by_command(dlq, first["id"]) == {"confirmed": 4, "failed": 1}
    assert (second["state"], second["counts"]) == ("done", {"confirmed": 1})


async def test_messages_held_by_an_interrupted_drain_and_near_names_are_reported(
    nats_server: Server, client: Any, dlq: Command
) -> None:
    shop = await Shop(client).make()
    for number in range(3):
        await shop.js.publish(shop.dead_subject, str(number).encode())
    async with opened_foreign(nats_server.url) as foreign:
        drain = foreign.drain(shop.dead)
        assert len(await drain.take(3)) == 3
        await drain.close()

    ran = await asyncio.to_thread(dlq, "drain", nats_server.url, shop.dead)
    wrong = await asyncio.to_thread(dlq, "drain", nats_server.url, f"{shop.dead}X")

    assert ran.code == 0
    assert "3 messages in flight" in ran.out
    assert wrong.code != 0
    assert f"Did you mean '{shop.dead}'" in wrong.err


async def test_a_server_with_nothing_dead_is_no_error(
    nats_server: Server, client: Any, dlq: Command
) -> None:
    js = client.jetstream()
    for info in await js.streams_info():
        await js.delete_stream(info.config.name or "")

    ran = await asyncio.to_thread(dlq, "drain", nats_server.url)

    assert ran.code == 0
    assert "No dead letters found" in ran.out


async def test_nothing_is_lost_doubled_or_changed_when_both_ways_are_killed(
    nats_server: Server, client: Any, tmp_path: Path
) -> None:
    shops = [await Shop(client).make() for _ in range(POINTS)]
    for shop in shops:
        for number in range(COUNT):
            headers = {"topic_poisoned": shop.subject, "reason_poisoned": "no price"}
            body = f"{shop.stream}/{number}".encode()
            await shop.js.publish(shop.dead_subject, body, headers=headers)

    def survive(job: tuple[int, Shop]) -> None:
        point, shop = job
        url = nats_server.url
        foe = Foe(url, shop.dead, tmp_path, source=shop.subject, _OURS=1.0)
        assert not foe.drain(point)
        while len(asyncio.run(foe.letters())) < COUNT:
            foe.drain()
        assert not foe.replay(point)
        eventually_done(foe.replay)

    await asyncio.to_thread(all_at_once, survive, enumerate(shops, 1))

    for shop in shops:
        wanted = [f"{shop.stream}/{number}".encode() for number in range(COUNT)]
        assert [message.data for message in await shop.contents()] == wanted
