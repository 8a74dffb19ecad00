"""SQS mailboxes beside a small model, whatever is done to them."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct

from deadletter.core.message import Delivery
from deadletter.ports import Acked, Released, Settlement
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import a_message
from engines.machines import runs
from engines.sqs_rig import TimedSqs, opened, url_of
from servers import Server
from servers.fixtures import serve

pytestmark = pytest.mark.slow

T = TypeVar("T")

LEASE = 10.0
BOX = "orders"


class Standing(Struct):
    """How a message stands; SQS may choose any that is due, the rest is certain."""

    due: float
    attempt: int = 0
    spared: int = 0
    history: str = ""
    suspect: bool = False
    lost: bool = False  # whoever receives it next makes it a suspect
    leased: float | None = None


class SqsMachine(RuleBasedStateMachine):
    server: TimedSqs

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.url = url_of(self.server)
        self.there: dict[str, Standing] = {}
        self.held: list[Delivery] = []
        self._runner = asyncio.Runner()

    @initialize()
    def begin(self) -> None:
        self.server.follow(self.clock)
        self.engine = self._run(opened(self.url, self.clock))

    @rule(count=st.integers(1, 12), delay=st.sampled_from([0, 0, 3, 1000, 50_000]))
    def send(self, count: int, delay: float) -> None:
        messages = [a_message() for _ in range(count)]
        self._run(self.engine.broker.sink(BOX).send(messages, delay=delay))
        for message in messages:
            self.there[message.id] = Standing(self._now() + delay)

    @rule(limit=st.integers(1, 25), alone=st.booleans())
    def receive(self, limit: int, *, alone: bool) -> None:
        for standing in self.there.values():
            self._expire(standing)
        found = self._run(
            self.engine.broker.source(BOX).receive(limit=limit, wait=0, lease=LEASE, alone=alone)
        )
        assert len(found) <= (1 if alone else limit)
        for delivery in found:
            self._check(delivery, self.there[delivery.message.id], alone=alone)
            self.held.append(delivery)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay=st.sampled_from([0, 0, 0, 3, 2000]))
    def settle(self, data: st.DataObject, delay: float) -> None:
        held = data.draw(st.lists(st.sampled_from(self.held[-15:]), min_size=1))
        ways = st.sampled_from(["ack", "release", "tell", "spare"])
        settlements = [_settlement(d, data.draw(ways), delay) for d in held]

        ours = self._run(self.engine.broker.source(BOX).settle(settlements))

        for settlement, mine in zip(settlements, ours, strict=True):
            assert mine is self._settled(settlement, delay)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        held = data.draw(st.lists(st.sampled_from(self.held[-15:]), min_size=1))

        ours = self._run(self.engine.broker.source(BOX).extend(held, lease=LEASE))

        assert ours == [self._is_ours(delivery) for delivery in held]
        for delivery in held:
            if self._is_ours(delivery):
                self.there[delivery.message.id].leased = self._now() + LEASE

    @rule(seconds=st.sampled_from([1.0, 5.0, LEASE, 1000.0, 20_000.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.server.follow(self.clock)

    def teardown(self) -> None:
        """In the end everything that was not acked comes out again."""
        if hasattr(self, "engine"):
            self._run(self._drain())
            self._run(self.engine.close())
            assert self.there == {}, "LOST"
        self._runner.close()

    async def _drain(self) -> None:
        source = self.engine.broker.source(BOX)
        for _ in range(200):
            busy = False
            for alone in (False, True):
                found = await source.receive(limit=50, wait=0, lease=LEASE, alone=alone)
                await source.settle([Acked(delivery) for delivery in found])
                for delivery in found:
                    busy = True
                    del self.there[delivery.message.id]
            if not self.there:
                return
            if not busy:
                self.clock.advance(5000.0)
                self.server.follow(self.clock)

    def _check(self, delivery: Delivery, standing: Standing, *, alone: bool) -> None:
        assert standing.leased is None, "somebody else has it"
        assert standing.due <= self._now(), "too early"
        assert delivery.suspect is alone is (standing.suspect or standing.lost)
        # A receive that only noticed a loss counts as well, and is spared as well.
        assert delivery.attempt >= standing.attempt + 1
        assert delivery.charged == standing.attempt + 1 - standing.spared
        assert delivery.history == standing.history
        standing.attempt, standing.spared = delivery.attempt, delivery.spared
        standing.suspect, standing.lost = alone, False
        standing.leased = self._now() + LEASE

    def _settled(self, settlement: Settlement, delay: float) -> bool:
        delivery = settlement.delivery
        if not self._is_ours(delivery):
            return False
        if isinstance(settlement, Acked):
            del self.there[delivery.message.id]
            return True
        standing = self.there[delivery.message.id]
        standing.leased, standing.due = None, self._now() + delay
        standing.spared += not settlement.charged
        if settlement.history is not None:
            standing.history = settlement.history
        standing.suspect = (
            standing.suspect and not settlement.charged and settlement.history is None
        )
        return True

    def _is_ours(self, delivery: Delivery) -> bool:
        standing = self.there.get(delivery.message.id)
        if standing is None or standing.leased is None:
            return False
        return delivery.attempt == standing.attempt and standing.leased > self._now()

    def _expire(self, standing: Standing) -> None:
        """A lease may be over: lost in company it is spared, alone it is charged."""
        if standing.leased is None or standing.leased > self._now():
            return
        standing.leased = None
        if not standing.suspect:
            standing.spared += 1
            standing.lost = True

    def _now(self) -> float:
        return self.clock.monotonic()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


def _settlement(delivery: Delivery, way: str, delay: float) -> Settlement:
    match way:
        case "ack":
            return Acked(delivery)
        case "release":
            return Released(delivery, delay)
        case "tell":
            return Released(delivery, delay, f"story {delivery.attempt}")
        case _:
            return Released(delivery, delay, charged=False)


@pytest.fixture
def timed_sqs_server(started_servers: list[Server]) -> Iterator[Server]:
    yield from serve(TimedSqs, started_servers)


def test_mailboxes_do_what_they_should_whatever_is_done(timed_sqs_server: TimedSqs) -> None:
    SqsMachine.server = timed_sqs_server

    # Without shrinking, which would take minutes: an example is a new engine.
    generated = [Phase.explicit, Phase.reuse, Phase.generate]
    run_state_machine_as_test(SqsMachine, settings=runs(20, 25, phases=generated))
