"""What the ledger is told when work has ended."""

import asyncio
from typing import Any

import pytest

from deadletter.core.errors import Unavailable
from deadletter.core.events import Event
from deadletter.core.failure import Ack, Bury, Continue, Decision, Fail, Reason, Retry
from deadletter.core.message import Delivery, Message
from deadletter.ports import LedgerState
from deadletter.runtime.availability import Availability, RuntimeContext
from deadletter.runtime.deliveries import ClaimedDelivery
from deadletter.runtime.idempotency import Once, keyed, ledger_key
from deadletter.stores.memory.ledger import MemoryLedger
from deadletter.testing.fakes import START, FakeClock, SeededDice, eventually


class Desk:
    """A `Once` with its ledger, which may be away."""

    def __init__(self) -> None:
        clock, self.events = FakeClock(), list[Event]()
        self.away = False
        self.finished: list[int] = []  # how many outcomes each time
        self._ledger = MemoryLedger(clock=clock)
        self.once = Once(self, "orders", lease=60, ttl=600)
        self.availability = Availability(
            "orders", context=RuntimeContext(clock, SeededDice(), self.events.append)
        )
        self.begin, self.look, self.forget = (
            self._ledger.begin,
            self._ledger.look,
            self._ledger.forget,
        )

    async def finish(self, outcomes: Any, *, ttl: float) -> Any:
        if self.away:
            raise Unavailable("nobody answers")
        self.finished.append(len(outcomes))
        return await self._ledger.finish(outcomes, ttl=ttl)

    async def claimed(self, *ids: str) -> list[ClaimedDelivery]:
        batch = [ClaimedDelivery(_delivery(name), 0.0) for name in ids]
        ran: list[ClaimedDelivery] = []
        await self.once.start(batch, self.availability, run=ran.extend, skip=_never)
        assert ran == batch
        return ran

    async def state(self, held: ClaimedDelivery) -> LedgerState | None:
        (state,) = await self._ledger.look([ledger_key("orders", held.delivery)])
        return state


def _delivery(id: str) -> Delivery:
    message = Message(id=id, body=b"x", sent_at=START)
    return Delivery(message=message, mailbox="orders", attempt=1, receipt=id)


def _never(*args: object) -> None:
    raise AssertionError("it was ours to run")


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        (Ack(), LedgerState.PROCESSED),
        (Continue("said no"), LedgerState.PROCESSED),
        (Bury(Reason.REJECTED, "no"), LedgerState.DEAD_LETTERED),
        (Retry(1.0), LedgerState.FAILED),
        (Fail("no"), LedgerState.FAILED),
    ],
)
async def test_the_ledger_knows_how_work_ended(decision: Decision, state: LedgerState) -> None:
    desk = Desk()
    (held,) = await desk.claimed("a")

    await desk.once.finish([(held, decision)], desk.availability)

    assert await desk.state(held) is state


async def test_a_claim_is_finished_once_and_let_go() -> None:
    desk = Desk()
    (held,) = await desk.claimed("a")

    await desk.once.finish([(held, Ack())], desk.availability)
    await desk.once.finish([(held, Ack())], desk.availability)

    assert desk.finished == [1]
    assert desk.once._claims == {}


async def test_keys_that_were_never_claimed_are_not_finished() -> None:
    desk = Desk()
    (claimed,) = await desk.claimed("a")
    stranger = ClaimedDelivery(_delivery("b"), 0.0)

    await desk.once.finish([(stranger, Ack()), (claimed, Ack())], desk.availability)

    assert desk.finished == [1]
    assert await desk.state(claimed) is LedgerState.PROCESSED
    assert await desk.state(stranger) is None


async def test_a_finish_that_was_broken_off_can_be_repeated() -> None:
    desk = Desk()
    (held,) = await desk.claimed("a")
    desk.away = True
    finishing = asyncio.create_task(desk.once.finish([(held, Ack())], desk.availability))
    await eventually(lambda: desk.availability.down)
    finishing.cancel()
    await asyncio.wait({finishing})
    desk.away = False

    await desk.once.finish([(held, Ack())], desk.availability)

    assert await desk.state(held) is LedgerState.PROCESSED


def _key_in_body(message: Message) -> str | None:
    return message.body.decode().partition("=")[2]


def _with(body: bytes, key: str | None = None) -> Delivery:
    message = Message(id="m-1", body=body, sent_at=START, idempotency_key=key)
    return Delivery(message=message, mailbox="orders", receipt="r")


@pytest.mark.parametrize(
    ("delivery", "key"),
    [
        (_with(b"key=k-1"), "k-1"),
        (_with(b"key=k-1", key="given"), "given"),  # the producer knows best
        (_with(b"no key"), "m-1"),
    ],
)
def test_a_key_may_be_read_out_of_the_message(delivery: Delivery, key: str) -> None:
    found = keyed(delivery, _key_in_body)

    assert ledger_key("orders", found).key == key
    assert found.receipt == "r"
