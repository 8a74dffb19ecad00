"""Dead-letter topics of Kafka: drained by a group of our own, sent back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from deadletter.brokers.kafka.drain import Kafka
from deadletter.core.errors import NotFound, Refused, Unavailable
from deadletter.core.letter import DeadLetter, State
from deadletter.ports import Kept
from deadletter.stores.memory import MemoryEngine
from deadletter.wiring.foreign import opened_foreign
from intake.rig import drained, intake, letters, sent_back, store
from servers.kafka import Kafka as Broker

_names = count(1)
Headers = list[tuple[str, bytes | None]]


class Topics:
    """A topic and its dead-letter topic."""

    def __init__(self, broker: Broker) -> None:
        self.bootstrap = broker.bootstrap
        self.name = f"orders{next(_names)}"
        self.dead = f"{self.name}.DLT"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = admin.create_topics([NewTopic(n, 2) for n in (self.name, self.dead)])
        for future in made.values():
            future.result(10)
        self._producer = Producer({"bootstrap.servers": self.bootstrap})

    def put_dead(self, value: bytes | None, *offsets: int, **more: Any) -> None:
        """Records as Spring Kafka dead-letters them, in the order of these offsets."""
        theirs = more.pop("headers", ())
        for offset in offsets or (5,):
            headers = [*self._spring(offset), *theirs]
            self._producer.produce(self.dead, value, headers=headers, **more)
        assert self._producer.flush(10) == 0

    def _spring(self, offset: int) -> Headers:
        return [
            ("tenant", b"eu"),
            ("kafka_dlt-original-topic", self.name.encode()),
            ("kafka_dlt-original-partition", (1).to_bytes(4, "big")),
            ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
            ("kafka_dlt-exception-fqcn", b"java.net.SocketTimeoutException"),
            ("kafka_dlt-exception-message", b"read timed out"),
        ]

    def get(self, topic: str) -> Any:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid4().hex,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        try:
            [record] = consumer.consume(1, 10)
            return record
        finally:
            consumer.close()


@pytest.fixture
async def kafka(kafka_server: Broker) -> AsyncIterator[Kafka]:
    async with opened_foreign(kafka_server.url) as foreign:
        assert isinstance(foreign, Kafka)
        yield foreign


@pytest.fixture
def topics(kafka_server: Broker) -> Topics:
    return Topics(kafka_server)


async def test_records_dead_lettered_by_spring_become_letters_of_their_topic(
    kafka: Kafka, topics: Topics, office: MemoryEngine
) -> None:
    topics.put_dead(b"\x00body", key=b"k")

    [letter] = await drained(kafka.drain(topics.dead), office)

    head = letter.head
    assert (head.source, head.partition, head.key) == (topics.name, "1", "k")
    assert head.message_id == f"{topics.name}/1/5"
    assert head.error_type == "java.net.SocketTimeoutException"
    assert letter.message.body == b"\x00body"
    assert letter.message.headers[:-1] == (("tenant", b"eu"),)
    drain = kafka.drain(topics.dead)
    assert await drain.depth() == 0
    await drain.close()


async def test_a_letter_goes_back_with_key_value_and_headers_as_they_were(
    kafka: Kafka, kafka_server: Broker, topics: Topics, office: MemoryEngine
) -> None:
    odd: Headers = [("tenant", b"us"), ("none", None), ("empty", b"")]
    topics.put_dead(None, key=b"\xff\x00", headers=odd)
    await drained(kafka.drain(topics.dead), office)

    await sent_back(kafka, kafka_server.url, office)

    back = topics.get(topics.name)
    assert (back.key(), back.value()) == (b"\xff\x00", None)
    names = [name for name, _ in back.headers()]
    assert back.headers()[:4] == [("tenant", b"eu"), *odd]
    told = ("of", "count", "campaign", "to", "signature")
    assert names[4:] == [f"dlq-replay-{name}" for name in told]


async def test_a_copy_that_dies_again_returns_to_its_letter(
    kafka: Kafka, kafka_server: Broker, topics: Topics, office: MemoryEngine
) -> None:
    topics.put_dead(b"again")
    [first] = await drained(kafka.drain(topics.dead), office)
    await sent_back(kafka, kafka_server.url, office)
    lineage = topics.get(topics.name).headers()[-5:]

    topics.put_dead(b"again", 77, headers=lineage)
    [second] = await drained(kafka.drain(topics.dead), office)

    assert second.id == first.id
    assert second.head.state is State.PENDING
    assert len(await letters(office)) == 1


async def test_uncommitted_records_come_again_as_the_same_letter(
    kafka: Kafka, topics: Topics, office: MemoryEngine
) -> None:
    topics.put_dead(b"once")
    killed = kafka.drain(topics.dead)
    killed.forget = killed.hand_back  # type: ignore[method-assign]
    await drained(killed, office)
    [held] = await letters(office)

    [letter] = await drained(kafka.drain(topics.dead), office)

    assert letter == held


async def test_looking_commits_nothing(kafka: Kafka, topics: Topics, office: MemoryEngine) -> None:
    topics.put_dead(b"look", *range(5))

    looking = intake(kafka.drain(topics.dead), office)
    seen = await looking.look(3)
    await looking.end()

    assert len(seen) == 3
    assert len(await drained(kafka.drain(topics.dead), office)) == 5


async def test_many_are_drained_a_batch_at_a_time(
    kafka: Kafka, topics: Topics, office: MemoryEngine
) -> None:
    topics.put_dead(b"many", *range(250))

    assert len(await drained(kafka.drain(topics.dead), office)) == 250
    async with asyncio.timeout(5):  # being let into the group, and no longer
        assert await drained(kafka.drain(topics.dead), office) == []


async def test_dead_letter_topics_are_found_by_their_names(kafka: Kafka, topics: Topics) -> None:
    assert topics.dead in await kafka.places()
    assert topics.name not in await kafka.places()


async def test_wrong_names_and_addresses_say_what_to_do(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="no topic 'nowhere'"):
        await kafka.drain("nowhere").take(1)
    monkeypatch.setattr("deadletter.brokers.kafka.connection._OPENING", 0.5)
    with pytest.raises(Unavailable, match="is Kafka running"):
        async with opened_foreign("kafka://127.0.0.1:1"):
            pass


async def test_offsets_stop_at_what_the_office_refuses(
    kafka: Kafka, topics: Topics, office: MemoryEngine
) -> None:
    for number in range(3):
        topics.put_dead(b"bad" if number == 1 else b"good", number, partition=0)
    keep = store(office).keep

    async def picky(letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        if any(letter.message.body == b"bad" for letter in letters):
            raise Refused("too large")
        return await keep(letters)

    store(office).keep = picky  # type: ignore[method-assign]
    await drained(kafka.drain(topics.dead), office)
    store(office).keep = keep  # type: ignore[method-assign]
    kept = len(await letters(office))

    again = await drained(kafka.drain(topics.dead), office)

    assert kept == 2
    assert [one.message.body for one in again] == [b"bad", b"good"]
    assert len(await letters(office)) == 3
