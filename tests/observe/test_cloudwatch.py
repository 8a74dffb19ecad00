"""CloudWatch, as the emulator ministack plays it: numbers arrive, alarms go off."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import pytest

from deadletter.core.errors import Unavailable
from deadletter.core.events import LetterHandled, OutOfReach
from deadletter.core.letter import State
from deadletter.observe.alerts import alarms
from deadletter.observe.cloudwatch import CloudWatch, cloudwatch, put_alarms
from deadletter.ports import LetterStore, Move
from deadletter.stores.memory import MemoryEngine
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import a_message
from observe.test_metrics import buried, retried
from office.making import BY, make_letter
from servers import Server, Sqs
from servers.fixtures import serve

TOPIC = "arn:aws:sns:eu-west-1:000000000000:on-call"
ARRIVE = "deadletter-dead-letters-arrive-orders"
WAIT = "deadletter-dead-letters-wait-orders"


class Cloud(Sqs):
    """The emulator with CloudWatch."""

    name = "cloudwatch"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "SERVICES": "sqs,cloudwatch"}


@pytest.fixture(scope="module")
def cloud_server() -> Iterator[Server]:
    yield from serve(Cloud, [])


@pytest.fixture
async def client(
    cloud_server: Server, monkeypatch: pytest.MonkeyPatch, request: Any
) -> AsyncIterator[Any]:
    # Every test is another account: the emulator keeps them apart by the key.
    account = f"{crc32(request.node.name.encode()):012d}"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", account)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    async with cloudwatch(region="eu-west-1", endpoint=cloud_server.url) as client:
        yield client


pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("cloudwatch")]


async def states(client: Any) -> dict[str, str]:
    found = await client.describe_alarms()
    return {alarm["AlarmName"]: alarm["StateValue"] for alarm in found["MetricAlarms"]}


async def sum_of(client: Any, metric: str, **dimensions: str) -> dict[str, float]:
    now = datetime.now(UTC)
    found = await client.get_metric_statistics(
        Namespace="deadletter",
        MetricName=metric,
        Dimensions=[{"Name": name, "Value": v} for name, v in dimensions.items()],
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=1),
        Period=3600,
        Statistics=["Sum", "SampleCount", "Maximum", "Minimum"],
    )
    points = found["Datapoints"]
    return {
        "sum": sum(point["Sum"] for point in points),
        "count": sum(point["SampleCount"] for point in points),
        "most": max((point["Maximum"] for point in points), default=0.0),
    }


async def test_the_three_numbers_r0_111_to_r0_113(client: Any, store: LetterStore) -> None:
    await store.keep([make_letter(n) for n in range(4)])
    watch = CloudWatch()
    for event in [buried(), buried(), retried(charged=True)]:
        watch(event)
    for seconds, age in ((0.5, 40), (1.5, 60)):
        watch(LetterHandled(mailbox="orders-dlq", letter_id="l", seconds=seconds, age=age))

    await watch.publish(client, store)

    count = await sum_of(client, "OpenLetters", Source="orders")
    latency = await sum_of(client, "ProcessingLatency", Mailbox="orders-dlq")
    kinds = await sum_of(client, "Errors", Category="RETRYABLE", Trouble="transient")
    assert count["most"] == 4
    assert latency == {"sum": 100.0, "count": 2, "most": 60.0}  # since the death
    at_work = await sum_of(client, "HandlerTime", Mailbox="orders-dlq")
    assert at_work == {"sum": 2.0, "count": 2, "most": 1.5}
    assert kinds["sum"] == 3
    arrived = await sum_of(client, "MessagesDeadLettered", Source="orders")
    assert arrived["sum"] == 2


async def test_messages_in_dead_letter_queues_are_counted_r0_111(client: Any) -> None:
    engine = MemoryEngine(clock=FakeClock(), dice=SeededDice())
    await engine.broker.sink("orders-dlq").send([a_message() for _ in range(3)])
    await engine.broker.sink("orders").send([a_message()])
    held = await engine.broker.source("orders-dlq").receive(limit=1, wait=0, lease=30)

    await CloudWatch().publish(client, broker=engine.broker, queues=["orders-dlq"])

    count = await sum_of(client, "DeadLetterQueueMessages", Mailbox="orders-dlq")
    other = await sum_of(client, "DeadLetterQueueMessages", Mailbox="orders")
    assert len(held) == 1
    assert (count["most"], other["count"]) == (3, 0)


async def test_the_alarm_on_a_queue_rings_when_a_message_is_in_it_r0_108(client: Any) -> None:
    """SQS itself publishes this number on Amazon; here the test does."""
    await put_alarms(client, queues=["orders-dlq"])
    (name,) = [one for one in await states(client) if one.endswith("-orders-dlq")]
    before = (await states(client))[name]
    datum = {
        "MetricName": "ApproximateNumberOfMessagesVisible",
        "Dimensions": [{"Name": "QueueName", "Value": "orders-dlq"}],
        "Value": 1.0,
    }
    await client.put_metric_data(Namespace="AWS/SQS", MetricData=[datum])

    assert before != "ALARM"
    assert (await states(client))[name] == "ALARM"


async def test_an_alarm_goes_off_when_letters_lie_there_r0_108(
    client: Any, store: LetterStore
) -> None:
    await put_alarms(client, sources=["orders"], topic=TOPIC)
    before = await states(client)
    await store.keep([make_letter(1)])

    await CloudWatch().publish(client, store)

    assert before[WAIT] != "ALARM"
    assert (await states(client))[WAIT] == "ALARM"


async def test_an_alarm_goes_off_on_arrivals_though_the_queue_is_always_empty(
    client: Any, store: LetterStore
) -> None:
    await put_alarms(client, sources=["orders"], topic=TOPIC)
    watch = CloudWatch()
    letter = make_letter(1)
    await store.keep([letter])
    watch(buried())
    handled = Move(ids=(letter.id,), old=frozenset({State.PENDING}), new=State.CLOSED)
    await store.move(handled, BY)

    await watch.publish(client, store)

    now = await states(client)
    assert now[ARRIVE] == "ALARM"
    assert now[WAIT] != "ALARM"


async def test_alarms_are_made_once_and_tell_the_topic(client: Any) -> None:
    for _ in range(2):
        names = await put_alarms(
            client, sources=["orders", "mails"], queues=["orders-dlq"], topic=TOPIC
        )

    found = (await client.describe_alarms())["MetricAlarms"]
    assert sorted(alarm["AlarmName"] for alarm in found) == sorted(names)
    assert len(names) == len(set(names)) == 6
    assert all(alarm["AlarmActions"] == [TOPIC] for alarm in found)
    assert all(alarm["TreatMissingData"] == "notBreaching" for alarm in found)
    [depth] = [alarm for alarm in found if alarm["Namespace"] == "AWS/SQS"]
    assert depth["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert depth["Dimensions"] == [{"Name": "QueueName", "Value": "orders-dlq"}]
    assert (depth["Threshold"], depth["ComparisonOperator"]) == (0, "GreaterThanThreshold")


async def test_unsent_metrics_are_sent_next_time(
    client: Any, cloud_server: Server, store: LetterStore
) -> None:
    watch = CloudWatch()
    watch(buried())
    async with cloudwatch(region="eu-west-1", endpoint="http://127.0.0.1:1") as away:
        with pytest.raises(Unavailable):
            await watch.publish(away, store)
    watch(buried())

    sent = await watch.publish(client)
    nothing = await watch.publish(client)

    arrived = await sum_of(client, "MessagesDeadLettered", Source="orders")
    assert arrived["sum"] == 2
    assert (sent, nothing) == (2, 0)


async def test_a_flood_of_names_is_few_numbers_in_few_calls(client: Any) -> None:
    watch = CloudWatch()
    for number in range(3_000):
        watch(buried(mailbox=f"box-{number}"))
    for number in range(1_000):
        watch(LetterHandled(mailbox=f"dlq-{number}", letter_id="l", seconds=1, age=1))

    assert await watch.publish(client) <= 3 * 201


async def test_publishing_goes_on_until_told_to_stop_and_sends_the_rest(
    client: Any, store: LetterStore
) -> None:
    watch, stop = CloudWatch(), asyncio.Event()
    publishing = asyncio.create_task(watch.publish_every(60, client, store, stop))
    watch(buried())
    watch(OutOfReach(mailbox="orders", what="office", text="locked", tries=1))
    await asyncio.sleep(0)

    stop.set()
    await publishing

    assert (await sum_of(client, "MessagesDeadLettered", Source="orders"))["sum"] == 1
    assert (await sum_of(client, "DeadLetterFailures"))["sum"] == 1


async def test_unpublishable_metrics_are_logged_once_and_sent_later(
    client: Any,
    store: LetterStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch, stop = CloudWatch(), asyncio.Event()
    watch(buried())
    calls, publish = 0, watch.publish

    async def twice_out_of_reach(client: Any, store: LetterStore, **_: Any) -> int:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise Unavailable("CloudWatch: no keys")
        stop.set()
        return await publish(client, store)

    monkeypatch.setattr(watch, "publish", twice_out_of_reach)
    await watch.publish_every(0.001, client, store, stop)

    assert [record.message for record in caplog.records] == [
        "metrics could not be published: CloudWatch: no keys"
    ]
    assert (await sum_of(client, "MessagesDeadLettered", Source="orders"))["sum"] == 1


def test_alarms_can_be_had_without_a_cloud() -> None:
    [one, *rest] = alarms(sources=["orders"], topic=TOPIC)

    assert one["AlarmName"] == ARRIVE
    assert one["Threshold"] == 0
    assert len(rest) == 2
