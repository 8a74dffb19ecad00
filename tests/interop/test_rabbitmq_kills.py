"""
Drains and replays on RabbitMQ that are killed: none lost, none doubled.

Processes are killed as `kill -9` does, at steps that are counted: every write to the
broker, and before and after every write to the office.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deadletter.app import App
from deadletter.brokers.amqp.connection import Connection
from deadletter.core.campaign import Care
from deadletter.core.letter import DeadLetter, State
from deadletter.core.query.ast import EVERYTHING
from deadletter.office.replay import Replay
from deadletter.ports import LetterStore
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import SeededDice
from deadletter.wiring.foreign import WayBack, opened_foreign
from intake.rig import BY
from interop.rabbitmq_shop import KINDS, Shop
from servers import Server

pytestmark = pytest.mark.engines

POINTS = 20


@pytest.fixture(params=KINDS)
def shop(rabbitmq_server: Server, request: pytest.FixtureRequest) -> Iterator[Shop]:
    made = Shop(rabbitmq_server.url, request.param)
    yield made
    made.connection.close()


class Fuse:
    """Kills its process at a step."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def arm(self, store: LetterStore, *names: str) -> None:
        send = Connection.send

        def sending(connection: Connection, data: bytes) -> None:
            self.step()
            send(connection, data)
            self.step()

        Connection.send = sending  # type: ignore[method-assign]
        for name in names:
            setattr(store, name, self._around(getattr(store, name)))

    def _around(self, do: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = await do(*args, **kwargs)
            self.step()
            return result

        return stepping


def run_apart(work: Callable[[Fuse], Awaitable[None]], at: int = 0) -> int:
    """Run in a process of its own, killed at a step; 0, or how many steps it took."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        fuse = Fuse(at)
        try:
            asyncio.run(work(fuse))  # type: ignore[arg-type]
            os.write(writing, b"%d" % fuse.steps)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return int(said or 0)


def points(steps: int) -> list[int]:
    """Steps to be killed at, all over a run."""
    assert steps >= POINTS
    return [1 + number * (steps - 1) // (POINTS - 1) for number in range(POINTS)]


def fill(shop: Shop) -> None:
    """Messages with ids, some equal without, and some of each body."""
    for number in range(4):
        shop.send(b"id%d" % number, message_id=f"m-{number}", headers={"n": 7})
        shop.send(b"same", headers={"n": 7})
        shop.send(b"other%d" % number)
    shop.reject(12)


FILLED = Counter([b"same"] * 4 + [b"%s%d" % (w, n) for w in (b"id", b"other") for n in range(4)])


def draining(shop: Shop, office: Path) -> Callable[[Fuse], Awaitable[None]]:
    async def work(fuse: Fuse) -> None:
        async with App(f"sqlite:///{office}") as app, opened_foreign(shop.url) as foreign:
            letters = await app.letters()
            fuse.arm(letters, "keep")
            some = intake_of(foreign.drain(shop.dead), letters)
            while await some.once(4):
                pass
            await some.end()

    return work


def intake_of(drain: Any, letters: LetterStore) -> Any:
    from deadletter.runtime.drain_loop import Intake

    return Intake(
        drain=drain,
        letters=letters,
        clock=SystemClock(),
        dice=SeededDice(),
        observe=lambda event: None,
    )


async def kept_in(office: Path) -> list[DeadLetter]:
    async with App(f"sqlite:///{office}") as app:
        letters = await app.letters()
        page = await letters.find(EVERYTHING, limit=1000)
        return list(await letters.get([head.id for head in page.heads]))


def test_a_drain_that_is_killed_loses_and_doubles_nothing(shop: Shop, tmp_path: Path) -> None:
    fill(shop)
    steps = run_apart(draining(shop, tmp_path / "whole.db"))

    wrong: dict[int, Counter[bytes]] = {}
    for at in points(steps):
        fill(shop)
        office = tmp_path / f"{at}.db"
        assert not run_apart(draining(shop, office), at)
        assert run_apart(draining(shop, office))
        found = Counter(one.message.body for one in asyncio.run(kept_in(office)))
        if found != FILLED:
            wrong[at] = found

    assert wrong == {}
    assert shop.depth(shop.dead) == 0


def sending(shop: Shop, office: Path, *, is_first: bool) -> Callable[[Fuse], Awaitable[None]]:
    async def work(fuse: Fuse) -> None:
        async with App(f"sqlite:///{office}") as app, opened_foreign(shop.url) as foreign:
            letters = await app.letters()
            way = WayBack(foreign, shop.url)
            replay = Replay(letters, way, SystemClock(), SystemDice())
            if is_first:
                care = Care(key_order=False)
                campaign = await replay.start("is:pending", BY, care=care)
            else:
                [campaign] = await letters.campaigns(limit=1)
            fuse.arm(letters, "take_replay", "sent_replay")
            await replay.run(campaign.id)

    return work


def test_a_replay_that_is_killed_loses_and_doubles_nothing(shop: Shop, tmp_path: Path) -> None:
    fill(shop)
    run_apart(draining(shop, tmp_path / "whole.db"))
    steps = run_apart(sending(shop, tmp_path / "whole.db", is_first=True))
    shop.handle()

    wrong: dict[int, Counter[bytes]] = {}
    for at in points(steps):
        fill(shop)
        office = tmp_path / f"{at}.db"
        assert run_apart(draining(shop, office))
        assert not run_apart(sending(shop, office, is_first=True), at)
        assert run_apart(sending(shop, office, is_first=False))
        back = shop.handle()
        found = Counter(body for _, _, body in back)
        if found != FILLED:
            wrong[at] = found
        letters = asyncio.run(kept_in(office))
        assert {one.head.state for one in letters} == {State.REPLAYING}

    assert wrong == {}
