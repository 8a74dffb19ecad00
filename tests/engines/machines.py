"""What the state machines of engines share: how much of them, and a looser kind."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec import Struct

from deadletter.core.message import Delivery, Message
from deadletter.ports import Acked, Engine, Released, Settlement
from deadletter.testing.fakes import START, FakeClock

T = TypeVar("T")
LEASE = 30.0
BOX = "orders"

_ways = st.sampled_from(["ack", "release", "tell", "spare"])


def runs(examples: int, steps: int = 50, **more: Any) -> settings:
    """So many in full; fewer where the profile asks for fewer than hypothesis does."""
    share = min(1.0, settings().max_examples / 100)
    return settings(
        max_examples=max(1, round(examples * share)),
        stateful_step_count=steps,
        deadline=None,
        **more,
    )


class Known(Struct):
    """What must be true of a message."""

    message: Message
    due: float = 0.0
    charged: int = 1  # as its next delivery will say
    history: str = ""
    alone: bool = False  # as it is held now


class MailboxMachine(RuleBasedStateMachine):
    """
    Does things to a mailbox, and remembers what must come of them.

    For engines that choose whom to hand out first. What had come ahead when a worker
    vanishes is suspect, whether or not anybody had it: so suspicion is checked where
    it is handed out, and what is charged everywhere.
    """

    delays: st.SearchStrategy[float] = st.just(0.0)
    most = 5  # messages sent at a time

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.count = 0
        self.there: dict[str, Known] = {}
        self.held: dict[str, tuple[Known, Delivery]] = {}
        self.past: list[Delivery] = []
        self._runner = asyncio.Runner()

    async def open(self) -> Engine:
        """The engine, as it is the first time and after it was closed."""
        raise AssertionError("say how to open your engine")

    async def vanish(self) -> None:
        """Have the worker go without a word: what it held is lost."""
        raise AssertionError("say how a worker vanishes")

    @initialize()
    def begin(self) -> None:
        self.engine = self.run(self.open())

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        count, delay = data.draw(st.integers(1, self.most)), data.draw(self.delays)
        messages = [
            Message(id=f"m-{self.count + i}", body=b"body", sent_at=START) for i in range(count)
        ]
        self.count += count
        due = self.clock.monotonic() + delay
        self.there |= {message.id: Known(message, due) for message in messages}
        self.run(self.engine.broker.sink(BOX).send(messages, delay=delay))

    @rule(data=st.data(), alone=st.booleans())
    def receive(self, data: st.DataObject, *, alone: bool) -> None:
        self.take(data.draw(st.integers(1, self.most + 2)), alone=alone)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True))
        delay = data.draw(self.delays)
        settlements = [self._settled(n, data.draw(_ways), delay) for n in names]

        assert self._settle(settlements) == [True] * len(names)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        old = data.draw(st.lists(st.sampled_from(self.past[-8:]), max_size=3))

        assert not any(self._settle([Acked(delivery) for delivery in old]))

    @rule()
    def leases_run_out(self) -> None:
        self.clock.advance(LEASE)
        swept = self.run(self.engine.broker.sweep())

        assert swept.lost == len(self.held)
        self.lose()

    @rule()
    def the_worker_vanishes(self) -> None:
        self.run(self.vanish())
        self.lose()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.clock.advance(1000.0)
        for _ in range(200):  # what went back may take a moment to be there
            if not self.there:
                break
            self.take(50, alone=False)
            self.take(1, alone=True)
        assert not self.there, "these were lost"
        self.run(self.engine.close())
        self._runner.close()

    def take(self, limit: int, *, alone: bool) -> None:
        """Receive, and see whether it could be so."""
        source = self.engine.broker.source(BOX)
        found = self.run(source.receive(limit=limit, wait=0, lease=LEASE, alone=alone))
        assert len(found) <= (1 if alone else limit)
        for delivery in found:
            known = self.there.pop(delivery.message.id)  # neither held nor gone
            assert delivery.message == known.message
            assert known.due <= self.clock.monotonic(), "too early"
            assert (delivery.charged, delivery.history) == (known.charged, known.history)
            assert delivery.suspect is alone
            known.alone = alone
            self.held[delivery.message.id] = known, delivery

    def lose(self, *, charged: bool = True) -> None:
        """Nobody holds anything any more."""
        for name, (known, delivery) in self.held.items():
            known.charged += known.alone and charged
            self.there[name] = known
            self.past.append(delivery)
        self.held.clear()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop that the engine lives on."""
        return self._runner.run(work)

    def _settled(self, name: str, way: str, delay: float) -> Settlement:
        known, delivery = self.held.pop(name)
        self.past.append(delivery)
        if way == "ack":
            return Acked(delivery)
        self.there[name] = known
        known.due = self.clock.monotonic() + delay
        if way == "spare":
            return Released(delivery, delay, charged=False)
        known.charged += 1
        if way == "release":
            return Released(delivery, delay)
        known.history = f"story {delivery.attempt}"
        return Released(delivery, delay, known.history)

    def _settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        return self.run(self.engine.broker.source(BOX).settle(settlements))
