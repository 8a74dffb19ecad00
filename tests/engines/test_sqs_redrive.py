"""SQS's own dead-lettering beside ours: set up, checked, and drained."""

import json
from typing import Any

import pytest

from deadletter.brokers.sqs.engine import SqsBroker, SqsEngine
from deadletter.brokers.sqs.registry import Redrive, conflict
from deadletter.core.errors import ConfigError
from deadletter.ports import QueueOptions
from deadletter.testing.queue_bench import LEASE, info, release
from engines.sqs_rig import SqsBench, made


class TestRedrive(SqsBench):
    async def attributes(self, engine: SqsEngine, mailbox: str) -> dict[str, Any]:
        answer = await engine.service.call(
            "get_queue_attributes", QueueUrl=await made(engine, mailbox), AttributeNames=["All"]
        )
        return dict(answer["Attributes"])

    async def with_dead_queue(self, engine: SqsEngine, attempts: int = 3) -> None:
        await engine.broker.create(QueueOptions(name="relay-dlq"))
        await engine.broker.create(
            QueueOptions(name="relay", dead_queue="relay-dlq", max_attempts=attempts)
        )

    async def test_a_dead_queue_becomes_a_redrive_policy(self, engine: SqsEngine) -> None:
        await self.with_dead_queue(engine)

        policy = json.loads((await self.attributes(engine, "relay"))["RedrivePolicy"])
        dead = await self.attributes(engine, "relay-dlq")

        assert policy["deadLetterTargetArn"] == dead["QueueArn"]
        assert int(policy["maxReceiveCount"]) == 3
        assert not dead.get("RedrivePolicy")
        assert dead["MessageRetentionPeriod"] == str(14 * 86_400)

    async def test_a_policy_that_others_set_up_is_read(self, engine: SqsEngine) -> None:
        await engine.broker.create(QueueOptions(name="relay-dlq"))
        arn = (await self.attributes(engine, "relay-dlq"))["QueueArn"]
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": "7"}
        await engine.service.call(
            "set_queue_attributes",
            QueueUrl=await made(engine, "relay"),
            Attributes={"RedrivePolicy": json.dumps(policy)},
        )

        options = (await info(engine.broker, "relay")).options

        assert (options.dead_queue, options.max_attempts) == ("relay-dlq", 7)

    async def test_retries_of_ours_never_reach_the_limit_of_sqs(self, engine: SqsEngine) -> None:
        await self.with_dead_queue(engine, attempts=2)
        await self.sent(engine, to="relay")
        source = engine.broker.source("relay")

        for number in range(1, 8):
            delivery = await self.received(engine, of="relay")
            assert delivery.attempt == number
            await release(source, delivery, history="told")

        assert (await info(engine.broker, "relay-dlq")).ready == 0

    async def test_redriven_messages_are_not_suspects_in_the_dead_queue(
        self, engine: SqsEngine
    ) -> None:
        await self.with_dead_queue(engine, attempts=2)
        (message,) = await self.sent(engine, to="relay")
        url = await made(engine, "relay")
        for _ in range(3):
            await engine.service.call("receive_message", QueueUrl=url, VisibilityTimeout=0)

        delivery = await self.received(engine, of="relay-dlq")

        assert (delivery.message, delivery.suspect) == (message, False)

    async def test_a_dead_queue_is_of_the_same_kind(self, engine: SqsEngine) -> None:
        await engine.broker.create(QueueOptions(name="dead"))
        await engine.broker.create(QueueOptions(name="dead-fifo.fifo"))

        with pytest.raises(ConfigError, match="FIFO"):
            await engine.broker.create(QueueOptions(name="o.fifo", dead_queue="dead"))
        await engine.broker.create(QueueOptions(name="o.fifo", dead_queue="dead-fifo.fifo"))

    async def test_a_limit_that_leaves_no_room_for_a_lost_worker_is_refused(
        self, engine: SqsEngine
    ) -> None:
        await engine.broker.create(QueueOptions(name="dead"))

        with pytest.raises(ConfigError, match="2 or more"):
            await engine.broker.create(
                QueueOptions(name="relay", dead_queue="dead", max_attempts=1)
            )

    async def test_a_conflict_is_found_at_the_queue(self, engine: SqsEngine) -> None:
        broker = engine.broker
        assert isinstance(broker, SqsBroker)
        await engine.broker.create(QueueOptions(name="dead.fifo"))
        await engine.broker.create(
            QueueOptions(name="relay.fifo", dead_queue="dead.fifo", max_attempts=3)
        )

        assert await broker.conflict("relay.fifo", attempts=2) is None
        sentence = await broker.conflict("relay.fifo", attempts=3)
        assert sentence is not None
        assert "Set maxReceiveCount to 4 or more" in sentence

    async def test_visibility_zero_is_a_value(self, engine: SqsEngine) -> None:
        await self.sent(engine, to="o.fifo")
        source = engine.broker.source("o.fifo")
        await release(source, await self.received(engine, of="o.fifo"), 0.0)

        assert len(await source.receive(limit=1, wait=0, lease=LEASE)) == 1


@pytest.mark.parametrize(
    ("name", "attempts", "count", "fine"),
    [
        ("o", 5, 2, True),  # retries are copies: only lost workers count
        ("o", 5, 1, False),
        ("o", 0, 2, True),
        ("o", 0, 1, False),
        ("o.fifo", 5, 6, True),
        ("o.fifo", 5, 5, False),
        ("o.fifo", 0, 1000, True),  # as many as it takes: the most there is
        ("o.fifo", 0, 999, False),
        ("o.fifo", 2000, 1000, True),
    ],
)
def test_how_many_receives_sqs_must_allow(
    name: str, attempts: int, count: int, *, fine: bool
) -> None:
    redrive = Redrive("arn:aws:sqs:eu-west-1:0:dead", count)

    assert (conflict(name, attempts, redrive=redrive) is None) is fine


def test_without_a_redrive_policy_there_is_no_conflict() -> None:
    assert conflict("o.fifo", 5, redrive=None) is None
