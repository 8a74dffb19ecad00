"""How far a group has come, when its coordinator is not there yet or says no."""

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from deadletter.brokers.kafka import topics as groups
from deadletter.brokers.kafka.topics import Groups
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.system import SystemClock
from deadletter.testing.queue_bench import a_message, info
from engines.kafka_rig import fresh, opened
from servers import Server

PLACE = ("orders", 0)


class Answering:
    """A consumer that gives these answers, one after the other; the last one stays."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.closed = 0

    def committed(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer:
            raise KafkaException(KafkaError(answer))
        return [TopicPartition(*PLACE, 7)]

    def close(self) -> None:
        self.closed += 1


class Refusing(Answering):
    """One that says so of the partition instead."""

    def committed(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        place = places[0]
        return [_refused(place)]


class _Place:
    def __init__(self, place: TopicPartition) -> None:
        self.topic, self.partition, self.offset = place.topic, place.partition, -1001
        self.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def _refused(place: TopicPartition) -> TopicPartition:
    return _Place(place)  # type: ignore[return-value]  # an error cannot be set on one


def use(monkeypatch: pytest.MonkeyPatch, consumer: Answering) -> Groups:
    monkeypatch.setattr(groups, "Consumer", lambda _: consumer)
    monkeypatch.setattr(groups, "_PAUSE", 0.01)
    monkeypatch.setattr(groups, "_PATIENCE", 0.2)
    return Groups({})


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError._WAIT_COORD,
    ],
)
async def test_a_coordinator_that_is_not_there_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    consumer = Answering(code, code, 0)

    found = await use(monkeypatch, consumer).progress("group", [PLACE])

    assert found[PLACE].base == 7
    assert (consumer.asked, consumer.closed) == (3, 1)


async def test_a_missing_coordinator_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Answering(KafkaError.COORDINATOR_NOT_AVAILABLE)

    with pytest.raises(Unavailable, match="looking at the group shop"):
        await use(monkeypatch, consumer).progress("shop", [PLACE])

    assert consumer.closed == 1


async def test_a_group_that_is_not_for_us_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Answering(KafkaError.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(ConfigError, match="allow it READ"):
        await use(monkeypatch, consumer).progress("shop", [PLACE])

    assert (consumer.asked, consumer.closed) == (1, 1)


async def test_an_error_of_one_partition_is_not_taken_for_never_worked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Refusing(0)

    with pytest.raises(ConfigError, match="may not use this topic"):
        await use(monkeypatch, consumer).progress("shop", [PLACE])

    assert consumer.closed == 1


async def test_the_admin_client_is_never_asked_it_may_take_the_process_down(
    monkeypatch: pytest.MonkeyPatch, kafka_server: Server
) -> None:
    def asked(*_: object, **__: object) -> None:
        pytest.fail("the admin client was asked for a group's offsets")

    monkeypatch.setattr(AdminClient, "list_consumer_group_offsets", asked)
    engine = await opened(fresh(kafka_server.url), SystemClock())

    await engine.broker.sink("orders").send([a_message()])
    found = await info(engine.broker)
    await engine.close()

    assert found.ready == 1
