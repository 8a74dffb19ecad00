"""A worker that could take messages and takes none is told from an idle one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from deadletter.core.errors import Unavailable
from deadletter.runtime.availability import EVERY, Calls, NoProgress, Progress, RestartFailed
from deadletter.testing.virtual_time import VirtualClock
from dlq_rig import virtually


class Mailbox:
    """A broker that says how much is ready, and remembers what it was asked."""

    def __init__(self, *ready: int) -> None:
        self.asked = 0
        self.reconnected = 0
        self.is_away = False
        self._ready = ready

    async def ready(self, mailbox: str) -> int:
        if self.is_away:
            raise Unavailable("gone for now")
        self.asked += 1
        return self._ready[min(self.asked, len(self._ready)) - 1]

    async def reconnect(self) -> None:
        self.reconnected += 1


class Watched:
    """A worker's progress, and what the worker would say of itself."""

    def __init__(self, broker: Any) -> None:
        self.is_free = True
        self.unstarted = 0
        self.progress = Progress(
            "orders",
            broker,
            calls=Calls(VirtualClock()),
            is_free=lambda: self.is_free,
            unstarted=lambda: self.unstarted,
        )

    async def after(self, seconds: float) -> tuple[str | None, BaseException | None]:
        """What it says after so long, and what it has ended with."""
        running = asyncio.create_task(self.progress.run())
        await asyncio.wait({running}, timeout=seconds + 0.1)
        ended = running.exception() if running.done() else None
        running.cancel()
        return self.progress.complaint(), ended


@virtually
async def test_a_mailbox_with_messages_nobody_takes_is_told_of() -> None:
    box = Mailbox(7)

    said, ended = await Watched(box).after(31)

    assert said == "stalled: 7 ready, nothing claimed for 30 s"
    assert ended is None
    assert box.reconnected == 1


@virtually
async def test_a_worker_that_stays_stalled_starts_again_and_then_ends() -> None:
    watched = Watched(Mailbox(7))

    _, first = await watched.after(61)
    _, second = await watched.after(61)

    assert isinstance(first, NoProgress)
    assert isinstance(second, RestartFailed)


@virtually
async def test_deliveries_claimed_after_a_restart_count_as_progress() -> None:
    watched = Watched(Mailbox(7))
    await watched.after(61)
    watched.progress.taken(1)

    _, ended = await watched.after(65)

    assert isinstance(ended, NoProgress)


@pytest.mark.parametrize("ready", [[0], [3, 0], [0, 9, 0, 9, 0, 9, 0], [9, 9, 0]])
def test_others_who_take_everything_are_no_alarm(ready: Sequence[int]) -> None:
    @virtually
    async def run() -> None:
        watched = Watched(Mailbox(*ready))

        said, ended = await watched.after(40)

        assert said is None
        assert ended is None

    run()


@virtually
async def test_a_busy_worker_asks_nobody() -> None:
    box = Mailbox(1000)
    watched = Watched(box)

    async def work() -> None:
        while True:
            await asyncio.sleep(1)
            watched.progress.taken(1)

    working = asyncio.create_task(work())
    said, ended = await watched.after(600)
    working.cancel()

    assert (said, ended, box.asked) == (None, None, 0)


@virtually
async def test_a_worker_that_may_take_nothing_is_not_stalled() -> None:
    watched = Watched(Mailbox(1000))
    watched.is_free = False  # its slots are full, its brake is open

    assert await watched.after(600) == (None, None)


@virtually
async def test_a_broker_that_cannot_count_or_is_away_is_no_alarm() -> None:
    box = Mailbox(5)
    box.is_away = True

    assert await Watched(box).after(600) == (None, None)
    assert await Watched(object()).after(600) == (None, None)


@virtually
async def test_claimed_deliveries_that_do_not_start_are_reported() -> None:
    watched = Watched(object())
    watched.unstarted = 20

    said, _ = await watched.after(6 * EVERY)
    _, ended = await watched.after(12 * EVERY)

    assert said == "stalled: what was claimed has not begun for 30 s"
    assert isinstance(ended, NoProgress)
