"""What is Kafka's own: foreign records, keys, sizes, members, set-up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from deadletter.brokers.kafka import open_engine
from deadletter.brokers.kafka.address import read_url
from deadletter.brokers.kafka.backlog import Backlog
from deadletter.brokers.kafka.engine import KafkaEngine
from deadletter.brokers.kafka.partitions import WINDOW, Assignment, Progress
from deadletter.brokers.kafka.records import Trail, to_record
from deadletter.core.errors import ConfigError, NotFound, Refused, Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Released, Source
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.queue_bench import a_message, info
from engines.kafka_rig import fresh, opened, silenced
from servers import Server

T = TypeVar("T")


class Cluster:
    """Engines on fresh topics, closed afterwards."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.bootstrap = server.url.removeprefix("kafka://")
        self.engines: list[KafkaEngine] = []

    def url(self, **parameters: Any) -> str:
        return fresh(self.server.url, **parameters)

    async def open(self, url: str) -> KafkaEngine:
        engine = await opened(url, SystemClock())
        self.engines.append(engine)
        return engine


@pytest.fixture
async def cluster(kafka_server: Server) -> AsyncIterator[Cluster]:
    cluster = Cluster(kafka_server)
    yield cluster
    await asyncio.gather(*(engine.close() for engine in cluster.engines))


async def some(source: Source, limit: int = 10) -> list[Delivery]:
    return list(await source.receive(limit=limit, wait=15, lease=30))


async def test_foreign_records_are_processed_and_retried(cluster: Cluster) -> None:
    url = cluster.url()
    engine = await cluster.open(url)
    source = engine.broker.source("orders")
    assert await source.receive(limit=1, wait=0, lease=30) == []
    topic = read_url(url).topic("orders")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, b"hello", b"\xff\x00", headers=[("who", None)])
    await asyncio.to_thread(producer.flush, 10)

    (first,) = await some(source)
    await source.settle([Released(first, history="told")])
    (again,) = await some(source)

    assert first.message.id == f"{topic}/0/0"
    assert first.message.body == b"hello"
    assert again.message == first.message
    assert (again.attempt, again.history) == (2, "told")
    assert (again.partition, again.position) == ("0", f"{topic}/0/0")


async def test_records_of_one_key_come_one_at_a_time(cluster: Cluster) -> None:
    engine = await cluster.open(cluster.url(ordering="key"))
    keys = ["a", "a", "b", "a", "b"]
    sending = [a_message(key=key) for key in keys]
    await engine.broker.sink("orders").send(sending)
    source = engine.broker.source("orders")
    seen: list[str] = []

    while len(seen) < len(sending):
        batch = await some(source)
        found = [str(d.message.key) for d in batch]
        assert len(set(found)) == len(found)
        seen += [d.message.id for d in batch]
        assert all(await source.settle([Acked(d) for d in batch]))

    of_a = [m.id for m in sending if m.key == "a"]
    assert [known for known in seen if known in of_a] == of_a


async def test_a_partition_that_moves_takes_what_was_in_work_along_uncharged(
    cluster: Cluster,
) -> None:
    url = cluster.url(partitions=2)
    one, two = await cluster.open(url), await cluster.open(url)
    await one.broker.sink("orders").send([a_message() for _ in range(20)])
    source = one.broker.source("orders")
    held: list[Delivery] = []
    while len(held) < 20:
        held += await some(source, limit=20)

    # Nobody settles, so the partitions that move are given up after a while.
    moved: list[Delivery] = []
    while not moved:
        moved += await some(two.broker.source("orders"), limit=20)

    assert {(d.attempt, d.spared, d.suspect) for d in moved} == {(2, 1, False)}
    ids = {d.message.id for d in moved}
    ours = await source.settle([Acked(d) for d in held if d.message.id in ids])
    assert ours == [False] * len(ours)


