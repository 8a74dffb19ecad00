"""The whole contract of an engine's mailboxes, and the part about sending and receiving."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from deadletter.core.errors import BackendError
from deadletter.core.message import LONGEST_TEXT, Delivery, Lineage, Message
from deadletter.ports import Acked, Engine

from .fakes import START, FakeClock
from .queue_bench import LEASE, MailboxBench, a_message, drained, info, promised, release, soon
from .queue_settling import LosingContract, SettlingContract

_texts = st.text(max_size=20)
_maybe = st.none() | _texts
_times = st.integers(-(10**15), 10**16).map(lambda us: START + timedelta(0, 0, us))

messages = st.builds(
    Message,
    id=st.text(min_size=1, max_size=60),
    body=st.binary(max_size=300),
    sent_at=_times,
    headers=st.lists(st.tuples(_texts, st.binary(max_size=40)), max_size=5).map(tuple),
    content_type=_maybe,
    key=_maybe,
    expires_at=st.none() | _times,
    reply_to=_maybe,
    idempotency_key=_maybe,
    traceparent=_maybe,
    tracestate=_maybe,
    lineage=st.none()
    | st.builds(Lineage, letter_id=_texts, generation=st.integers(1, 99), campaign=_texts),
)
"""Messages of every shape; bodies and headers of any bytes."""

_TEXTS = (
    *("id", "content_type", "key", "reply_to", "idempotency_key"),
    *("traceparent", "tracestate"),
)
# Nobody can send the last two, but letters of foreign brokers may hold them.
_ODD = ("\0", "a\0b", "\n\x1b[2J", "\ufdd0dc80", "\udc80", "\ufdd0 \ud800\0 é")


class DeliveringContract(MailboxBench):
    """Messages in, deliveries out: whole, in order, in time, once each."""

    @given(sending=st.lists(messages, min_size=1, max_size=5))
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # emptied by each example itself
            HealthCheck.differing_executors,  # that is what a contract is for
        ],
    )
    async def test_messages_arrive_as_they_were_sent(
        self, engine: Engine, sending: list[Message]
    ) -> None:
        source = engine.broker.source("orders")
        if engine.features.dedupes:  # also of what an earlier example has sent
            sending = [structs.replace(m, id=a_message().id + m.id) for m in sending]
        await engine.broker.sink("orders").send(sending)

        deliveries = await drained(source)

        by_due = sending
        if engine.features.due_order:  # what has expired is due at once
            by_due = sorted(sending, key=lambda message: min(message.expires_at or START, START))
        assert [delivery.message for delivery in deliveries] == by_due
        assert {delivery.mailbox for delivery in deliveries} == {"orders"}
        assert all(await source.settle([Acked(delivery) for delivery in deliveries]))

    async def test_the_longest_and_oddest_texts_arrive_as_they_were_sent(
        self, engine: Engine
    ) -> None:
        long = ("x" * LONGEST_TEXT, "é" * (LONGEST_TEXT // 2), "\0" * 2_000)
        given: list[dict[str, Any]] = [
            *({name: text} for name in _TEXTS for text in long),
            *({"headers": ((text, b"x"),)} for text in long),
            *({"headers": ((odd, b"x"),), **dict.fromkeys(_TEXTS, odd)} for odd in _ODD),
        ]
        sending = [a_message(**fields) for fields in given]
        await self.sent(engine, *sending)

        deliveries = await drained(engine.broker.source("orders"))

        assert [delivery.message for delivery in deliveries] == sending

    async def test_large_and_small_bodies_arrive_whole(self, engine: Engine) -> None:
        sizes = [10, 1_000_000, 0, 16_384, 16_385, 10]
        sending = [a_message(bytes([i]) * size) for i, size in enumerate(sizes)]
        await self.sent(engine, *sending)

        deliveries = await drained(engine.broker.source("orders"))

        assert [delivery.message for delivery in deliveries] == sending

    async def test_messages_arrive_in_the_order_they_were_sent(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        sending = [a_message() for _ in range(250)]
        for start in range(0, 250, 50):
            await self.sent(engine, *sending[start : start + 50])

        deliveries = await drained(engine.broker.source("orders"), limit=70)

        assert [d.message.id for d in deliveries] == [m.id for m in sending]

    async def test_no_more_is_received_than_asked_for(self, engine: Engine) -> None:
        await self.sent(engine, *(a_message() for _ in range(5)))
        source = engine.broker.source("orders")

        none = await source.receive(limit=0, wait=0, lease=LEASE)
        three = await source.receive(limit=3, wait=0, lease=LEASE)
        rest = await source.receive(limit=3, wait=0, lease=LEASE)

        assert (len(none), len(three), len(rest)) == (0, 3, 2)

    async def test_mailboxes_do_not_mix(self, engine: Engine) -> None:
        await self.sent(engine, to="orders")
        (other,) = await self.sent(engine, to="returns")

        delivery = await self.received(engine, of="returns", limit=10)

        assert delivery.message == other
        assert delivery.mailbox == "returns"

    async def test_the_first_delivery_is_attempt_one(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)

        delivery = await self.received(engine)

        assert (delivery.attempt, delivery.spared, delivery.charged) == (1, 0, 1)
        assert not delivery.suspect
        assert delivery.history == ""
        assert delivery.first_received_at is not None

    async def test_a_delayed_message_is_not_received_before_its_time(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, delay=2.0)
        source = engine.broker.source("orders")

        at_once = await source.receive(limit=1, wait=0, lease=LEASE)
        await self.pass_time(clock, 1.9)
        too_early = await source.receive(limit=1, wait=0, lease=LEASE)
        await self.pass_time(clock, 0.1)
        in_time = await source.receive(limit=1, wait=self.slack, lease=LEASE)

        assert (len(at_once), len(too_early), len(in_time)) == (0, 0, 1)

    @promised("due_order")
    async def test_what_is_due_first_comes_first(self, engine: Engine, clock: FakeClock) -> None:
        (late,) = await self.sent(engine, delay=2.0)
        (early,) = await self.sent(engine, delay=1.0)
        (now,) = await self.sent(engine)
        await self.pass_time(clock, 3.0)

        deliveries = await drained(engine.broker.source("orders"))

        assert [d.message.id for d in deliveries] == [now.id, early.id, late.id]

    async def test_an_expired_message_is_due_at_once(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        # Whoever works the mailbox must see it to bury it, and in time.
        expires_at = clock.now() + timedelta(seconds=5)
        await self.sent(engine, a_message(expires_at=expires_at), delay=60.0)

        await self.pass_time(clock, 5.0)

        delivery = await self.received(engine)
        assert delivery.message.expires_at == expires_at

    async def test_sending_is_all_or_nothing(self, engine: Engine) -> None:
        good, odd = a_message(), a_message(id="\ud800")

        try:
            await self.sent(engine, good, odd)
        except BackendError:
            expected = 0
        else:
            expected = 2

        found = await drained(engine.broker.source("orders"))
        assert len(found) == expected

    async def test_sending_nothing_is_fine(self, engine: Engine) -> None:
        await engine.broker.sink("orders").send([])

        assert await self.nothing_left(engine)

    async def test_waiting_ends_when_time_is_up(self, engine: Engine) -> None:
        source = engine.broker.source("orders")

        assert await source.receive(limit=1, wait=0.05, lease=LEASE) == []

    async def test_a_waiting_receive_wakes_at_once_when_something_is_sent(
        self, engine: Engine
    ) -> None:
        waiting = await self._waiting(engine)

        await self.sent(engine)

        assert await soon(waiting, within=self.patience) < self.at_once
        assert len(waiting.result()) == 1

    async def test_a_waiting_receive_wakes_at_once_when_something_is_released(
        self, engine: Engine
    ) -> None:
        await self.sent(engine)
        delivery = await self.received(engine)
        waiting = await self._waiting(engine)

        await release(engine.broker.source("orders"), delivery)

        assert await soon(waiting, within=self.patience) < self.at_once

    async def test_a_waiting_receive_notices_what_falls_due(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        waiting = await self._waiting(engine)
        await self.sent(engine, delay=0.03)

        await self.pass_time(clock, 0.03)

        await soon(waiting, within=self.patience)
        assert len(waiting.result()) == 1

    async def test_those_who_wait_elsewhere_are_not_disturbed(self, engine: Engine) -> None:
        waiting = await self._waiting(engine, of="returns")

        await self.sent(engine)

        await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()

    async def test_a_cancelled_receive_takes_nothing_with_it(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        sending = await self.sent(engine, *(a_message() for _ in range(20)))
        source = engine.broker.source("orders")
        handed_out: list[Delivery] = []

        for patience in range(20):  # cancelled ever a little later
            task = asyncio.create_task(source.receive(limit=1, wait=5.0, lease=LEASE))
            for _ in range(patience % 5):
                await asyncio.sleep(0)
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            handed_out += [] if isinstance(result, BaseException) else result

        rest = await self._all_of(engine, len(sending) - len(handed_out))
        seen = [*handed_out, *rest]
        assert {d.message.id for d in seen} == {m.id for m in sending}
        assert {d.attempt for d in seen} == {1}

    async def test_eight_consumers_never_share_a_delivery(self, engine: Engine) -> None:
        sending = [a_message() for _ in range(400)]
        await self.sent(engine, *sending)
        seen: list[str] = []

        async def consume() -> None:
            source = engine.broker.source("orders")
            while batch := await source.receive(limit=7, wait=0, lease=LEASE):
                seen.extend(delivery.message.id for delivery in batch)
                assert all(await source.settle([Acked(d) for d in batch]))

        await asyncio.gather(*(consume() for _ in range(8)))

        assert sorted(seen) == sorted(message.id for message in sending)
        assert (await info(engine.broker)).claimed == 0

    async def _waiting(
        self, engine: Engine, *, of: str = "orders"
    ) -> "asyncio.Task[list[Delivery]]":
        """Somebody who waits for a message, and by now truly does."""
        source = engine.broker.source(of)
        receiving = source.receive(limit=10, wait=self.patience, lease=LEASE)
        task: asyncio.Task[list[Delivery]] = asyncio.create_task(receiving)  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        return task

    async def _all_of(self, engine: Engine, count: int) -> list[Delivery]:
        """Return so many deliveries, which may come back a moment later."""
        source = engine.broker.source("orders")
        found: list[Delivery] = []
        while len(found) < count:
            batch = await source.receive(limit=50, wait=self.patience, lease=LEASE)
            if not batch:
                pytest.fail(f"only {len(found)} of {count} came back")
            found += batch
        return found


class QueueContract(DeliveringContract, SettlingContract, LosingContract):
    """All of it. A backend's whole test is a subclass with a fixture `engine`."""
