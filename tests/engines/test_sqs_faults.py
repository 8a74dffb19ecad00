"""SQS in a bad mood: entries fail in batches, answers get lost."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from deadletter.brokers.sqs.engine import SqsEngine
from deadletter.core.errors import Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Released
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE, a_message, info
from engines.sqs_rig import SqsBench, made

Call = Callable[..., Awaitable[Any]]


class Moody:
    """
    A client whose batches fail in part, or are done and not answered.

    `plan` says what happens to the calls of a verb, in order: "fail" refuses the
    first entry for now, "lose" does it all and loses the answer, "change" turns a bit
    in bodies on their way; after that all is well. With `dice` it happens at random.
    """

    def __init__(self, client: Any, *plan: tuple[str, str], dice: Random | None = None):
        self._client = client
        self._plan = list(plan)
        self._dice = dice

    def __getattr__(self, verb: str) -> Call:
        call: Call = getattr(self._client, verb)
        mood = self._mood(verb)
        match mood:
            case "fail":
                return lambda **a: _without_the_first(call, **a)
            case "lose":
                return lambda **a: _unanswered(call, **a)
            case "change":
                return lambda **a: _changed(call, **a)
        return call

    def _mood(self, verb: str) -> str:
        if self._dice is not None and verb.endswith("_batch"):
            return self._dice.choices(["", "fail", "lose"], weights=[6, 1, 1])[0]
        for step in self._plan:
            if step[0] == verb:
                self._plan.remove(step)
                return step[1]
        return ""


async def _without_the_first(call: Call, **arguments: Any) -> Any:
    first, *rest = arguments.pop("Entries")
    answer = await call(Entries=rest, **arguments) if rest else {}
    failed = {"Id": first["Id"], "Code": "InternalError", "SenderFault": False}
    return {**answer, "Failed": [*answer.get("Failed", ()), failed]}


async def _unanswered(call: Call, **arguments: Any) -> Any:
    await call(**arguments)
    raise ReadTimeoutError(endpoint_url="http://sqs")


async def _changed(call: Call, **arguments: Any) -> Any:
    entries = arguments.get("Entries", ())
    sent = [{**one, "MessageBody": _turned(one["MessageBody"])} for one in entries]
    answer = await call(**(arguments | ({"Entries": sent} if sent else {})))
    for raw in answer.get("Messages", ()):
        raw["Body"] = _turned(raw["Body"])
    return answer


def _turned(body: str) -> str:
    return chr(ord(body[0]) ^ 1) + body[1:]


def in_a_mood(engine: SqsEngine, *plan: tuple[str, str], **how: Any) -> None:
    engine.service._calling = Moody(engine.service._calling, *plan, **how)


async def insist(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat what is out of reach, as the runtime does."""
    for _ in range(50):
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0)
    raise AssertionError("it never worked")