async def test_records_of_a_lost_process_are_suspects_for_the_next(cluster: Cluster) -> None:
    url = cluster.url()
    one = await cluster.open(url)
    await one.broker.sink("orders").send([a_message(), a_message()])
    await some(one.broker.source("orders"), limit=1)
    silenced(one, "orders")
    await one.close()
    cluster.engines.remove(one)

    two = await cluster.open(url)
    source = two.broker.source("orders")
    (innocent,) = await some(source)
    swept = await two.broker.sweep()
    (suspect,) = await source.receive(limit=1, wait=15, lease=30, alone=True)

    assert (innocent.attempt, innocent.suspect) == (1, False)
    assert swept.suspects == {"orders"}
    assert (suspect.attempt, suspect.spared, suspect.suspect) == (2, 1, True)


async def test_records_settled_out_of_order_are_not_processed_again(cluster: Cluster) -> None:
    url = cluster.url()
    one = await cluster.open(url)
    sending = [a_message() for _ in range(50)]
    await one.broker.sink("orders").send(sending)
    source = one.broker.source("orders")
    batch = await some(source, limit=50)
    await source.settle([Acked(d) for d in batch[1:]])
    await one.close()
    cluster.engines.remove(one)

    two = await cluster.open(url)
    (left,) = await some(two.broker.source("orders"), limit=50)

    assert left.message.id == batch[0].message.id
    assert (left.attempt, left.spared) == (2, 1)


@pytest.mark.parametrize("moment", range(1, 5))
async def test_counts_include_messages_on_their_way_to_the_retry_topic(
    cluster: Cluster, moment: int
) -> None:
    url = cluster.url()
    worker, counter = await cluster.open(url), await cluster.open(url)
    await worker.broker.sink("orders").send([a_message()])
    source = worker.broker.source("orders")
    (delivery,) = await some(source)
    counting = counter.mailboxes._counting
    looks = 0

    def moving(look: Callable[..., Awaitable[T]]) -> Callable[..., Any]:
        async def looked(*about: Any) -> T:
            nonlocal looks
            seen = await look(*about)
            looks += 1
            if looks == moment:
                await source.settle([Released(delivery)])
            return seen

        return looked

    counting._topics.ends = moving(counting._topics.ends)  # type: ignore[method-assign]
    counting._groups.progress = moving(counting._groups.progress)  # type: ignore[method-assign]
    counts = await info(counter.broker)

    assert looks >= moment
    assert counts.ready + counts.delayed + counts.claimed >= 1


async def test_too_large_a_message_is_refused_before_any_is_sent(cluster: Cluster) -> None:
    engine = await cluster.open(cluster.url())

    with pytest.raises(Refused, match=r"raise max\.message\.bytes"):
        await engine.broker.sink("orders").send([a_message(), a_message(b"x" * 1_100_000)])

    source = engine.broker.source("orders")
    assert await source.receive(limit=5, wait=0, lease=30) == []


