"""How a worker ends when it is not simply told to stop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from deadletter.core.errors import ConfigError
from deadletter.core.events import Event, OutOfReach, WorkerStopped
from deadletter.core.message import Delivery, Message
from deadletter.ports import Engine
from deadletter.runtime.deliveries import ExclusiveGate, LeaseKeeper
from deadletter.runtime.registration import WorkerOptions
from deadletter.runtime.worker import Worker
from deadletter.stores.memory import open_engine
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually

Receive = Callable[..., Awaitable[Sequence[Delivery]]]


class Odd:
    """A mailbox whose second fetch and those after it are not what one expects."""

    def __init__(self, source: Any, then: Receive) -> None:
        self.fetches = 0
        self._source = source
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def receive(self, **options: Any) -> Sequence[Delivery]:
        self.fetches += 1
        if self.fetches == 1:
            found: Sequence[Delivery] = await self._source.receive(**options)
            return found
        return await self._then(**options)


async def opened() -> Engine:
    """An engine with one message in it."""
    clock = SystemClock()
    engine = await open_engine("memory://", clock=clock, dice=SystemDice())
    message = Message(id="one", body=b"x", sent_at=clock.now())
    await engine.broker.sink("orders").send([message])
    return engine


def worker(engine: Engine, source: Odd, events: list[Event], started: asyncio.Event) -> Worker:
    """A worker whose handler never ends by itself, with all the time in the world."""

    async def handle(delivery: Delivery) -> None:
        started.set()
        await asyncio.sleep(3600)

    assert engine.letters is not None
    return Worker(
        source=source,  # type: ignore[arg-type]
        handler=handle,
        options=WorkerOptions(lease=3600, grace=3600),
        broker=engine.broker,
        letters=engine.letters,
        atomic_burial=None,
        ledger=None,
        gate=ExclusiveGate(),
        clock=SystemClock(),
        dice=SystemDice(),
        observe=events.append,
    )


async def handed_back(engine: Engine) -> tuple[int, int]:
    """The attempt and charge of the message, which must be there at once."""
    source = engine.broker.source("orders")
    (again,) = await source.receive(limit=1, wait=0, lease=10)
    return again.attempt, again.charged


async def test_told_to_hurry_while_it_stops_it_hurries() -> None:
    winding_down, started = asyncio.Event(), asyncio.Event()

    async def slow_to_cancel(**options: Any) -> Sequence[Delivery]:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            winding_down.set()
            await asyncio.sleep(3600)  # gives back what it may have claimed
        return ()

    engine, events, stop = await opened(), list[Event](), asyncio.Event()
    source = Odd(engine.broker.source("orders"), slow_to_cancel)
    run = asyncio.create_task(worker(engine, source, events, started).run(stop))
    await started.wait()
    stop.set()
    await winding_down.wait()

    run.cancel()  # the second signal, while the first is still being obeyed
    await asyncio.wait({run}, timeout=5)

    assert run.cancelled()
    assert await handed_back(engine) == (2, 1)


async def test_a_fetch_cancelled_by_its_own_stop_is_no_end_in_terror() -> None:
    fetching, started = asyncio.Event(), asyncio.Event()

    async def quiet(**options: Any) -> Sequence[Delivery]:
        fetching.set()
        await asyncio.sleep(3600)
        return ()

    engine, events, stop = await opened(), list[Event](), asyncio.Event()
    await engine.broker.source("orders").receive(limit=1, wait=0, lease=3600)
    source = Odd(engine.broker.source("orders"), quiet)
    source.fetches = 1
    run = asyncio.create_task(worker(engine, source, events, started).run(stop))
    await fetching.wait()

    stop.set()
    await asyncio.wait_for(run, 5)

    assert isinstance(events[-1], WorkerStopped)


async def test_a_loop_that_dies_hands_back_what_it_held() -> None:
    started = asyncio.Event()

    async def dies(**options: Any) -> Sequence[Delivery]:
        await started.wait()
        raise ConfigError("a mistake of our own")

    engine, events = await opened(), list[Event]()
    source = Odd(engine.broker.source("orders"), dies)
    dying = worker(engine, source, events, started)

    with pytest.raises(ConfigError, match="mistake"):
        await asyncio.wait_for(dying.run(asyncio.Event()), 5)

    assert await handed_back(engine) == (2, 1)


async def test_a_worker_that_died_works_when_it_is_started_again() -> None:
    deaths = 0

    async def dies_once(**options: Any) -> Sequence[Delivery]:
        nonlocal deaths
        deaths += 1
        if deaths == 1:
            raise ConfigError("a mistake of our own")
        found: Sequence[Delivery] = await source._source.receive(**options)
        return found

    engine, events, started = await opened(), list[Event](), asyncio.Event()
    source = Odd(engine.broker.source("orders"), dies_once)
    again = worker(engine, source, events, started)
    with pytest.raises(ConfigError, match="mistake"):
        await asyncio.wait_for(again.run(asyncio.Event()), 5)
    started.clear()

    run = asyncio.create_task(again.run(asyncio.Event()))

    await asyncio.wait_for(started.wait(), 5)
    run.cancel()
    await asyncio.wait({run}, timeout=5)


@pytest.mark.parametrize("broken", [AssertionError, IndexError, UnicodeError])
async def test_client_errors_caused_by_bad_answers_are_retried(broken: type[Exception]) -> None:
    failed = asyncio.Event()

    async def garbled(**options: Any) -> Sequence[Delivery]:
        failed.set()
        raise broken("insufficient data in buffer")

    engine, events, started = await opened(), list[Event](), asyncio.Event()
    source = Odd(engine.broker.source("orders"), garbled)
    stop = asyncio.Event()
    patient = worker(engine, source, events, started)
    run = asyncio.create_task(patient.run(stop))
    await asyncio.wait_for(started.wait(), 5)
    await asyncio.wait_for(failed.wait(), 5)
    await eventually(lambda: any(isinstance(event, OutOfReach) for event in events))

    assert "insufficient data" in str(patient.ready())
    assert not run.done()
    run.cancel()
    await asyncio.wait({run}, timeout=5)


async def test_a_worker_without_its_helpers_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(self: LeaseKeeper) -> None:
        raise MemoryError

    monkeypatch.setattr(LeaseKeeper, "run", dies)
    engine, events, started = await opened(), list[Event](), asyncio.Event()
    source = Odd(engine.broker.source("orders"), _never)

    run = worker(engine, source, events, started).run(asyncio.Event())

    with pytest.raises(MemoryError):
        await asyncio.wait_for(run, 5)


async def _never(**options: Any) -> Sequence[Delivery]:
    await asyncio.sleep(3600)
    return ()
