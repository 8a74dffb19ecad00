"""What becomes of deliveries whose worker is gone."""

import asyncio

from deadletter import DLQPolicy, NoBackoff
from deadletter.core.events import Buried, Succeeded
from deadletter.core.failure import Reason
from deadletter.core.message import Delivery
from deadletter.ports import QueueOptions
from deadletter.testing.fakes import FakeClock, eventually
from rig import Rig


async def claim_and_vanish(rig: Rig, count: int, *, alone: bool = False) -> None:
    """Be a worker that claims deliveries and is never seen again."""
    engine = await rig.app.engine()
    source = engine.broker.source("orders")
    taken = await source.receive(limit=count, wait=0, lease=0.01, alone=alone)
    assert len(taken) == count
    await asyncio.sleep(0.02)


async def test_deliveries_of_a_lost_worker_run_alone_and_are_not_charged() -> None:
    rig, running, company = Rig(), 0, []

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1))
    async def handle(delivery: Delivery) -> None:
        nonlocal running
        running += 1
        await asyncio.sleep(0.005)
        company.append((running, delivery.attempt, delivery.charged, delivery.suspect))
        running -= 1

    await rig.app.send_many("orders", [b"a", b"b", b"c"])
    await claim_and_vanish(rig, 3)
    async with rig.working():
        await rig.drained("orders")

        assert company == [(1, 2, 1, True)] * 3
        assert await rig.letters() == []


async def test_a_message_that_keeps_killing_its_worker_is_buried_without_a_run() -> None:
    rig, runs = Rig(), []

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=2))
    async def handle(body: bytes) -> None:
        runs.append(body)

    await rig.app.send("orders", b"x")
    engine = await rig.app.engine()
    await claim_and_vanish(rig, 1)  # in company, as far as anybody knows: spared
    for _ in range(2):
        await engine.broker.sweep()
        await claim_and_vanish(rig, 1, alone=True)
    async with rig.working():
        await rig.drained("orders")

        (letter,) = await rig.letters()
        assert letter.head.reason is Reason.WORKER_LOST
        assert letter.head.attempts == 2
        assert runs == []


async def test_healthy_messages_go_on_while_there_are_suspects() -> None:
    rig = Rig()

    @rig.app.handler("orders")
    async def handle(body: bytes) -> None:
        await asyncio.sleep(0.001)

    await rig.app.send_many("orders", [b"s"] * 20)
    await claim_and_vanish(rig, 20)
    async with rig.working():
        await rig.app.send_many("orders", [b"h"] * 200)
        await rig.drained("orders", within=20)

        assert len(rig.seen(Succeeded)) == 220
        assert await rig.letters() == []


async def test_the_sweep_buries_what_expired_where_nobody_works() -> None:
    rig = Rig()

    @rig.app.handler("elsewhere")
    async def handle(body: bytes) -> None: ...

    await rig.app.send("orders", b"x", expires_in=0.01)
    async with rig.working():
        await eventually(lambda: len(rig.seen(Buried)) == 1)

        (letter,) = await rig.letters()
        assert letter.head.reason is Reason.EXPIRED
        assert letter.head.source == "orders"
        assert letter.head.attempts == 0


async def test_the_sweep_honours_a_mailboxs_own_limit() -> None:
    rig = Rig()

    @rig.app.handler("elsewhere", policy=DLQPolicy(backoff=NoBackoff()))
    async def handle(body: bytes) -> None: ...

    engine = await rig.app.engine()
    await engine.broker.create(QueueOptions(name="orders", max_attempts=1))
    await rig.app.send("orders", b"x")
    await claim_and_vanish(rig, 1)
    await engine.broker.sweep()
    await claim_and_vanish(rig, 1, alone=True)
    async with rig.working():
        await eventually(lambda: len(rig.seen(Buried)) == 1)

        (letter,) = await rig.letters()
        assert letter.head.reason is Reason.WORKER_LOST
        assert letter.head.attempts == 1
        await rig.drained("orders")


async def test_a_worker_without_its_lease_can_neither_settle_nor_bury() -> None:
    clock = FakeClock()
    rig = Rig(clock=clock)
    started, go_on = asyncio.Event(), asyncio.Event()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1), lease=60)
    async def handle(body: bytes) -> None:
        started.set()
        await go_on.wait()
        raise ValueError("too late to matter")

    async with rig.working():
        await rig.app.send("orders", b"x")
        await started.wait()
        clock.advance(61)  # as if this process had been asleep
        engine = await rig.app.engine()
        await engine.broker.sweep()
        (stolen,) = await engine.broker.source("orders").receive(
            limit=1, wait=0, lease=600, alone=True
        )
        go_on.set()
        await eventually(lambda: any(e.__class__.__name__ == "LeaseLost" for e in rig.events))

        assert await rig.letters() == []
        assert (await rig.queue("orders")).claimed == 1
        assert stolen.attempt == 2
