"""Something beside a block that is started again whenever it dies."""

import asyncio

import pytest

from deadletter.core.backoff import Exponential
from deadletter.core.events import Event, LoopDied
from deadletter.runtime import loop_group as kept_alive
from deadletter.runtime.loop_group import KeptAlive
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually


class Dying:
    """Dies as often as it is told to, then goes on until stopped."""

    def __init__(self, *deaths: BaseException | None) -> None:
        self.runs = 0
        self.ended = False
        self._deaths = deaths

    async def __call__(self, stop: asyncio.Event) -> None:
        self.runs += 1
        if self.runs <= len(self._deaths):
            if error := self._deaths[self.runs - 1]:
                raise error
            return
        await stop.wait()
        self.ended = True


def kept(run: Dying, told: list[Event]) -> KeptAlive:
    return KeptAlive("replays", run, clock=SystemClock(), observe=told.append)


async def test_a_loop_is_restarted_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_alive, "AGAIN", Exponential(0.001, cap=0.001, jitter=0.0))
    told: list[Event] = []
    run = Dying(ValueError("a mistake"), None, asyncio.CancelledError())

    async with kept(run, told) as alive:
        await eventually(lambda: run.runs == 4 and alive.is_running)
        trouble = alive.trouble

    assert run.ended  # told to stop, and waited for
    assert trouble is None
    assert [type(event) for event in told] == [LoopDied] * 3


async def test_until_it_runs_again_it_says_why_it_does_not() -> None:
    told: list[Event] = []
    alive = kept(Dying(ValueError("password=hunter2")), told)
    before = alive.trouble

    async with alive:
        await eventually(lambda: told)
        meanwhile = alive.trouble

    assert before == "it has not been started yet"
    assert meanwhile is not None
    assert "starts again in 1 s: ValueError" in meanwhile
    assert "hunter2" not in meanwhile
