"""
Drains and replays in processes that are killed at a step of our choice.

Every process is forked from a server that has imported what is needed, so that one
more costs milliseconds. It counts its steps, which are the calls to its office, to the
dead place and to the way back, before and after each, and kills itself at one of them.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any

import pytest
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from hypothesis import HealthCheck, Phase, settings

from cli.conftest import Command
from deadletter.brokers.sqs import drain as sqs
from deadletter.core.campaign import Campaign, Care
from deadletter.core.errors import Unavailable
from deadletter.core.letter import By, DeadLetter
from deadletter.core.query.ast import EVERYTHING
from deadletter.intake.dialects import Trusted
from deadletter.office.replay import Replay
from deadletter.ports import Drain, Foreign, LetterStore, SentCopy
from deadletter.runtime.drain_loop import Intake
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import opened
from deadletter.wiring.foreign import WayBack, Ways, opened_foreign
from intake.rig import intake

POINTS = 20
_TRIES = 10
_PATIENCE = 90.0  # seconds for a process; afterwards it is killed, wherever it is
_AT_ONCE = 7  # processes
ONCE_EACH = settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # every example takes a server's time
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        "interop.clouds",
        "deadletter.stores.sqlite",
        *(f"deadletter.brokers.{name}.drain" for name in ("sqs", "nats", "kafka")),
    ]
)
# Whoever starts a process asks for the exit codes of all others, too. A code can be
# read once: a second thread that reads it at the same time gets 255.
_one_at_a_time = Lock()
BY = By("tester")
SHOP = "shop"  # the name that settings give the server


class Steps:
    """Counts steps, and ends the process for good at one of them."""

    def __init__(self, last: int) -> None:
        self._left = last

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, thing: Any, *names: str) -> None:
        """Count a step before and after each call of these methods."""
        for name in names:
            setattr(thing, name, self._counted(getattr(thing, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*args: Any, **named: Any) -> Any:
            self.step()
            answer = await call(*args, **named)
            self.step()
            return answer

        return counted


class WatchedWays(Ways):
    """The one server, whose sinks count steps."""

    def __init__(self, urls: dict[str, str], steps: Steps) -> None:
        super().__init__(urls, clock=SystemClock())
        self._steps = steps

    @asynccontextmanager
    async def open(self, name: str, *, new_ids: bool = False) -> AsyncIterator[WayBack]:
        async with super().open(name, new_ids=new_ids) as way:
            sink = way.sink

            def watched(mailbox: str) -> Any:
                opened = sink(mailbox)
                self._steps.watch(opened, "send")
                return opened

            way.sink = watched  # type: ignore[method-assign]
            yield way


class Foe:
    """One dead place, an office of its own, and how long what is taken is hidden."""

    def __init__(self, url: str, place: str, folder: Path, *, source: str, **hidden: float) -> None:
        self.url = url
        self.place = place
        self.office = f"sqlite:///{folder / place}.db"
        self.source = source  # that its headers may name
        self.hidden = hidden  # constants of the module that drains, by name

    def drain(self, last: int = 0) -> bool:
        """Drain it in a process of its own; whether that came to its end."""
        return _ran(_drain, self, last)

    def replay(self, last: int = 0) -> bool:
        """Send everything back in a process of its own, or what is left of it."""
        return _ran(_replay, self, last)

    async def letters(self) -> list[DeadLetter]:
        """Everything in its office."""
        async with opened(self.office) as engine:
            store = _store(engine)
            page = await store.find(EVERYTHING, limit=1000)
            return list(await store.get([head.id for head in page.heads]))

    async def in_doubt(self) -> set[str]:
        """Ids of letters on which it is written that they may arrive twice."""
        async with opened(self.office) as engine:
            acts = await _store(engine).audit(limit=1000)
            return {one.target for one in acts if one.action == "note"}


async def taken_in(
    drain: Drain, office: MemoryEngine, count: int, *sources: str
) -> list[DeadLetter]:
    """Drain that many messages, without waiting for more; their letters as kept."""
    loop = intake(drain, office, *sources)
    ids: list[str] = []
    while len(ids) < count:
        taken = await loop.once(count - len(ids))
        assert taken, f"{len(ids)} of {count} were there"
        ids += [one.kept.id for one in taken if one.kept is not None]
    await loop.end()
    assert office.letters is not None
    return list(await office.letters.get(ids))


async def sent_back(foreign: Foreign, url: str, office: MemoryEngine) -> Campaign:
    """Replay everything that is pending through a server; what became of it."""
    assert office.letters is not None
    way = WayBack(foreign, url)
    replay = Replay(office.letters, way, SystemClock(), SystemDice())
    care = Care(key_order=False)
    campaign = await replay.start("is:pending", BY, care=care)
    return await replay.run(campaign.id)


@contextmanager
def working(consumer: Callable[[Event], None]) -> Iterator[None]:
    """Run a consumer of others in a thread; it ends once its event is set."""
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(consumer, stop)
        try:
            yield
        finally:
            stop.set()
        run.result(30)


def replay_by_command(dlq: Command, url: str, *words: str) -> dict[str, Any]:
    """Send everything that is pending by `dlq replay`; the replay as it ended."""
    through = ("--through", url, "--yes", *words)
    ran = dlq("--json", "replay", "is:pending", *through)
    assert ran.out, ran.err
    found: dict[str, Any] = ran.documents[-1]
    return found


def drain_by_command(dlq: Command, url: str, place: str, number: int) -> None:
    """Run `dlq drain` until it has taken that many messages."""
    taken = 0
    deadline = monotonic() + 60
    while taken < number and monotonic() < deadline:
        ran = dlq("--json", "drain", url, place)
        assert ran.code == 0, ran.err
        taken += ran.document["new"] + ran.document["known"]
    assert taken == number


def counts_by_command(dlq: Command, replay: str) -> dict[str, int]:
    """What became of a replay's letters, says `dlq replay status`."""
    found: dict[str, int] = dlq("--json", "replay", "status", replay).document["counts"]
    return found


