"""Kafka with confluent-kafka as the client of others: drained, sent back, killed."""

import asyncio
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, cast
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cli.conftest import Command, dlq
from deadletter.brokers.kafka import drain
from deadletter.core.letter import State
from deadletter.ports import Arrival, CopyState, CopyTrace
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice, eventually
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
from servers.kafka import Kafka as Broker

__all__ = ["dlq", "office"]

_numbers = count(1)
COUNT = 12  # records in a topic whose drain is killed
LONG_AGO = 1_600_000_000_123  # milliseconds since 1970
Headers = list[tuple[str, bytes | None]]


class Shop:
    """A topic and its dead-letter topic, which a consumer with Spring writes to."""

    def __init__(self, broker: Broker) -> None:
        self.bootstrap = broker.bootstrap
        self.name = f"shop{next(_numbers)}"
        self.dead = f"{self.name}.DLT"
        self.group = f"{self.name}-workers"
        self.make(self.name, self.dead)
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 1}
        self.producer = Producer({**settings, "partitioner": "murmur2_random"})

    def make(self, *topics: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(n, 2) for n in topics]).values():
            future.result(20)

    def bury(self, offset: int, **record: Any) -> None:
        """Dead-letter a record of partition 1, as Spring Kafka does."""
        headers = [
            ("kafka_dlt-original-topic", self.name.encode()),
            ("kafka_dlt-original-partition", (1).to_bytes(4, "big")),
            ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
            ("kafka_dlt-original-timestamp", LONG_AGO.to_bytes(8, "big")),
            ("kafka_dlt-original-timestamp-type", b"CreateTime"),
            ("kafka_dlt-original-consumer-group", self.group.encode()),
            ("kafka_dlt-exception-fqcn", b"java.net.SocketTimeoutException"),
            ("kafka_dlt-exception-message", b"read timed out"),
        ]
        theirs = record.pop("headers", ())
        self.producer.produce(self.dead, headers=[*theirs, *headers], **record)

    def flush(self) -> None:
        assert self.producer.flush(20) == 0

    def read(self, number: int, *, group: str = "") -> list[Any]:
        """The first records of the topic; with a group they are committed, too."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group or uuid4().hex,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self.name, n, 0) for n in range(2)])
        try:
            found: list[Any] = []
            while len(found) < number and (some := consumer.consume(number, 30)):
                found += [one for one in some if one.error() is None]
            if group:
                ends: dict[int, int] = {}
                for one in found:
                    ends[one.partition()] = one.offset() + 1
                offsets = [TopicPartition(self.name, p, at) for p, at in ends.items()]
                consumer.commit(offsets=offsets, asynchronous=False)
            return found
        finally:
            consumer.close()

    def work(self, stop: Event, *, poison: bytes = b"") -> None:
        """Handle records in a group, and dead-letter one as Spring does."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.name])
        while not stop.is_set():
            record = consumer.poll(0.1)
            if record is None or record.error() is not None:
                continue
            if record.value() == poison:
                again = {"value": record.value(), "headers": record.headers()}
                self.bury(100 + int(record.offset() or 0), **again)
                self.flush()
            consumer.commit(record, asynchronous=False)
        consumer.close()

    def delete_before(self, offset: int) -> None:
        """Delete the first records of partition 0."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = admin.delete_records([TopicPartition(self.name, 0, offset)])
        for future in asked.values():
            future.result(20)

    def size(self) -> int:
        """How many records the topic has."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "size"})
        ends = [
            consumer.get_watermark_offsets(TopicPartition(self.name, n), 10)[1] for n in range(2)
        ]
        consumer.close()
        return sum(ends)


def of_producer(record: Any) -> Headers:
    return [
        (name, value)
        for name, value in record.headers() or ()
        if not name.startswith("dlq-replay-")
    ]


NAMES = st.sampled_from(["tenant", "tag", "größe", "x"])
HEADERS = st.lists(st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=20))), max_size=5)
VALUES = st.one_of(st.none(), st.binary(max_size=40))
RECORDS = st.lists(st.tuples(VALUES, VALUES, HEADERS), min_size=4, max_size=10)


@ONCE_EACH
@given(records=RECORDS)
async def test_every_record_goes_back_as_its_producer_sent_it(
    kafka_server: Broker, records: list[tuple[bytes | None, bytes | None, Headers]]
) -> None:
    shop = Shop(kafka_server)
    office = MemoryEngine(clock=SystemClock(), dice=SeededDice())
    for offset, (key, value, headers) in enumerate(records):
        shop.bury(offset, key=key, value=value, headers=headers)
    shop.flush()
    url = f"{kafka_server.url}?keep=partition,timestamp&group={uuid4().hex}"
    async with opened_foreign(url) as kafka:
        await taken_in(kafka.drain(shop.dead), office, len(records))
        await sent_back(kafka, url, office)

    back = shop.read(len(records))
    found = [(one.key(), one.value(), of_producer(one)) for one in back]
    assert sorted(found, key=repr) == sorted(records, key=repr)
    assert {one.partition() for one in back} == {1}
    assert {one.timestamp()[1] for one in back} == {LONG_AGO}


