"""
NATS mailboxes count and remember like those in memory, whatever is done to them.

The server's time cannot be made to pass, so a lost worker is one whose deliveries the
server gives to the next without a word from us. Order is the server's own: everything
there is, is received at once and compared by id.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from deadletter.brokers.nats.engine import NatsEngine, connect
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Engine, Released, Settlement
from deadletter.stores import memory
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import LEASE, a_message, info
from engines.machines import runs
from engines.nats_rig import fresh
from servers import Server

pytestmark = pytest.mark.slow

T = TypeVar("T")

_WAYS = st.sampled_from(["ack", "release", "tell", "spare", "tell and spare"])


class NatsBesideMemory(RuleBasedStateMachine):
    server: str

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.url = fresh(self.server)
        self.held: list[tuple[Delivery, Delivery]] = []  # ours and the model's
        self.settled: list[tuple[Delivery, Delivery]] = []
        self._runner = asyncio.Runner()

    @initialize()
    def begin(self) -> None:
        self.engine: NatsEngine = self._run(connect(self.url, clock=self.clock))
        dice = SeededDice()
        opening = memory.open_engine("memory://", clock=self.clock, dice=dice)
        self.model: Engine = self._run(opening)
        self.send(1)

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        messages = [a_message() for _ in range(count)]
        for engine in (self.engine, self.model):
            self._run(engine.broker.sink("orders").send(messages))

    @rule()
    def receive(self) -> None:
        self._hold(*[self._received(e) for e in (self.engine, self.model)])

    @rule()
    def receive_alone(self) -> None:
        self.receive()  # suspects are found by receiving
        self._hold(*[self._suspects(e) for e in (self.engine, self.model)])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        size = data.draw(st.integers(1, len(self.held)))
        pairs, self.held = self.held[:size], self.held[size:]
        ways = data.draw(st.lists(_WAYS, min_size=size, max_size=size))
        assert self._settle(pairs, ways) == [True] * size
        self.settled = pairs

    @precondition(lambda self: self.settled)
    @rule(way=_WAYS)
    def settle_again(self, way: str) -> None:
        answers = self._settle(self.settled, [way] * len(self.settled))
        assert not any(answers)

    @rule()
    def lose(self) -> None:
        """Have the worker die that holds everything."""
        self.clock.advance(LEASE)
        self._run(self.model.broker.sweep())
        self._run(self._lost())
        self.held = []

    @rule()
    def reopen(self) -> None:
        self.lose()
        self._run(self.engine.close())
        self.engine = self._run(connect(self.url, clock=self.clock))

    @invariant()
    def both_have_as_many(self) -> None:
        if hasattr(self, "model"):
            ours, theirs = (self._run(info(e.broker)) for e in (self.engine, self.model))
            there = [q.ready + q.claimed + q.suspects for q in (ours, theirs)]
            assert there[0] == there[1]

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self._run(self.engine.broker.delete("orders"))
            self._run(self.engine.close())
        self._runner.close()

    def _received(self, engine: Engine) -> Sequence[Delivery]:
        source = engine.broker.source("orders")
        return self._run(source.receive(limit=500, wait=0, lease=LEASE))

    def _suspects(self, engine: Engine) -> Sequence[Delivery]:
        source, found = engine.broker.source("orders"), []
        while batch := self._run(source.receive(limit=9, wait=0, lease=LEASE, alone=True)):
            found += batch
        return found

    def _hold(self, ours: Sequence[Delivery], theirs: Sequence[Delivery]) -> None:
        by_id = [sorted(side, key=lambda d: d.message.id) for side in (ours, theirs)]
        assert [_told(d) for d in by_id[0]] == [_told(d) for d in by_id[1]]
        self.held += zip(*by_id, strict=True)

    def _settle(
        self, pairs: Sequence[tuple[Delivery, Delivery]], ways: Sequence[str]
    ) -> Sequence[bool]:
        answers = []
        for side, engine in enumerate((self.engine, self.model)):
            settlements = [
                _settlement(pair[side], way) for pair, way in zip(pairs, ways, strict=True)
            ]
            source = engine.broker.source("orders")
            answers.append(self._run(source.settle(settlements)))
        assert list(answers[0]) == list(answers[1])
        return answers[0]

    async def _lost(self) -> None:
        box = self.engine.broker.source("orders")._box
        claims = list(box.claims.values())
        box.claims.clear()
        await box.link.in_turn([box.nak(c.arrival.reply, 0) for c in claims])
        await box.renew(list(box.aside.values()), LEASE)  # as it would by itself

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


def _settlement(delivery: Delivery, way: str) -> Settlement:
    if way == "ack":
        return Acked(delivery)
    story = f"story {delivery.attempt}" if "tell" in way else None
    return Released(delivery, 0.0, story, charged="spare" not in way)


def _told(delivery: Delivery) -> tuple[Any, ...]:
    return (
        delivery.message.id,
        delivery.attempt,
        delivery.spared,
        delivery.suspect,
        delivery.history,
    )


def test_mailboxes_count_and_remember_like_those_in_memory(nats_server: Server) -> None:
    NatsBesideMemory.server = nats_server.url
    run_state_machine_as_test(NatsBesideMemory, settings=runs(25, 30))
