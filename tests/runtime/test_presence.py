"""Workers say that they live, and work on whatever becomes of what they say."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from deadletter import App
from deadletter.core.events import BackInReach, Event, OutOfReach
from deadletter.core.presence import WorkedMailbox, WorkerSeen, WorkerSign
from deadletter.ports import LetterStore, Presence
from deadletter.runtime.presence import PresenceLoop
from deadletter.system import process_name
from deadletter.testing.fakes import FakeClock, SeededDice, eventually
from deadletter.wiring.engines import open_engine, opened


class Moody:
    """A store that can be away."""

    def __init__(self) -> None:
        self.problem: BaseException | None = None
        self.noted: list[WorkerSign] = []
        self.left: list[str] = []

    async def note_workers(self, signs: Sequence[WorkerSign]) -> None:
        if self.problem is not None:
            raise self.problem
        self.noted += signs

    async def workers_left(self, ids: Sequence[str]) -> None:
        if self.problem is not None:
            raise self.problem
        self.left += ids

    async def workers(self) -> Sequence[WorkerSeen]:
        return ()


class Working:
    """A loop that works a mailbox."""

    def presence(self) -> WorkedMailbox:
        return WorkedMailbox(mailbox="orders", slots=2, in_flight=1)


def a_loop(store: Presence, events: list[Event]) -> PresenceLoop:
    return PresenceLoop(
        store,
        [Working()],
        name="a:17",
        version="1.8",
        clock=FakeClock(),
        dice=SeededDice(),
        observe=events.append,
        every=0.01,
    )


async def test_signs_are_written_until_the_end_and_taken_back() -> None:
    store, stop = Moody(), asyncio.Event()
    running = asyncio.create_task(a_loop(store, []).run(stop))
    await eventually(lambda: len(store.noted) > 2)
    stop.set()
    await running

    assert {sign.id for sign in store.noted} == set(store.left)
    assert (store.noted[0].name, store.noted[0].host) == ("a:17", "a")
    assert store.noted[0].mailboxes == (Working().presence(),)


@pytest.mark.parametrize("problem", [OSError("disk"), ValueError("code"), TimeoutError()])
async def test_a_sign_that_cannot_be_written_is_reported_once(problem: Exception) -> None:
    store, stop, events = Moody(), asyncio.Event(), list[Event]()
    store.problem = problem
    loop = a_loop(store, events)
    running = asyncio.create_task(loop.run(stop))
    await eventually(lambda: bool(events))
    await asyncio.sleep(0.1)
    assert [type(event) for event in events] == [OutOfReach]
    assert loop.ready() is None

    store.problem = None
    await eventually(lambda: bool(store.noted))
    stop.set()
    await running
    assert [type(event) for event in events] == [OutOfReach, BackInReach]


async def test_an_app_is_seen_while_it_works(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/shop.db", version="1.8.1")
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.handler("orders", slots=3)
    async def charge(body: bytes) -> None:
        started.set()
        await go_on.wait()

    async with app:
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        office = await app.office()
        await eventually(office.workers)
        (line,) = await office.workers()
        assert (line.name, line.version, line.is_silent) == (process_name(), "1.8.1", False)
        (box,) = line.mailboxes
        assert (box.mailbox, box.slots, box.brake, box.trouble) == ("orders", 3, "", "")
        go_on.set()
        stop.set()
        assert await working == 0
        assert await office.workers() == []


async def test_messages_are_handled_while_presence_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    app = App(f"sqlite:///{tmp_path}/shop.db", observe=events.append)
    handled: list[bytes] = []

    @app.handler("orders")
    async def charge(body: bytes) -> None:
        handled.append(body)

    async with app:

        async def fail(signs: Sequence[WorkerSign]) -> None:
            raise RuntimeError("no such table: workers")

        letters: LetterStore = await app.letters()
        monkeypatch.setattr(letters, "note_workers", fail)
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        await charge.send(b"1")
        await eventually(lambda: handled == [b"1"])
        stop.set()
        assert await working == 0

    assert [e.what for e in events if isinstance(e, OutOfReach)] == ["presence"]


_SHOP = """
import asyncio, sys
from deadletter import App
app = App(sys.argv[1], version="1.8")

@app.handler("orders")
async def charge(body: bytes) -> None: ...

app.run()
"""


async def test_a_killed_worker_is_silent_and_then_forgotten(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    clock = FakeClock()
    worker = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", _SHOP, url])
    try:
        async with opened(url) as engine:
            assert isinstance(engine.letters, Presence)
            await eventually(engine.letters.workers, within=30.0)
    finally:
        worker.send_signal(signal.SIGKILL)
        await asyncio.to_thread(worker.wait)
    async with opened(url) as engine:
        assert isinstance(engine.letters, Presence)
        (seen,) = await engine.letters.workers()
    clock.advance((seen.seen_at - clock.now()).total_seconds() + 299)
    engine = await open_engine(url, clock=clock, dice=SeededDice())
    try:
        assert isinstance(engine.letters, Presence)
        (seen,) = await engine.letters.workers()
        assert seen.silent_for == pytest.approx(299)
        clock.advance(1.0)
        assert await engine.letters.workers() == []
    finally:
        await engine.close()
