"""SQS's own retry: with `retry=visibility` SQS redelivers, counts and moves by itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from deadletter.brokers.sqs.engine import SqsEngine
from deadletter.brokers.sqs.registry import Redrive, conflict
from deadletter.core.errors import ConfigError, NotFound, Unavailable
from deadletter.core.message import BrokerMove, Delivery, Lineage
from deadletter.ports import Acked, Engine, QueueOptions
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE, a_message, info, release
from deadletter.testing.queue_contract import DeliveringContract
from engines.sqs_rig import SqsBench, TimedSqs, made, opened, url_of


class VisibilityBench(SqsBench):
    @pytest.fixture
    def url(self, timed_sqs_server: TimedSqs, tmp_path: Path) -> str:
        return url_of(timed_sqs_server, claim_check=f"file://{tmp_path}", retry="visibility")

    async def with_dead_queue(self, engine: SqsEngine, attempts: int = 3, end: str = "") -> None:
        await engine.broker.create(QueueOptions(name=f"relay-dlq{end}"))
        await engine.broker.create(
            QueueOptions(name=f"relay{end}", dead_queue=f"relay-dlq{end}", max_attempts=attempts)
        )

    async def peek(self, engine: SqsEngine, mailbox: str) -> list[dict[str, Any]]:
        """Receive a message past the engine, as any SQS client can."""
        answer = await engine.service.call(
            "receive_message",
            QueueUrl=await made(engine, mailbox),
            VisibilityTimeout=0,
            MessageSystemAttributeNames=["All"],
        )
        return list(answer.get("Messages", ()))


class TestDelivering(VisibilityBench, DeliveringContract):
    driver = SqsEngine
    at_once = 1.0

    @pytest.mark.skip(reason="SQS knows whole seconds only: see TestSqs")
    async def test_a_waiting_receive_notices_what_falls_due(self) -> None: ...  # type: ignore[override]

    async def test_a_cancelled_receive_takes_nothing_with_it(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        """As elsewhere; but SQS counts a receive that was cancelled when it was under way."""
        sending = await self.sent(engine, *(a_message() for _ in range(5)))
        source = engine.broker.source("orders")
        handed_out: list[Delivery] = []

        for turns in range(5):  # cancelled ever a little later
            task = asyncio.create_task(source.receive(limit=1, wait=5.0, lease=LEASE))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            handed_out += [] if isinstance(result, BaseException) else result

        rest = await self._all_of(engine, len(sending) - len(handed_out))
        assert {d.message.id for d in [*handed_out, *rest]} == {m.id for m in sending}


class TestVisibility(VisibilityBench):
    async def test_a_retried_message_keeps_its_id_and_sqs_counts_it(
        self, engine: SqsEngine
    ) -> None:
        await self.sent(engine, to="relay")
        source = engine.broker.source("relay")
        seen = []

        for attempt in (1, 2, 3):
            delivery = await self.received(engine, of="relay")
            seen.append((delivery.attempt, delivery.charged, delivery.position))
            await release(source, delivery, history=f"told {attempt}")

        (raw,) = await self.peek(engine, "relay")
        assert seen == [(n, n, raw["MessageId"]) for n in (1, 2, 3)]
        assert raw["Attributes"]["ApproximateReceiveCount"] == "4"

    async def test_a_release_waits_by_the_visibility_timeout(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        await self.sent(engine, to="relay")
        await release(
            engine.broker.source("relay"), await self.received(engine, of="relay"), delay=60.0
        )

        counts = await info(engine.broker, "relay")
        early = await self.peek(engine, "relay")
        await self.pass_time(clock, 61)

        assert (counts.ready, counts.claimed) == (0, 1)
        assert early == []
        assert (await self.received(engine, of="relay")).attempt == 2

    async def test_after_three_receives_sqs_moves_the_message_itself(
        self, engine: SqsEngine
    ) -> None:
        await self.with_dead_queue(engine)
        (message,) = await self.sent(engine, a_message(b"\xff\x00", key="k"), to="relay")
        source = engine.broker.source("relay")
        announced = []

        for _ in range(3):
            delivery = await self.received(engine, of="relay")
            announced.append(delivery.moves_to)
            position = delivery.position
            await release(source, delivery)
        fourth = await source.receive(limit=1, wait=0, lease=LEASE)
        dead = await self.received(engine, of="relay-dlq")

        assert announced == ["", "", "relay-dlq"]
        assert fourth == []
        assert (dead.message, dead.position) == (message, position)
        assert dead.moved == BrokerMove(source="relay", receives=3)

    async def test_workers_that_die_use_up_the_same_three_receives(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(engine)
        (message,) = await self.sent(engine, to="relay")
        source = engine.broker.source("relay")
        runs = []

        for _ in range(6):  # each time somebody takes it and dies
            found = await source.receive(limit=1, wait=0, lease=LEASE)
            runs += [(one.attempt, one.suspect) for one in found]
            await self.pass_time(clock, LEASE + 1)

        assert runs == [(1, False), (2, False), (3, False)]
        assert (await self.received(engine, of="relay-dlq")).message == message

    async def test_no_queue_of_suspects_is_made(self, engine: SqsEngine, clock: FakeClock) -> None:
        await self.sent(engine, to="orders")
        for _ in range(3):
            await engine.broker.source("orders").receive(limit=1, wait=0, lease=LEASE)
            await self.pass_time(clock, LEASE + 1)
            await engine.broker.sweep()

        prefix = (await made(engine, "orders")).rpartition("/")[2]
        answer = await engine.service.call("list_queues", QueueNamePrefix=prefix)
        assert [url.rpartition("/")[2] for url in answer["QueueUrls"]] == [prefix]
        assert not engine.broker.source("orders").features.finds_suspects

    async def test_suspects_of_before_are_still_worked_off(
        self, engine: SqsEngine, clock: FakeClock, url: str
    ) -> None:
        """Whoever switches over loses nothing that lies in the queue of suspects."""
        before = await opened(url.replace("retry=visibility", "retry=copy"), clock)
        (message,) = await self.sent(before)
        old = before.broker.source("orders")
        await old.receive(limit=1, wait=0, lease=LEASE)
        await self.pass_time(clock, LEASE + 1)
        assert await old.receive(limit=1, wait=0, lease=LEASE) == []
        await before.close()

        source = engine.broker.source("orders")
        swept = await engine.broker.sweep()
        suspect = await self.received(engine, alone=True)
        await release(source, suspect)
        again = await self.received(engine)

        assert swept.suspects == {"orders"}
        assert (suspect.message, suspect.suspect, again.suspect) == (message, True, False)
        assert again.message == message

    async def test_the_history_is_kept_while_the_process_lives(
        self, engine: SqsEngine, clock: FakeClock, url: str
    ) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), history="told")
        told = await self.received(engine)
        await release(source, told)
        other = await opened(url, clock)

        elsewhere = await self.received(other)

        assert (told.history, elsewhere.history, elsewhere.attempt) == ("told", "", 3)
        await other.close()

    async def test_long_delays_do_not_use_up_receives(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(engine)
        await self.sent(engine, to="relay", delay=3 * 43_200.0)
        source = engine.broker.source("relay")

        found = []
        for _ in range(300):
            await self.pass_time(clock, 600)
            found = await source.receive(limit=1, wait=0, lease=LEASE)
            if found:
                break

        (delivery,) = found
        assert (delivery.attempt, delivery.moves_to) == (1, "")
        assert clock.monotonic() >= 3 * 43_200.0
        assert await engine.broker.source("relay-dlq").receive(limit=1, wait=0, lease=1) == []

    async def test_a_replayed_copy_is_moved_with_its_lineage(self, engine: SqsEngine) -> None:
        await self.with_dead_queue(engine)
        lineage = Lineage(letter_id="a" * 24, generation=2, campaign="c")
        await self.sent(engine, a_message(lineage=lineage), to="relay")
        for _ in range(3):
            await release(engine.broker.source("relay"), await self.received(engine, of="relay"))
        await engine.broker.source("relay").receive(limit=1, wait=0, lease=LEASE)

        dead = await self.received(engine, of="relay-dlq")

        assert dead.message.lineage == lineage
        assert dead.moved is not None

    async def test_a_fifo_queue_is_counted_and_moved_alike(self, engine: SqsEngine) -> None:
        await self.with_dead_queue(engine, end=".fifo")
        one, two = await self.sent(engine, a_message(key="a"), a_message(key="a"), to="relay.fifo")
        source = engine.broker.source("relay.fifo")

        for attempt in (1, 2, 3):
            delivery = await self.received(engine, of="relay.fifo")
            assert (delivery.message, delivery.attempt) == (one, attempt)
            await release(source, delivery)
        behind = await self.received(engine, of="relay.fifo")
        dead = await self.received(engine, of="relay-dlq.fifo")

        assert delivery.moves_to == "relay-dlq.fifo"
        assert (behind.message, dead.message) == (two, one)

    async def test_without_a_redrive_policy_nothing_is_announced(self, engine: SqsEngine) -> None:
        await self.sent(engine)
        source = engine.broker.source("orders")
        for _ in range(5):
            delivery = await self.received(engine)
            await release(source, delivery)

        assert (delivery.attempt, delivery.moves_to) == (5, "")

    async def test_a_letter_that_waits_in_the_dead_queue_keeps_where_it_came_from(
        self, engine: SqsEngine
    ) -> None:
        await self.with_dead_queue(engine)
        await self.sent(engine, to="relay")
        for _ in range(4):
            await self.peek(engine, "relay")
        dead = engine.broker.source("relay-dlq")
        first = await self.received(engine, of="relay-dlq")
        await release(dead, first)

        again = await self.received(engine, of="relay-dlq")

        assert again.moved == first.moved == BrokerMove(source="relay", receives=3)
        assert await dead.settle([Acked(again)]) == [True]


class TestFixedQueues(SqsBench):
    @pytest.fixture
    def url(self, timed_sqs_server: TimedSqs) -> str:
        return url_of(timed_sqs_server, create="no")

    async def test_no_queue_is_made(self, engine: SqsEngine) -> None:
        with pytest.raises(NotFound, match="create it"):
            await engine.broker.create(QueueOptions(name="orders"))
        with pytest.raises(Unavailable, match="create it"):
            await self.sent(engine)
        with pytest.raises(Unavailable, match="create it"):
            await engine.broker.source("orders").receive(limit=1, wait=0, lease=LEASE)

        assert await engine.broker.queues() == []

    async def test_no_queue_is_changed_or_deleted(
        self, engine: SqsEngine, clock: FakeClock, url: str
    ) -> None:
        maker = await opened(url.replace("create=no", "create=yes"), clock)
        for name in ("dead", "orders"):
            await maker.broker.create(QueueOptions(name=name))
        await maker.close()
        before = await info(engine.broker)

        await engine.broker.create(QueueOptions(name="orders"))  # it is there already
        with pytest.raises(ConfigError, match="set its dead queue to dead"):
            await engine.broker.update(QueueOptions(name="orders", dead_queue="dead"))
        with pytest.raises(ConfigError, match="not changed"):
            await engine.broker.delete("orders")

        assert await info(engine.broker) == before


class TestAccount(SqsBench):
    """Queues of another account, as its queue policy allows."""

    OTHER = "111122223333"

    @pytest.fixture
    def url(self, timed_sqs_server: TimedSqs) -> str:
        return url_of(timed_sqs_server, account=self.OTHER)

    async def shared(self, url: str, clock: FakeClock, name: str) -> str:
        """Make a queue in the other account, which we may use."""
        theirs = url.replace("test:test@", f"{self.OTHER}:secret@")
        maker = await opened(theirs.replace(f"&account={self.OTHER}", ""), clock)
        await maker.broker.create(QueueOptions(name=name))
        queue = await made(maker, name)
        allowed = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
        await maker.service.call(
            "set_queue_attributes",
            QueueUrl=queue,
            Attributes={"Policy": json.dumps({"Version": "2012-10-17", "Statement": [allowed]})},
        )
        await maker.close()
        return queue

    async def test_queues_of_the_account_are_used(
        self, engine: SqsEngine, clock: FakeClock, url: str
    ) -> None:
        theirs = await self.shared(url, clock, "orders")

        (message,) = await self.sent(engine)
        delivery = await self.received(engine)
        await engine.broker.create(QueueOptions(name="orders"))

        assert await made(engine, "orders") == theirs
        assert f"/{self.OTHER}/" in theirs
        assert delivery.message == message
        assert [queue.options.name for queue in await engine.broker.queues()] == ["orders"]

    async def test_a_queue_of_that_name_in_our_account_is_not_used(
        self, engine: SqsEngine, clock: FakeClock, url: str
    ) -> None:
        ours = await opened(url.replace(f"&account={self.OTHER}", ""), clock)
        await ours.broker.create(QueueOptions(name="orders"))
        await ours.close()

        with pytest.raises(Unavailable, match=f"account {self.OTHER}"):
            await self.sent(engine)


@pytest.mark.parametrize(
    ("name", "attempts", "count", "fine"),
    [
        ("o", 3, 3, True),  # the third receive is the last one, for both
        ("o", 4, 3, False),
        ("o", 3, 5, True),  # the worker gives up first
        ("o", 0, 1000, True),
        ("o", 0, 999, False),
        ("o.fifo", 3, 3, True),
        ("o.fifo", 4, 3, False),
    ],
)
def test_handlers_may_try_no_more_often_than_sqs_delivers(
    name: str, attempts: int, count: int, *, fine: bool
) -> None:
    redrive = Redrive("arn:aws:sqs:eu-west-1:0:dead", count)

    assert (conflict(name, attempts, redrive=redrive, in_place=True) is None) is fine