def copy_of(letter: DeadLetter, mailbox: str, *, generation: int = 1) -> SentCopy:
    """The copy of a letter that was sent to a mailbox just now."""
    return SentCopy(
        letter_id=letter.id,
        generation=generation,
        mailbox=mailbox,
        message=letter.message,
        sent_at=SystemClock().now(),
    )


def eventually_done(work: Callable[[], bool]) -> None:
    """Start a process until one comes to its end, on a busy machine after a while."""
    assert any(work() for _ in range(_TRIES))


def all_at_once(work: Callable[[Any], None], things: Iterable[Any]) -> None:
    """Do it with each of them, some at a time; the first error is raised."""
    with pytest.MonkeyPatch.context() as patch:
        # Before Python 3.13 the server of forks does not know where our modules are.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(work, things))


def _ran(work: Callable[[Foe, int], None], foe: Foe, last: int) -> bool:
    process = _processes.Process(target=work, args=(foe, last))
    with _one_at_a_time:
        process.start()
    if not wait([process.sentinel], _PATIENCE):
        process.kill()  # once more, at a point of nobody's choice
        wait([process.sentinel])
    with _one_at_a_time:
        code = process.exitcode
    ends = (0, -signal.SIGKILL, os.EX_TEMPFAIL)
    assert code in ends, f"{work} of {foe.place}: {code}"
    return code == 0


def _store(engine: Any) -> LetterStore:
    assert engine.letters is not None
    store: LetterStore = engine.letters
    return store


def _drain(foe: Foe, last: int) -> None:
    _run(_draining(foe, Steps(last)))


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except Unavailable as error:  # as on a machine that is busy: it is tried again
        print(error, file=sys.stderr, flush=True)
        os._exit(os.EX_TEMPFAIL)


async def _draining(foe: Foe, steps: Steps) -> None:
    _be_quick(foe)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(opened(foe.office))
        foreign = await stack.enter_async_context(opened_foreign(foe.url))
        store, drain = _store(engine), foreign.drain(foe.place)
        steps.watch(store, "keep")
        steps.watch(drain, "take", "forget")
        loop = Intake(
            drain=drain,
            letters=store,
            clock=SystemClock(),
            dice=SystemDice(),
            observe=lambda event: None,
            trusted=Trusted((foe.source,)),
            batch=3,
        )
        while await loop.once(1000):
            pass
        await loop.end()


def _replay(foe: Foe, last: int) -> None:
    _run(_replaying(foe, Steps(last)))


async def _replaying(foe: Foe, steps: Steps) -> None:
    _be_quick(foe)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(opened(foe.office))
        store = _store(engine)
        steps.watch(store, "take_replay", "sent_replay", "plan_replay")
        ways = WatchedWays({SHOP: foe.url}, steps)
        replay = Replay(store, engine, SystemClock(), SystemDice(), ways=ways)
        begun = await replay.latest()
        if begun:
            [campaign] = begun
            await replay.resume(campaign.id, BY, take_over=True)
        else:
            campaign = await replay.start("is:pending", BY, through=SHOP)
        await replay.run(campaign.id, rate=30)  # three at a time


# What is known of Amazon's services is read once, before processes are forked: it takes
# longer than to drain a queue.
_known = get_session().get_component("data_loader")
_known.load_service_model("sqs", "service-2")
_known.load_data("endpoints")
_known.load_data("partitions")


def _session() -> Any:
    session = get_session()
    session.register_component("data_loader", _known)
    return session


def _be_quick(foe: Foe) -> None:
    sqs.get_session = _session
    scheme = foe.url.partition("://")[0].partition("+")[0]
    module = import_module(f"deadletter.brokers.{scheme}.drain")
    for name, value in foe.hidden.items():
        setattr(module, name, value)