class TestFaults(SqsBench):
    async def taken(self, engine: SqsEngine, count: int) -> list[Delivery]:
        await self.sent(engine, *(a_message() for _ in range(count)))
        source = engine.broker.source("orders")
        return list(await source.receive(limit=count, wait=0, lease=LEASE))

    async def test_failed_entries_of_a_batch_are_sent_again(self, engine: SqsEngine) -> None:
        in_a_mood(engine, ("send_message_batch", "fail"))

        await self.sent(engine, *(a_message() for _ in range(3)))

        assert (await info(engine.broker)).ready == 3

    async def test_when_only_some_can_be_sent_it_says_how_many(self, engine: SqsEngine) -> None:
        in_a_mood(engine, *[("send_message_batch", "fail")] * 3)

        with pytest.raises(Unavailable, match="2 of 3 messages were sent"):
            await self.sent(engine, *(a_message() for _ in range(3)))

    async def test_messages_with_a_wrong_md5_are_sent_again(self, engine: SqsEngine) -> None:
        in_a_mood(engine, ("send_message_batch", "change"))

        (message,) = await self.sent(engine, a_message(body=b"pay 100"))

        source = engine.broker.source("orders")
        found = await source.receive(limit=10, wait=0, lease=LEASE)
        assert message.body in [delivery.message.body for delivery in found]

    async def test_messages_that_sqs_keeps_changing_raise_an_error(self, engine: SqsEngine) -> None:
        in_a_mood(engine, *[("send_message_batch", "change")] * 3)

        with pytest.raises(Unavailable, match="damaged body"):
            await self.sent(engine, a_message(body=b"pay 100"))

    async def test_messages_that_arrive_changed_are_not_delivered_and_come_again(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        await self.sent(engine, a_message(body=b"pay 100"))
        source = engine.broker.source("orders")
        in_a_mood(engine, ("receive_message", "change"))

        with pytest.raises(Unavailable, match="arrived damaged"):
            await source.receive(limit=1, wait=0, lease=LEASE)
        await self.pass_time(clock, LEASE)

        assert await source.receive(limit=1, wait=0, lease=LEASE) == []
        suspect = await self.received(engine, alone=True)
        assert suspect.message.body == b"pay 100"
        assert suspect.charged == 1

    async def test_an_ack_that_failed_in_a_batch_can_be_repeated(self, engine: SqsEngine) -> None:
        acks = [Acked(delivery) for delivery in await self.taken(engine, 3)]
        source = engine.broker.source("orders")
        in_a_mood(engine, ("delete_message_batch", "fail"))

        with pytest.raises(Unavailable):
            await source.settle(acks)

        assert await source.settle(acks) == [True, True, True]
        assert await source.settle(acks) == [False, False, False]

    async def test_an_ack_whose_answer_got_lost_was_ours(self, engine: SqsEngine) -> None:
        acks = [Acked(delivery) for delivery in await self.taken(engine, 3)]
        source = engine.broker.source("orders")
        in_a_mood(engine, ("delete_message_batch", "lose"))

        assert await insist(lambda: source.settle(acks)) == [True, True, True]

    async def test_a_release_whose_delete_got_lost_is_not_copied_twice(
        self, engine: SqsEngine
    ) -> None:
        releases = [Released(d, history="told") for d in await self.taken(engine, 3)]
        source = engine.broker.source("orders")
        in_a_mood(engine, ("delete_message_batch", "lose"))

        settled = await insist(lambda: source.settle(releases))

        assert settled == [True, True, True]
        again = await source.receive(limit=10, wait=0, lease=LEASE)
        assert [d.attempt for d in again] == [2, 2, 2]

    async def test_a_mixed_batch_fails_and_is_repeated_as_a_whole(self, engine: SqsEngine) -> None:
        one, two, three = await self.taken(engine, 3)
        mix = [Acked(one), Released(two, history="told"), Acked(three)]
        source = engine.broker.source("orders")
        in_a_mood(engine, *[("send_message_batch", "fail")] * 3, ("delete_message_batch", "fail"))

        assert await insist(lambda: source.settle(mix)) == [True, True, True]
        (again,) = await source.receive(limit=10, wait=0, lease=LEASE)
        assert (again.message, again.history) == (two.message, "told")

    async def test_an_extension_that_is_unanswered_can_be_repeated(self, engine: SqsEngine) -> None:
        deliveries = await self.taken(engine, 3)
        source = engine.broker.source("orders")
        in_a_mood(engine, ("change_message_visibility_batch", "lose"))

        extended = await insist(lambda: source.extend(deliveries, lease=LEASE))

        assert extended == [True, True, True]

    async def test_one_of_several_receives_that_fails_costs_nothing(
        self, engine: SqsEngine
    ) -> None:
        await self.sent(engine, *(a_message() for _ in range(20)))
        in_a_mood(engine, ("receive_message", "lose"))

        found = await engine.broker.source("orders").receive(limit=20, wait=0, lease=LEASE)

        assert len(found) == 10

    async def test_a_suspect_that_cannot_be_moved_comes_back(
        self, engine: SqsEngine, clock: FakeClock
    ) -> None:
        await self.taken(engine, 1)
        await self.pass_time(clock, LEASE)
        source = engine.broker.source("orders")
        in_a_mood(engine, *[("send_message_batch", "fail")] * 3)
        assert await source.receive(limit=1, wait=0, lease=LEASE) == []

        await self.pass_time(clock, LEASE)
        assert await source.receive(limit=1, wait=0, lease=LEASE) == []

        suspect = await self.received(engine, alone=True)
        assert (suspect.attempt, suspect.charged) == (3, 1)

    @pytest.mark.parametrize("seed", range(3))
    async def test_in_whatever_mood_nothing_is_lost(
        self, engine: SqsEngine, clock: FakeClock, seed: int
    ) -> None:
        """Each message fails twice, then is handled; some twice, none never."""
        dice = Random(seed)
        messages = await self.sent(engine, *(a_message() for _ in range(40)))
        source = engine.broker.source("orders")
        await made(engine, "orders")
        in_a_mood(engine, dice=dice)
        handled: Counter[str] = Counter()
        stories: dict[str, set[str]] = {}

        async def work(*, alone: bool) -> int:
            found = await insist(lambda: source.receive(limit=20, wait=0, lease=LEASE, alone=alone))
            settlements: list[Acked | Released] = []
            for delivery in found:
                told = stories.setdefault(delivery.message.id, set())
                told.add(delivery.history)
                if len(delivery.history) < 2:
                    longer = delivery.history + "x"
                    settlements.append(Released(delivery, history=longer))
                else:
                    settlements.append(Acked(delivery))
            ours = await insist(lambda: source.settle(settlements))
            for settlement, mine in zip(settlements, ours, strict=True):
                if mine and isinstance(settlement, Acked):
                    handled[settlement.delivery.message.id] += 1
            return len(found)

        quiet = 0
        while quiet < 3:
            busy = await work(alone=False) + await work(alone=True)
            quiet = 0 if busy else quiet + 1
            if not busy:
                await self.pass_time(clock, LEASE)

        assert set(handled) == {message.id for message in messages}
        assert all(told == {"", "x", "xx"} for told in stories.values())
