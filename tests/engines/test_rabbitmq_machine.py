"""Whatever is done to a mailbox: nothing is lost, doubled or wrongly charged."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct

from deadletter.backends.rabbitmq.engine import RabbitEngine, connect
from deadletter.core.message import Delivery, Message
from deadletter.ports import Acked, Released, Settlement
from deadletter.testing.fakes import START, FakeClock
from engines.rabbitmq_rig import emptied
from servers import Server

pytestmark = pytest.mark.slow

T = TypeVar("T")
LEASE = 30.0

_ways = st.sampled_from(["ack", "release", "tell", "spare"])


class Known(Struct):
    """What must be true of a message."""

    message: Message
    charged: int = 1  # as its next delivery will say
    history: str = ""
    alone: bool = False  # as it is held now


class RabbitMachine(RuleBasedStateMachine):
    """
    Does things, and remembers what must come of them.

    What the broker had sent ahead when a channel is closed is suspect, whether
    or not anybody had it: so suspicion is checked where it is handed out, and what
    is charged everywhere.
    """

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.count = 0
        self.there: dict[str, Known] = {}
        self.held: dict[str, tuple[Known, Delivery]] = {}
        self.past: list[Delivery] = []
        self._runner = asyncio.Runner()

    @initialize()
    def begin(self) -> None:
        self.engine: RabbitEngine = self._run(connect(self.url, clock=self.clock))
        self._run(emptied(self.engine))

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        messages = [
            Message(id=f"m-{self.count + i}", body=b"body", sent_at=START)
            for i in range(count)
        ]
        self.count += count
        self.there |= {message.id: Known(message) for message in messages}
        self._run(self.engine.broker.sink("orders").send(messages))

    @rule(limit=st.integers(1, 7), alone=st.booleans())
    def receive(self, limit: int, *, alone: bool) -> None:
        for delivery in self._received(limit, alone=alone):
            known = self.there.pop(delivery.message.id)  # neither held nor gone
            assert delivery.message == known.message
            assert (delivery.charged, delivery.history) == (
                known.charged,
                known.history,
            )
            assert delivery.suspect is alone
            known.alone = alone
            self.held[delivery.message.id] = known, delivery

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True))
        settlements = [self._settled(name, data.draw(_ways)) for name in names]

        assert self._settle(settlements) == [True] * len(names)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        old = data.draw(st.lists(st.sampled_from(self.past[-8:]), max_size=3))

        assert not any(self._settle([Acked(delivery) for delivery in old]))

    @rule()
    def leases_run_out(self) -> None:
        self.clock.advance(LEASE)
        swept = self._run(self.engine.broker.sweep())

        assert swept.lost == len(self.held)
        self._lose()

    @rule()
    def the_channel_closes(self) -> None:
        self.engine._mailboxes._box("orders").inbox.close()
        self._lose()

    @rule()
    def the_engine_is_opened_again(self) -> None:
        self._run(self.engine.close())
        self.engine = self._run(connect(self.url, clock=self.clock))
        self._lose()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for _ in range(200):  # what went back may take a moment to be there
            if not self.there:
                break
            self.receive(50, alone=False)
            self.receive(1, alone=True)
        assert not self.there, "these were lost"
        self._run(self.engine.close())
        self._runner.close()

    def _settled(self, name: str, way: str) -> Settlement:
        known, delivery = self.held.pop(name)
        self.past.append(delivery)
        if way == "ack":
            return Acked(delivery)
        self.there[name] = known
        if way == "spare":
            return Released(delivery, charged=False)
        known.charged += 1
        if way == "release":
            return Released(delivery)
        known.history = f"story {delivery.attempt}"
        return Released(delivery, history=known.history)

    def _lose(self) -> None:
        """Nobody holds anything any more."""
        for name, (known, delivery) in self.held.items():
            known.charged += known.alone
            self.there[name] = known
            self.past.append(delivery)
        self.held.clear()

    def _received(self, limit: int, *, alone: bool) -> Sequence[Delivery]:
        source = self.engine.broker.source("orders")
        return self._run(source.receive(limit=limit, wait=0, lease=LEASE, alone=alone))

    def _settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        return self._run(self.engine.broker.source("orders").settle(settlements))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


def test_nothing_is_lost_doubled_or_wrongly_charged(rabbitmq_server: Server) -> None:
    RabbitMachine.url = rabbitmq_server.url
    often = settings(max_examples=40, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(RabbitMachine, settings=often)
