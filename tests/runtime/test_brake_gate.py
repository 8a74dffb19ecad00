"""The brake at work: what it holds, what it lets die, and what it writes down."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from deadletter import BrakePolicy, DLQPolicy, Fixed, GiveUp, Ignore, Malformed, NoBackoff
from deadletter.core.brake import BrakeKind, BrakeWindow
from deadletter.core.events import BrakeClosed, BrakeOpened, Buried, Event, Retried
from deadletter.core.failure import Failure, Retry, Trouble
from deadletter.core.letter import By
from deadletter.core.message import Delivery, Message
from deadletter.runtime.availability import Calls, RuntimeContext
from deadletter.runtime.brake_gate import BrakeGate, BrakeLog, cause_of
from deadletter.stores.memory.letters import MemoryLetters
from deadletter.testing.fakes import START, FakeClock, SeededDice, eventually
from rig import Rig

pytestmark = pytest.mark.slow

DOWN = Failure(trouble=Trouble.TRANSIENT, code="DOWN", error_type="OSError", text="down")
QUICK = BrakePolicy(probe_after=0.05, cap=0.1)


def brake_gate(clock: FakeClock, events: list[Event]) -> BrakeGate:
    policy = BrakePolicy(threshold=3, distinct=3)
    return BrakeGate(policy, "orders", context=RuntimeContext(clock, SeededDice(), events.append))


def delivered(id: str) -> Delivery:
    message = Message(id=id, body=b"", sent_at=START)
    return Delivery(message=message, mailbox="orders", attempt=1, receipt="")


async def windows(rig: Rig) -> list[BrakeWindow]:
    return list(await (await rig.app.letters()).windows())


def test_a_probe_that_runs_through_closes_the_brake() -> None:
    clock, events = FakeClock(), list[Event]()
    brake = brake_gate(clock, events)
    for name in ("a", "b", "c"):
        brake.failed(DOWN, OSError("down"), delivered(name), Retry(5.0))
    while_open = brake.may_fetch(10, 0)
    clock.advance(60)
    probe = brake.may_fetch(10, 0)

    brake.succeeded("a")

    assert (while_open, probe) == (0, 1)
    assert not brake.is_open
    assert brake.may_fetch(10, 0) == 10
    assert [type(event) for event in events] == [BrakeOpened, BrakeClosed]


def test_one_cause_is_one_function_whatever_the_line() -> None:
    broken = Failure(trouble=Trouble.UNKNOWN, code="KEY_ERROR", error_type="KeyError", text="'x'")
    one, other = (replace(broken, frame=f"shop:charge#{at}") for at in ("5e2f4c", "a1"))

    assert cause_of(one) == cause_of(other) == "KeyError in shop:charge"


def test_held_messages_come_back_before_the_next_probe_but_one() -> None:
    brake = brake_gate(FakeClock(), [])
    error = OSError("down")
    for name in ("a", "b", "c"):
        decision = brake.failed(DOWN, error, delivered(name), Retry(7200.0))

    assert decision == Retry(30.0, charged=False)


async def test_a_probe_that_is_ignored_closes_the_brake_too() -> None:
    rig, down = Rig(), True

    @rig.app.handler(
        "orders",
        policy=DLQPolicy(backoff=Fixed(0.01)),
        brake=BrakePolicy(threshold=3, distinct=3, probe_after=0.02, cap=0.02),
    )
    async def handle(body: bytes) -> None:
        if down:
            raise ConnectionRefusedError("downstream is down")
        raise Ignore("not ours")

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 5)
        await eventually(lambda: rig.seen(BrakeOpened))
        down = False
        await rig.drained("orders", within=20)

        assert len(rig.seen(BrakeClosed)) == 1


async def test_a_deploy_that_breaks_everything_buries_nothing() -> None:
    rig, broken = Rig(version="1.8"), True

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=2, backoff=NoBackoff()), brake=QUICK)
    async def handle(order: dict[str, str]) -> None:
        if broken:
            order["customer"]

    async with rig.working():
        await rig.app.send_many("orders", [{"id": str(n)} for n in range(200)])
        await eventually(lambda: rig.seen(BrakeOpened))
        await asyncio.sleep(0.5)  # a few probes
        assert await rig.letters() == []
        broken = False
        await rig.drained("orders", within=30)

        (opened,) = rig.seen(BrakeOpened)
        assert (opened.kind, opened.version) == (BrakeKind.SYSTEMIC, "1.8")
        assert "KeyError" in opened.cause
        assert "10 of the last 10 messages" in opened.text
        assert "since version 1.8" in opened.text
        assert await rig.letters() == []
        assert (await rig.queue("orders")).tally["handled"] == 200


async def test_a_quiet_queue_outlasts_an_outage() -> None:
    rig, down = Rig(), True

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=3, backoff=Fixed(0.01)), brake=QUICK)
    async def handle(body: bytes) -> None:
        if down:
            raise ConnectionRefusedError("downstream is down")

    async with rig.working():
        await rig.app.send_many("orders", [b"a", b"b"])
        await eventually(lambda: rig.seen(BrakeOpened))
        await asyncio.sleep(0.3)  # longer than all attempts would have lasted
        down = False
        await rig.drained("orders", within=20)

        assert await rig.letters() == []
        assert rig.seen(BrakeOpened)[0].kind is BrakeKind.OUTAGE


@pytest.mark.parametrize("count", [1, 9])
async def test_a_few_poisonous_messages_are_buried(count: int) -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=3, backoff=NoBackoff()), brake=QUICK)
    async def handle(body: str) -> None:
        if body == "poison":
            raise KeyError("customer")

    async with rig.working():
        await rig.app.send_many("orders", ["poison"] * count + ["fine"] * 50)
        await rig.drained("orders")

        assert len(await rig.letters()) == count
        assert not rig.seen(BrakeOpened)


@pytest.mark.parametrize("error", [Malformed("no JSON"), GiveUp("not ours")])
async def test_messages_that_are_at_fault_themselves_are_buried(error: Exception) -> None:
    rig = Rig()

    @rig.app.handler("orders", brake=QUICK)
    async def handle(body: bytes) -> None:
        raise error

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 40)
        await rig.drained("orders")

        assert len(await rig.letters()) == 40
        assert not rig.seen(BrakeOpened)


async def test_while_open_nothing_is_charged() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=2, backoff=NoBackoff()), brake=QUICK)
    async def handle(body: bytes) -> None:
        raise KeyError("customer")

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 30)
        await eventually(lambda: rig.seen(BrakeOpened))
        at = rig.events.index(rig.seen(BrakeOpened)[0])
        await eventually(lambda: len(rig.seen(Retried)) > 35)

        later = [one for one in rig.events[at:] if isinstance(one, Retried)]
        assert not [one for one in later[10:] if one.charged]
        assert not rig.seen(Buried)


async def test_each_opening_is_written_down_as_a_window() -> None:
    rig, broken = Rig(version="1.8"), True

    @rig.app.handler("orders", policy=DLQPolicy(backoff=NoBackoff()), brake=QUICK)
    async def handle(body: bytes) -> None:
        if broken:
            raise KeyError("customer")

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 12)
        await eventually(lambda: rig.seen(BrakeOpened))
        await eventually(lambda: _is_written(rig))
        (window,) = await windows(rig)
        assert window.closed_at is None
        broken = False
        await rig.drained("orders", within=20)
        await eventually(lambda: _is_over(rig))

        (window,) = await windows(rig)
        assert (window.mailbox, window.kind, window.version) == (
            *("orders", BrakeKind.SYSTEMIC),
            "1.8",
        )
        assert "KeyError" in window.cause
        assert window.held > 0
        assert window.attempts >= window.held == len(window.message_ids)
        assert window.ending == "a probe was answered"


async def test_a_person_can_say_go_on_and_they_are_buried() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=2, backoff=NoBackoff()), brake=QUICK)
    async def handle(body: bytes) -> None:
        raise KeyError("customer")

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 20)
        await eventually(lambda: rig.seen(BrakeOpened))
        await eventually(lambda: _is_written(rig))

        store = await rig.app.letters()
        assert await store.release_windows("orders", By("anna", "known")) == 1
        await rig.drained("orders", within=30)

        assert len(await rig.letters()) == 20
        assert len(rig.seen(BrakeOpened)) == 1
        await eventually(lambda: _is_over(rig))
        assert (await windows(rig))[0].ending == "somebody said to go on"


async def test_a_worker_that_starts_later_goes_by_what_was_released() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=2, backoff=NoBackoff()), brake=QUICK)
    async def handle(body: bytes) -> None:
        raise KeyError("customer")

    async with rig.app:
        for count in (20, 40):
            stop = asyncio.Event()
            work = asyncio.create_task(rig.app.work(stop))
            await rig.app.send_many("orders", [b"x"] * 20)
            if count == 20:
                await eventually(lambda: _is_written(rig))
                await (await rig.app.letters()).release_windows("orders", By("anna"))
            await rig.drained("orders", within=30)
            stop.set()
            await work

            assert len(await rig.letters()) == count


async def test_an_end_is_written_that_comes_while_the_window_is_being_written() -> None:
    clock, store = FakeClock(), SlowWindows(clock=FakeClock(), dice=SeededDice())
    brake = brake_gate(clock, [])
    log = BrakeLog(brake, store, "orders", calls=Calls(clock), clock=clock)
    for name in ("a", "b", "c"):
        brake.failed(DOWN, OSError("down"), delivered(name), Retry(5.0))
    store.meanwhile = lambda: brake.succeeded("a")
    clock.advance(60)
    brake.may_fetch(10, 0)
    writing = asyncio.create_task(log.run())

    await eventually(lambda: _is_closed(store))
    writing.cancel()

    assert not brake.is_open


async def test_a_worker_that_stops_closes_its_window() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(backoff=NoBackoff()), brake=QUICK)
    async def handle(body: bytes) -> None:
        raise KeyError("customer")

    async with rig.app:
        stop = asyncio.Event()
        work = asyncio.create_task(rig.app.work(stop))
        await rig.app.send_many("orders", [b"x"] * 12)
        await eventually(lambda: _is_written(rig))
        stop.set()
        await work

        (window,) = await windows(rig)
        assert window.ending == "its worker stopped"


async def test_without_a_brake_everything_is_buried() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1), brake=None)
    async def handle(body: bytes) -> None:
        raise KeyError("customer")

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 40)
        await rig.drained("orders")

        assert len(await rig.letters()) == 40


class SlowWindows(MemoryLetters):
    """An office in which something happens while the first window is being written."""

    meanwhile: Callable[[], None] | None = None

    async def save_window(self, window: BrakeWindow) -> BrakeWindow:
        kept = await super().save_window(window)
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return kept


async def _is_closed(store: MemoryLetters) -> bool:
    found = await store.windows()
    return bool(found) and found[0].closed_at is not None


async def _is_written(rig: Rig) -> bool:
    return bool(await windows(rig))


async def _is_over(rig: Rig) -> bool:
    return all(one.closed_at is not None for one in await windows(rig))
