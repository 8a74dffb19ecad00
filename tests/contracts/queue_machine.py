"""
An engine's mailboxes driven beside a model's, step by step, by hypothesis.

Both share a clock and get the same calls; after every step they must have given
the same answers and hold the same messages. A backend's test is a subclass that
says how to open both, and `TestName = Subclass.TestCase`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from contracts.side_by_side import SideBySide
from deadletter.core.message import Delivery, Message
from deadletter.ports import Acked, Fate, QueueOptions, Released, Settlement

T = TypeVar("T")

_MAILBOXES = (
    QueueOptions(name="strict", max_attempts=2),
    QueueOptions(name="brief", expire_after=40.0),
)
_LEASE = 10.0

_names = st.sampled_from([options.name for options in _MAILBOXES])
_delays = st.sampled_from([0.0, 0.0, 0.0, 3.0, 12.0])
_ways = st.sampled_from(["ack", "bury", "release", "release with a story", "spare"])
_rarely = st.sampled_from([False, False, False, True])


class QueueMachine(SideBySide):
    """Calls both engines alike and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.held: list[tuple[Delivery, Delivery]] = []  # ours and the model's

    @initialize()
    def begin(self) -> None:
        self.open_both()
        for options in _MAILBOXES:
            self._both(lambda engine, o=options: engine.broker.create(o))

    @rule(
        name=_names,
        count=st.integers(1, 4),
        delay=_delays,
        life=st.sampled_from([None, None, 2.0, 15.0]),
    )
    def send(self, name: str, count: int, delay: float, life: float | None) -> None:
        expires_at = None if life is None else self.clock.now() + timedelta(seconds=life)
        messages = [
            Message(
                id=f"m-{self.sent + i}",
                body=b"body",
                sent_at=self.clock.now(),
                expires_at=expires_at,
            )
            for i in range(count)
        ]
        self.sent += count
        self._both(lambda engine: engine.broker.sink(name).send(messages, delay=delay))

    @rule(name=_names, limit=st.integers(1, 6), alone=_rarely)
    def receive(self, name: str, limit: int, *, alone: bool) -> None:
        ours, theirs = self._both(
            lambda engine: engine.broker.source(name).receive(
                limit=limit, wait=0, lease=_LEASE, alone=alone
            )
        )
        self._hold(ours, theirs)

    @rule(data=st.data(), name=_names, limit=st.integers(1, 6), alone=_rarely)
    def work(self, data: st.DataObject, name: str, limit: int, *, alone: bool) -> None:
        """Receive and settle at once, as workers do when all goes well."""
        before = len(self.held)
        self.receive(name, limit, alone=alone)
        self._settle(data, self.held[before:], name)

    @rule(name=_names, limit=st.integers(1, 6), alone=st.booleans())
    def lose(self, name: str, limit: int, *, alone: bool) -> None:
        """Have a worker receive and die."""
        self.receive(name, limit, alone=alone)
        self.pass_time(_LEASE)
        self.sweep()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), elsewhere=_rarely)
    def settle(self, data: st.DataObject, *, elsewhere: bool) -> None:
        """
        Settle what was received some time ago, and maybe settled since.

        Now and then in a strange mailbox. What is not ours must be refused.
        """
        pairs = self._some(data)
        self._settle(data, pairs, self._mailbox(pairs, elsewhere=elsewhere))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), elsewhere=_rarely, lease=st.sampled_from([1.0, 30.0]))
    def extend(self, data: st.DataObject, lease: float, *, elsewhere: bool) -> None:
        pairs = self._some(data)
        name = self._mailbox(pairs, elsewhere=elsewhere)
        ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self._compare(
            self._run(self.engine.broker.source(name).extend(ours, lease=lease)),
            self._run(self.model.broker.source(name).extend(theirs, lease=lease)),
        )

    @rule(seconds=st.sampled_from([1.0, 3.0, _LEASE]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        ours, theirs = self._both(lambda engine: engine.broker.sweep(lease=_LEASE))
        self._compare((ours.lost, ours.suspects), (theirs.lost, theirs.suspects))
        self._hold(_by_id(ours.doomed), _by_id(theirs.doomed))

    @rule(name=_names, deletes=_rarely)
    def interrupt(self, name: str, *, deletes: bool) -> None:
        """Open the engine again, where all must still be there; or delete a mailbox."""
        if not deletes:
            self._run(self.engine.close())
            self.engine = self._run(self.open())
            return
        self._compare(*self._both(lambda engine: engine.broker.delete(name)))
        options = next(o for o in _MAILBOXES if o.name == name)
        self._both(lambda engine: engine.broker.create(options))

    @invariant()
    def both_hold_the_same(self) -> None:
        if hasattr(self, "model"):
            ours, theirs = self._both(lambda engine: engine.broker.queues())
            self._compare(ours, theirs)
            for queue in ours:
                present = queue.ready + queue.delayed + queue.claimed + queue.suspects
                left = sum(queue.tally.get(fate, 0) for fate in Fate)
                assert queue.tally["sent"] == left + present

    def _hold(self, ours: Sequence[Delivery], theirs: Sequence[Delivery]) -> None:
        self._compare([_told(d) for d in ours], [_told(d) for d in theirs])
        self.held += zip(ours, theirs, strict=True)

    def _settle(
        self, data: st.DataObject, pairs: list[tuple[Delivery, Delivery]], name: str
    ) -> None:
        ways = data.draw(st.lists(_ways, min_size=len(pairs), max_size=len(pairs)))
        delay = data.draw(_delays)
        ours, theirs = [
            [_settlement(pair[side], way, delay) for pair, way in zip(pairs, ways, strict=True)]
            for side in (0, 1)
        ]
        self._compare(
            self._run(self.engine.broker.source(name).settle(ours)),
            self._run(self.model.broker.source(name).settle(theirs)),
        )

    def _some(self, data: st.DataObject) -> list[tuple[Delivery, Delivery]]:
        latest = st.sampled_from(self.held[-8:])
        return data.draw(st.lists(latest, min_size=1, max_size=8))

    def _mailbox(self, pairs: list[tuple[Delivery, Delivery]], *, elsewhere: bool) -> str:
        own = pairs[0][0].mailbox
        return next(o.name for o in _MAILBOXES if (o.name != own) is elsewhere)

    def _both(self, call: Any) -> tuple[Any, Any]:
        return self._run(call(self.engine)), self._run(call(self.model))


def _settlement(delivery: Delivery, way: str, delay: float) -> Settlement:
    match way:
        case "ack":
            return Acked(delivery)
        case "bury":
            return Acked(delivery, Fate.BURIED)
        case "release":
            return Released(delivery, delay)
        case "release with a story":
            return Released(delivery, delay, f"story {delivery.attempt}")
        case _:
            return Released(delivery, delay, charged=False)


def _told(delivery: Delivery) -> tuple[Any, ...]:
    """Everything about a delivery but its receipt, which is its driver's own."""
    return (
        delivery.message,
        delivery.mailbox,
        delivery.attempt,
        delivery.spared,
        delivery.suspect,
        delivery.first_received_at,
        delivery.history,
    )


def _by_id(deliveries: Sequence[Delivery]) -> list[Delivery]:
    return sorted(deliveries, key=lambda delivery: delivery.message.id)
