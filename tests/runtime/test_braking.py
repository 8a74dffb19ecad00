"""The brake at work."""

from deadletter import DLQPolicy, Fixed, Ignore
from deadletter.core.brake import BrakePolicy
from deadletter.core.events import BrakeClosed, BrakeOpened, Event
from deadletter.core.failure import Failure, Trouble
from deadletter.runtime.braking import Braking
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.waiting import eventually
from rig import Rig

DOWN = Failure(
    trouble=Trouble.TRANSIENT, code="DOWN", error_type="OSError", text="down"
)


def braking(clock: FakeClock, events: list[Event]) -> Braking:
    policy = BrakePolicy(threshold=3, distinct=3)
    return Braking(
        policy, "orders", clock=clock, dice=SeededDice(), observe=events.append
    )


def test_a_probe_that_runs_through_closes_the_brake() -> None:
    clock, events = FakeClock(), list[Event]()
    brake = braking(clock, events)
    for name in ("a", "b", "c"):
        brake.failed(DOWN, name)
    while_open = brake.may_fetch(10, 0)
    clock.advance(60)
    probe = brake.may_fetch(10, 0)

    brake.succeeded()

    assert (while_open, probe) == (0, 1)
    assert not brake.is_open
    assert brake.may_fetch(10, 0) == 10
    assert [type(event) for event in events] == [BrakeOpened, BrakeClosed]


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
