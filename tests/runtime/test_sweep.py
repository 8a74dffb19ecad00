"""What the sweep buries, it buries as a worker would."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import structs

from deadletter import DLQPolicy
from deadletter.core.errors import Refused
from deadletter.core.events import Buried, ClockJumped, CopyFailed, Event, FailedForGood, OutOfReach
from deadletter.core.failure import Trouble
from deadletter.core.ids import body_digest
from deadletter.core.message import Delivery, Message
from deadletter.core.policy import Disposition
from deadletter.ports import Engine, Fate, LedgerKey, LedgerState, QueueOptions
from deadletter.runtime.deliveries import ExclusiveGate
from deadletter.runtime.sweep import Sweep
from deadletter.stores.memory import open_engine
from deadletter.testing.fakes import FakeClock, SeededDice
from rig import Rig

POLICY = DLQPolicy(dead_queue="orders-dlq")


class Office:
    """An office that refuses letters of some messages."""

    def __init__(self, office: Any, refused: set[str]) -> None:
        self.refused = refused
        self._office = office

    def __getattr__(self, name: str) -> Any:
        return getattr(self._office, name)

    async def keep(self, letters: Sequence[Any]) -> Any:
        if any(letter.message.id in self.refused for letter in letters):
            raise Refused("cannot store this")
        return await self._office.keep(letters)


class World:
    """A sweep and what it sweeps, in a time that moves when told to."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.engine: Any = engine
        self.clock = clock
        self.events: list[Event] = []
        self.office = Office(engine.letters, set())

    def sweep(self, policy: DLQPolicy = POLICY) -> Sweep:
        return Sweep(
            broker=self.engine.broker,
            letters=self.office,  # type: ignore[arg-type]
            atomic_burial=None,
            ledger=self.engine.ledger,
            policies={"orders": policy},
            gate=ExclusiveGate(),
            clock=self.clock,
            dice=SeededDice(),
            observe=self.events.append,
        )

    async def expire(self, *ids: str, **fields: Any) -> None:
        """Send messages that are expired by now."""
        now = self.clock.now()
        messages = [
            Message(id=name, body=b"x", sent_at=now, expires_at=now, **fields) for name in ids
        ]
        await self.engine.broker.sink("orders").send(messages)

    async def letters(self) -> set[str]:
        page = await self.engine.letters.find()
        return {head.message_id for head in page.heads}

    async def queue(self) -> Any:
        queues = await self.engine.broker.queues()
        return next(q for q in queues if q.options.name == "orders")

    async def waiting(self, mailbox: str) -> Sequence[Delivery]:
        source = self.engine.broker.source(mailbox)
        found: Sequence[Delivery] = await source.receive(limit=10, wait=0, lease=10)
        return found

    def seen(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = FakeClock()
    engine = await open_engine("memory://", clock=clock, dice=SeededDice())
    yield World(engine, clock)
    await engine.close()


async def test_a_letter_the_office_refuses_holds_up_no_other(world: World) -> None:
    await world.expire("a", "bad", "c", reply_to="answers")
    world.office.refused = {"bad"}

    await world.sweep().once()

    assert await world.letters() == {"a", "c"}
    assert (await world.queue()).tally == {"sent": 3, Fate.BURIED: 2}
    assert [e.message_id for e in world.seen(Buried)] == ["a", "c"]
    assert [e.text for e in world.seen(OutOfReach)] == ["cannot store this"]
    assert len(await world.waiting("orders-dlq")) == 2
    replies = await world.waiting("answers")
    assert {r.message.header("dlq-in-reply-to") for r in replies} == {"a", "c"}


async def test_rejected_burials_are_retried_later_and_not_at_once(world: World) -> None:
    await world.expire("bad")
    world.office.refused = {"bad"}
    sweep = world.sweep()
    await sweep.once()

    at_once = await sweep.once()
    world.office.refused = set()
    world.clock.advance(61)
    await sweep.once()

    assert at_once == 0
    assert await world.letters() == {"bad"}
    assert (await world.queue()).tally[Fate.BURIED] == 1


async def test_the_ledger_is_not_told_of_a_letter_that_was_refused(world: World) -> None:
    keys = [LedgerKey("orders", name, 0, name) for name in ("a", "bad")]
    await world.engine.ledger.begin(keys, lease=60)
    await world.expire("a", "bad")
    world.office.refused = {"bad"}

    await world.sweep().once()

    assert await world.engine.ledger.look(keys) == [
        LedgerState.DEAD_LETTERED,
        LedgerState.PROCESSING,
    ]


async def test_the_sweep_keeps_a_body_that_differs_from_the_processed_one(world: World) -> None:
    ledger = world.engine.ledger
    keys = [
        LedgerKey("orders", "same", 0, "same", body_digest(b"x")),
        LedgerKey("orders", "other", 0, "other", body_digest(b"y")),
    ]
    claims = await ledger.begin(keys, lease=60)
    await ledger.finish([(one, LedgerState.PROCESSED) for one in claims], ttl=600)
    await world.expire("same", "other")

    await world.sweep().once()

    assert await world.letters() == {"other"}
    tally = (await world.queue()).tally
    assert (tally[Fate.DUPLICATE], tally[Fate.BURIED]) == (1, 1)
    assert await ledger.look(keys) == [LedgerState.PROCESSED] * 2


async def test_the_sweep_reports_and_replies_like_a_worker(world: World) -> None:
    asked = {"reply_to": "answers", "idempotency_key": "pay-1"}
    await world.expire("one", **asked)
    await world.sweep().once()
    (swept,) = world.seen(Buried)
    (answer,) = await world.waiting("answers")

    rig = Rig(clock=FakeClock())
    rig.app.handler("orders", policy=POLICY)(lambda body: None)
    engine = await rig.app.engine()
    engine.broker.sweep = _nothing_found(engine.broker)  # type: ignore[method-assign]
    now = world.clock.now()
    message = Message(id="one", body=b"x", sent_at=now, expires_at=now, **asked)
    async with rig.working():
        await engine.broker.sink("orders").send([message])
        await rig.drained("orders")
        (worked,) = rig.seen(Buried)
        (other,) = await engine.broker.source("answers").receive(limit=9, wait=0, lease=9)

    assert swept == structs.replace(worked, consumer="sweep")
    assert (worked.request_id, worked.consumer != "sweep") == ("pay-1", True)
    assert answer.message.body == other.message.body
    assert answer.message.headers == other.message.headers
    assert msgspec.json.decode(answer.message.body)["code"] == "EXPIRED"


def _nothing_found(broker: Any) -> Any:
    """A sweep that leaves everything to the workers."""
    sweep = broker.sweep

    async def nothing() -> Any:
        return await sweep(limit=0)

    return nothing


async def test_the_bad_news_is_sent_when_the_letter_is_durable(world: World) -> None:
    kept_before: list[set[str]] = []
    original = world.engine.broker.sink

    class Watched:
        async def send(self, messages: Sequence[Message]) -> None:
            kept_before.append(await world.letters())
            await original("answers").send(messages)

    await world.expire("one", reply_to="answers")
    world.engine.broker.sink = lambda to: Watched() if to == "answers" else original(to)

    await world.sweep().once()

    assert kept_before == [{"one"}]


async def test_messages_failed_by_the_sweep_are_reported_and_replied_to(world: World) -> None:
    policy = DLQPolicy(dispositions={Trouble.EXPIRED: Disposition.FAIL})
    await world.expire("one", reply_to="answers")

    await world.sweep(policy).once()

    (event,) = world.seen(FailedForGood)
    (answer,) = await world.waiting("answers")
    assert event.message_id == "one"
    assert b"failed after" in answer.message.body
    assert await world.letters() == set()


async def test_a_mailbox_that_is_worked_elsewhere_keeps_its_own_dead_queue(world: World) -> None:
    broker = world.engine.broker
    for options in (
        QueueOptions(name="theirs-dlq"),
        QueueOptions(name="theirs", dead_queue="theirs-dlq", expire_after=60),
    ):
        await broker.create(options)
    now = world.clock.now()
    await broker.sink("theirs").send([Message(id="m-1", body=b"x", sent_at=now)])
    world.clock.advance(60)

    assert await world.sweep().once() == 1

    source = broker.source("theirs-dlq")
    (copy,) = await source.receive(limit=10, wait=0, lease=60)
    assert copy.message.header("dlq-source") == "theirs"


async def test_a_dead_mailbox_that_refuses_its_copy_holds_up_nothing(world: World) -> None:
    class Full:
        async def send(self, messages: Sequence[Message]) -> None:
            raise Refused("too large for me")

    original = world.engine.broker.sink
    await world.expire("one")
    world.engine.broker.sink = lambda to: Full() if to == "orders-dlq" else original(to)

    await world.sweep().once()

    (event,) = world.seen(CopyFailed)
    assert (event.to, event.text) == ("orders-dlq", "too large for me")
    assert await world.letters() == {"one"}
    assert (await world.queue()).tally[Fate.BURIED] == 1


async def test_a_clock_that_jumped_is_reported_and_stays_ready(world: World) -> None:
    sweep = world.sweep()
    await sweep.once()
    world.clock.advance(1)
    world.clock.step(7200)
    await sweep.once()
    message = Message(id="m", body=b"x", sent_at=world.clock.now())
    await world.engine.broker.sink("orders").send([message], delay=5)
    world.clock.advance(1)
    world.clock.step(-7200)
    await sweep.once()

    there, back = world.seen(ClockJumped)
    assert (there.seconds, there.shortened) == (pytest.approx(7200, abs=3), 0)
    assert (back.seconds, back.shortened) == (pytest.approx(-7200, abs=3), 1)
    assert back.ahead == pytest.approx(7200, abs=3)
    assert sweep.ready() is None
    assert "the clock jumped by -" in (sweep.note() or "")