async def test_partition_and_time_are_kafkas_unless_they_are_asked_for(
    kafka_server: Broker, office: MemoryEngine
) -> None:
    shop = Shop(kafka_server)
    shop.bury(0, key=b"k", value=b"body")
    shop.producer.produce(shop.name, key=b"k", value=b"of the producer")
    shop.flush()
    url = f"{kafka_server.url}?group={uuid4().hex}"
    async with opened_foreign(url) as kafka:
        await taken_in(kafka.drain(shop.dead), office, 1)
        await sent_back(kafka, url, office)

    first, copy = shop.read(2)
    assert copy.partition() == first.partition()  # the one of its key
    assert copy.timestamp()[1] > LONG_AGO


async def test_records_of_a_key_go_back_oldest_first_and_return_to_their_letters(
    kafka_server: Broker, office: MemoryEngine
) -> None:
    shop = Shop(kafka_server)
    for number in range(20):
        key = f"k{number % 3}".encode()
        shop.bury(number, key=key, value=str(number).encode())
    shop.flush()
    url = f"{kafka_server.url}?group={uuid4().hex}"
    async with opened_foreign(url) as kafka:
        await taken_in(kafka.drain(shop.dead), office, 20)
        await sent_back(kafka, url, office)
        copies = shop.read(20)
        for one in copies:  # all of them fail again
            record = {"key": one.key(), "value": one.value(), "headers": one.headers()}
            shop.bury(100 + one.offset(), **record)
        shop.flush()
        again = await taken_in(kafka.drain(shop.dead), office, 20)

    for key in (b"k0", b"k1", b"k2"):
        values = [int(one.value()) for one in copies if one.key() == key]
        assert values == sorted(values)
    assert len(await letters(office)) == 20
    assert {one.head.state for one in again} == {State.PENDING}


async def test_a_copy_is_handled_once_its_group_has_committed_past_it(
    kafka_server: Broker, office: MemoryEngine
) -> None:
    shop = Shop(kafka_server)
    shop.producer.produce(shop.name, b"earlier", partition=1)
    shop.bury(0, value=b"body")
    shop.flush()
    url = f"{kafka_server.url}?keep=partition&group={uuid4().hex}"
    async with opened_foreign(url) as kafka:
        [letter] = await taken_in(kafka.drain(shop.dead), office, 1)
        await sent_back(kafka, url, office)
        copy = copy_of(letter, shop.name)
        looks: Any = kafka
        assert await looks.look([copy]) == [CopyState.UNKNOWN]
        shop.read(1, group=shop.group)
        assert await looks.look([copy]) == [CopyState.THERE]
        shop.read(2, group=shop.group)
        assert await looks.look([copy]) == [CopyState.HANDLED]


@pytest.mark.parametrize("keep", ["", "&keep=timestamp"])
async def test_another_process_finds_the_copies_that_were_sent(
    kafka_server: Broker, office: MemoryEngine, keep: str
) -> None:
    shop = Shop(kafka_server)
    for number in range(3):
        shop.bury(number, value=b"body")
    shop.flush()
    url = f"{kafka_server.url}?group={uuid4().hex}{keep}"
    async with opened_foreign(url) as kafka:
        kept = await taken_in(kafka.drain(shop.dead), office, 3)
        await sent_back(kafka, url, office)
    copies = [copy_of(letter, shop.name) for letter in kept]
    never = copy_of(kept[0], shop.name, generation=2)
    nowhere = copy_of(kept[0], "no-such-topic")
    async with opened_foreign(url) as another:
        finds: Any = another
        traces = await finds.find([*copies, never])
        elsewhere = await finds.find([structs.replace(nowhere, generation=3)])
    async with opened_foreign(url) as third:
        looks: Any = third
        assert await looks.look(copies) == [CopyState.UNKNOWN] * 3
        shop.read(3, group=shop.group)
        assert await looks.look(copies) == [CopyState.HANDLED] * 3

    arrivals = [trace.arrival for trace in (*traces, *elsewhere)]
    assert arrivals == [Arrival.ARRIVED] * 3 + [Arrival.MISSING] * 2


