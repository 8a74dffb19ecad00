"""Whatever an application's own hooks do, the worker goes on and loses nothing."""

from typing import Any

import pytest

from deadletter import DLQPolicy, NoBackoff
from deadletter.app import App
from deadletter.core.errors import ConfigError, GiveUp, RetryLater
from deadletter.core.events import Event
from deadletter.core.message import Delivery
from rig import Rig


@pytest.mark.parametrize("error", [ConfigError("no"), RetryLater(1), ValueError("x")])
async def test_a_policy_that_raises_does_not_keep_its_slot(error: Exception) -> None:
    class Broken(DLQPolicy, frozen=True, kw_only=True):
        def should_dead_letter(self, delivery: Delivery, given: BaseException) -> bool:
            raise error

    rig = Rig()
    tries = 0

    @rig.app.handler("orders", policy=Broken(max_attempts=3, backoff=NoBackoff()), slots=1)
    async def handle(body: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ValueError("no")

    async with rig.working():
        await rig.app.send("orders", "x")
        await rig.drained("orders", within=5)

    assert tries == 2


async def test_an_observer_that_raises_stops_nothing() -> None:
    def observe(event: Event) -> None:
        raise RuntimeError(f"not interested in {type(event).__name__}")

    rig = Rig()
    rig.app = App("memory://", observe=observe)

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1))
    async def handle(body: str) -> None:
        if body == "bad":
            raise ValueError("no")

    async with rig.working():
        await rig.app.send_many("orders", ["good", "bad", "good"])
        await rig.drained("orders", within=3)
        letters = await rig.letters()

    assert len(letters) == 1


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
async def test_a_reason_that_is_not_unicode_is_kept_readably(url: str, tmp_path: Any) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/x.db" if url == "sqlite" else url)

    @rig.app.handler("orders")
    async def handle(body: str) -> None:
        if body == "bad":
            raise GiveUp("no such customer: \ud800\x00")

    async with rig.working():
        await rig.app.send("orders", "bad")
        await rig.drained("orders", within=3)
        await rig.app.send("orders", "good")
        await rig.drained("orders", within=3)
        (letter,) = await rig.letters()

    letter.head.reason_text.encode()
