"""Nothing is acked while the office or the broker cannot be reached."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from deadletter import DLQPolicy
from deadletter.core.errors import Refused, Unavailable
from deadletter.core.events import BackInReach, OutOfReach, Succeeded
from deadletter.testing.fakes import eventually
from rig import Rig


class Away:
    """A port whose named verbs fail until it is back."""

    def __init__(self, port: Any, *verbs: str) -> None:
        self.error: Exception | None = Unavailable("nobody answers")
        self.calls = 0
        self._port = port
        self._verbs = verbs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in self._verbs:
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.error is not None:
                raise self.error
            return await found(*args, **kwargs)

        return verb


@pytest.fixture(params=["one engine", "two engines"])
def office_away(request: pytest.FixtureRequest) -> Callable[[Any], Away]:
    """Has letters fail: where mailboxes and office are one, and where they are not."""

    def away(engine: Any) -> Away:
        if request.param == "one engine":
            office = engine.atomic_burial = Away(engine.atomic_burial, "bury")
        else:
            engine.atomic_burial = None
            office = engine.letters = Away(engine.letters, "keep")
        return office

    return away


async def test_while_the_office_is_away_nothing_is_acked_and_fetching_stops(
    office_away: Callable[[Any], Away],
) -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1), slots=5)
    async def handle(body: str) -> None:
        if body == "bad":
            raise ValueError("no")

    async with rig.app:
        engine: Any = await rig.app.engine()
        office = office_away(engine)
        async with rig.working():
            await rig.app.send_many("orders", ["bad"] * 5)
            await eventually(lambda: len(rig.seen(OutOfReach)) > 1)
            await rig.app.send_many("orders", ["good"] * 20)
            await asyncio.sleep(0.3)
            held = await rig.queue("orders")
            tries = office.calls
            office.error = None
            await rig.drained("orders")

            # Nothing settled; at most the fetch that was under way still came in.
            assert held.tally == {"sent": 25}
            assert held.ready >= 15
            assert tries < 10  # no busy loop
            assert len(await rig.letters()) == 5
            assert len(rig.seen(Succeeded)) == 20
            assert [e.what for e in rig.seen(BackInReach)] == ["office"]


async def test_a_letter_the_office_refuses_stays_in_its_mailbox(
    office_away: Callable[[Any], Away],
) -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1), lease=0.2)
    async def handle(body: str) -> None:
        raise ValueError("no")

    async with rig.app:
        engine: Any = await rig.app.engine()
        office = office_away(engine)
        office.error = Refused("cannot store this")
        async with rig.working():
            await rig.app.send("orders", "bad")
            await eventually(lambda: office.calls >= 2)
            still = await rig.queue("orders")
            office.error = None
            await rig.drained("orders")

            assert still.tally.get("buried", 0) == 0
            (letter,) = await rig.letters()
            assert letter.message.body == b"bad"


async def test_a_worker_waits_for_its_broker_and_goes_on() -> None:
    rig = Rig()

    @rig.app.handler("orders")
    async def handle(body: str) -> None: ...

    async with rig.app:
        engine: Any = await rig.app.engine()
        broker = engine.broker
        away = Away(broker.source("orders"), "receive", "settle")
        away.error = None
        original = broker.source
        broker.source = lambda name: away if name == "orders" else original(name)
        async with rig.working():
            await rig.app.send("orders", "one")
            await rig.drained("orders")
            away.error = Unavailable("connection lost")
            await eventually(lambda: len(rig.seen(OutOfReach)) > 0)
            await rig.app.send("orders", "two")
            away.error = None
            await rig.drained("orders")

            assert len(rig.seen(Succeeded)) == 2