async def test_copies_that_cannot_be_searched_for_are_reported_with_the_reason(
    kafka_server: Broker, office: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(kafka_server)
    shop.bury(0, value=b"body")
    for number in range(10):
        shop.producer.produce(shop.name, str(number).encode(), partition=0)
    shop.flush()
    async with opened_foreign(f"{kafka_server.url}?group={uuid4().hex}") as kafka:
        [letter] = await taken_in(kafka.drain(shop.dead), office, 1)
    copy = copy_of(letter, shop.name)

    async def traced() -> CopyTrace:
        async with opened_foreign(kafka_server.url) as another:
            finds: Any = another
            [trace] = await finds.find([copy])
            return cast(CopyTrace, trace)

    before = await traced()
    monkeypatch.setattr(drain, "MOST_READ", 9)
    too_long = await traced()
    monkeypatch.undo()
    shop.delete_before(5)
    truncated = await traced()

    assert before == CopyTrace(Arrival.MISSING)
    assert (too_long.arrival, truncated.arrival) == (Arrival.LOST, Arrival.LOST)
    assert "10 records" in too_long.why
    assert "deleted records" in truncated.why


def test_a_canary_is_confirmed_by_a_group_of_others_and_what_dies_again_has_failed(
    kafka_server: Broker, dlq: Command
) -> None:
    shop = Shop(kafka_server)
    for number in range(5):
        shop.bury(number, value=str(number).encode())
    shop.flush()
    url = f"{kafka_server.url}?group={uuid4().hex}"
    drain_by_command(dlq, url, shop.dead, 5)
    how = ("--presume", "never", "--wait", "60")
    with working(partial(shop.work, poison=b"4")):
        first = replay_by_command(dlq, url, "--canary", "2", *how)
    drain_by_command(dlq, url, shop.dead, 1)
    with working(shop.work):
        second = replay_by_command(dlq, url, *how)

    # A group commits what it has dead-lettered; that it failed is known by the drain.
    assert first["counts"] == {"confirmed": 5}
    assert counts_by_command(dlq, first["id"]) == {"confirmed": 4, "failed": 1}
    assert (second["state"], second["counts"]) == ("done", {"confirmed": 1})
    values = sorted(one.value() for one in shop.read(6))
    assert values == [b"0", b"1", b"2", b"3", b"4", b"4"]


def test_a_replay_is_confirmed_by_a_process_that_did_not_send_it(
    kafka_server: Broker, dlq: Command
) -> None:
    shop = Shop(kafka_server)
    for number in range(3):
        shop.bury(number, value=str(number).encode())
    shop.flush()
    url = f"{kafka_server.url}?group={uuid4().hex}"
    drain_by_command(dlq, url, shop.dead, 3)
    sent = replay_by_command(dlq, url, "--presume", "never")
    shop.read(3, group=shop.group)
    assert dlq("drain", url, shop.dead).code == 0

    assert sent["counts"] == {"sent": 3}
    assert counts_by_command(dlq, sent["id"]) == {"confirmed": 3}


def test_a_misspelt_topic_is_an_error_with_the_near_names(
    kafka_server: Broker, dlq: Command
) -> None:
    shop = Shop(kafka_server)

    ran = dlq("drain", kafka_server.url, f"{shop.name}.DTL")

    assert ran.code != 0
    assert f"'{shop.dead}'" in ran.err


async def test_dead_letter_topics_are_found_by_their_names(kafka_server: Broker) -> None:
    shop = Shop(kafka_server)
    called = ("dlq-{}", "dlq.{}", "{}-dlq", "{}.DLT", "{}_dlq")
    topics = {name.format(f"pay{next(_numbers)}") for name in called}
    shop.make(*topics)

    async with opened_foreign(kafka_server.url) as kafka:

        async def all_found() -> bool:
            return topics <= set(await kafka.places())

        await eventually(all_found)
        assert shop.name not in await kafka.places()


async def test_nothing_is_lost_doubled_or_changed_when_both_ways_are_killed(
    kafka_server: Broker, tmp_path: Path
) -> None:
    shops = [Shop(kafka_server) for _ in range(POINTS)]
    for shop in shops:
        for number in range(COUNT):
            shop.bury(number, key=b"k", value=f"{shop.name}/{number}".encode())
        shop.flush()

    def survive(job: tuple[int, Shop]) -> None:
        point, shop = job
        url = f"{kafka_server.url}?group={shop.name}&session.timeout.ms=2000"
        url += "&heartbeat.interval.ms=500"
        foe = Foe(url, shop.dead, tmp_path, source=shop.name)
        assert not foe.drain(point)
        eventually_done(foe.drain)
        assert len(asyncio.run(foe.letters())) == COUNT
        assert not foe.replay(point)
        eventually_done(foe.replay)
        back = [one.value().decode() for one in shop.read(shop.size())]
        assert back == [f"{shop.name}/{n}" for n in range(COUNT)]

    await asyncio.to_thread(all_at_once, survive, enumerate(shops, 1))