async def test_a_size_that_is_allowed_by_now_is_noticed(cluster: Cluster) -> None:
    url = cluster.url()
    sink = (await cluster.open(url)).broker.sink("orders")
    large = a_message(b"x" * 1_500_000)
    with pytest.raises(Refused):
        await sink.send([large])

    entry = ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(
        ResourceType.TOPIC, read_url(url).topic("orders"), incremental_configs=[entry]
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for changed in admin.incremental_alter_configs([topic]).values():
        changed.result()

    await sink.send([large])


async def test_a_long_story_is_cut_and_the_body_never(cluster: Cluster) -> None:
    engine = await cluster.open(cluster.url())
    body = b"x" * 1_040_000
    await engine.broker.sink("orders").send([a_message(body)])
    source = engine.broker.source("orders")
    (first,) = await some(source)
    story = "\n".join(f"{n}" * 60_000 for n in range(9))

    await source.settle([Released(first, history=story)])

    (again,) = await some(source)
    assert again.message.body == body
    assert story.endswith(again.history)
    assert 200_000 < len(again.history) < len(story)


async def test_records_that_retention_took_are_counted_not_waited_for(cluster: Cluster) -> None:
    url = cluster.url()
    one = await cluster.open(url)
    await one.broker.sink("orders").send([a_message() for _ in range(10)])
    batch = await some(one.broker.source("orders"), limit=1)
    await one.broker.source("orders").settle([Acked(d) for d in batch])
    await one.close()
    cluster.engines.remove(one)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    place = TopicPartition(read_url(url).topic("orders"), 0, 7)
    for deleted in admin.delete_records([place]).values():
        await asyncio.wrap_future(deleted)

    two = await cluster.open(url)
    left = await some(two.broker.source("orders"))

    assert len(left) == 3
    tally = (await info(two.broker)).tally
    assert tally == {"sent": 10, "handled": 1, "missed": 6}


async def test_without_create_a_missing_topic_is_said_to_be_missing(cluster: Cluster) -> None:
    engine = await cluster.open(cluster.url(create="false"))

    with pytest.raises(NotFound, match="no such topic: create it"):
        await engine.broker.sink("orders").send([a_message()])
    with pytest.raises(NotFound, match="no such topic: create it"):
        await engine.broker.source("orders").receive(limit=1, wait=0, lease=30)


async def test_a_topic_that_is_deleted_meanwhile_is_made_again(cluster: Cluster) -> None:
    engine = await cluster.open(cluster.url())
    sink = engine.broker.sink("orders")
    await sink.send([a_message()])

    assert await engine.broker.delete("orders") == 1
    await sink.send([a_message()])

    assert len(await some(engine.broker.source("orders"))) == 1


async def test_topics_are_made_as_the_url_says(cluster: Cluster) -> None:
    url = cluster.url(partitions=3)
    engine = await cluster.open(url)
    await engine.broker.source("orders").receive(limit=1, wait=0, lease=30)

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = (await asyncio.to_thread(admin.list_topics, timeout=10)).topics

    name = read_url(url).topic("orders")
    assert len(topics[name].partitions) == 3
    assert len(topics[f"{name}.retry"].partitions) == 3


async def test_impossible_replication_says_what_to_change(cluster: Cluster) -> None:
    engine = await cluster.open(cluster.url(replication=9))

    with pytest.raises(ConfigError, match="smaller replication"):
        await engine.broker.sink("orders").send([a_message()])


async def test_an_unreachable_broker_error_says_what_to_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deadletter.brokers.kafka.connection._OPENING", 0.5)
    url = "kafka://127.0.0.1:1/"

    with pytest.raises(Unavailable, match="is Kafka running"):
        await open_engine(url, clock=SystemClock(), dice=SystemDice())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafka:///", "names brokers"),
        ("kafka://host/orders", "names brokers"),
        ("kafka://host/?gruop=x", "unknown parameter 'gruop'"),
        ("kafka://host/?acks.x=1&enable.auto.commit=true", "deadletter sets it itself"),
        ("kafka://host/?partitions=none", "a number above 0"),
        ("kafka://host/?ordering=strict", "key or none"),
        ("kafka://host/?retry=again", "{topic}"),
        ("kafka://host/?prefix=a/b", "letters, digits"),
    ],
)
def test_a_url_that_cannot_be_says_what_to_write(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_url(url)


def test_a_url_may_have_a_password_and_settings_of_the_client() -> None:
    address = read_url("kafka://me:p%40ss@a:1,b:2/?security.protocol=SASL_SSL")

    assert address.bootstrap == "a:1,b:2"
    assert address.client["sasl.password"] == "p@ss"
    assert address.client["security.protocol"] == "SASL_SSL"


def test_names_that_are_no_topics_are_refused() -> None:
    address = read_url("kafka://host/?prefix=shop.")

    assert address.topic("dlq.main.7f") == "shop.dlq.main.7f"
    assert address.retry_topic("orders") == "shop.orders.retry"
    with pytest.raises(ConfigError, match="letters, digits"):
        address.topic("orders/eu")


def test_long_waiting_records_make_room_for_later_ones() -> None:
    backlog = Backlog(by_key=False, numbers=iter(range(10**6)))
    assignment = Assignment(("orders.retry", 0), Progress(0))
    backlog.assign(assignment)
    message = a_message()
    raw = to_record(message)
    far = 10**12
    for offset in range(WINDOW // 2 + 1):
        due = far if offset in (0, WINDOW // 2) else 0
        backlog.add(assignment, offset, raw, message, Trail(due=due), due=due)

    (first,) = backlog.stragglers("orders.retry", 1)

    assert first.offset == 0
    assert first.waiting().due == far
    assert backlog.stragglers("orders.retry", 1) == []
    assert backlog.stragglers("orders", 1) == []
