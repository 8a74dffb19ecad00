"""What a server does beside answering: sweep, tidy, alert, let go of the finished."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from deadletter.core.errors import BackendError, Conflict
from deadletter.core.events import BackInReach, Observer, OutOfReach
from deadletter.core.letter import By, State
from deadletter.core.policy import DLQPolicy
from deadletter.observe.alerting import Alerting
from deadletter.office.replay import Replay
from deadletter.office.retention import Retention
from deadletter.ports import (
    AccessStore,
    Clock,
    Dice,
    Engine,
    Indexing,
    Ledger,
    LetterStore,
)
from deadletter.runtime.heartbeat import Heartbeat
from deadletter.runtime.loop import Loop
from deadletter.runtime.solitude import Solitude
from deadletter.runtime.sweep import Sweep
from deadletter.settings import RetentionDays, Settings

from .engines import key_ring

SWEEP_EVERY: Final = 5.0  # seconds
INDEX_EVERY: Final = 5.0
TIDY_EVERY: Final = 600.0
_HOUR: Final = 3600.0
_ACTOR: Final = "dlq serve"
_BEAT: Final = 10.0  # seconds between signs of life: a chore may take its time


class Chore:
    """
    Does something every `interval` seconds.

    Neither an engine out of reach nor a refusal ends it: it says so once, and tries
    again. Any other error does end it.
    """

    def __init__(
        self,
        name: str,
        once: Callable[[], Awaitable[object]],
        *,
        interval: float,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self.name = name
        self.heartbeat = Heartbeat(clock)
        self._once = once
        self._interval = interval
        self._clock = clock
        self._observe = observe
        self._trouble: Exception | None = None
        self._since = 0.0

    def ready(self) -> str | None:
        """Why the engine is out of reach; a refusal is no reason not to serve."""
        is_away = isinstance(self._trouble, BackendError)
        return f"{self.name} failed: {self._trouble}" if is_away else None

    async def run(self, stop: asyncio.Event) -> None:
        """Do it again and again until `stop` is set, however long it takes."""
        beating = asyncio.create_task(self._beat())
        try:
            while not stop.is_set():
                await self._guarded()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._interval)
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            self.heartbeat.beat()
            await asyncio.sleep(_BEAT)

    async def _guarded(self) -> None:
        before = self._trouble
        try:
            await self._once()
        except (BackendError, Conflict) as error:
            self._trouble = error
            if before is None:
                self._since = self._clock.monotonic()
                self._observe(
                    OutOfReach(mailbox="*", what=self.name, text=str(error), tries=1)
                )
        else:
            self._trouble = None
            if before is not None:
                seconds = self._clock.monotonic() - self._since
                self._observe(BackInReach(mailbox="*", what=self.name, seconds=seconds))


def chores(
    engine: Engine,
    letters: LetterStore,
    access: AccessStore | None,
    settings: Settings,
    *,
    clock: Clock,
    dice: Dice,
    observe: Observer,
) -> list[Loop]:
    """The chores of a server over this engine."""

    def every(seconds: float, name: str, once: Callable[[], Awaitable[object]]) -> Loop:
        return Chore(name, once, interval=seconds, clock=clock, observe=observe)

    replay = Replay(letters, engine.broker, clock, dice, engine.ledger)

    async def let_go_of_plans() -> None:
        await replay.let_go_of_plans(_ACTOR)

    loops = [every(TIDY_EVERY, "plans", let_go_of_plans)]
    if access is not None:
        loops.append(every(TIDY_EVERY, "tidying", access.tidy))
    # Elsewhere a burial takes two steps, which is for those who know the policies.
    if engine.undertaker is not None:
        sweeping = _sweeping(engine, letters, clock=clock, dice=dice, observe=observe)
        loops.append(every(SWEEP_EVERY, "sweep", sweeping))
    if isinstance(letters, Indexing):
        loops.append(every(INDEX_EVERY, "index", _indexing(letters, clock)))
    alerts, hours = settings.alerts, settings.serve.retention_every
    if alerts.targets:
        alerting = Alerting(
            alerts, letters, engine.ledger, clock=clock, observe=observe
        )
        loops.append(every(max(alerts.every, 1.0), "alerts", alerting.look))
    if hours is not None:
        retention = retention_of(settings.retention_days, letters, engine.ledger, clock)

        async def let_go() -> None:
            await retention.run(By(_ACTOR, "retention"))

        loops.append(every(hours * _HOUR, "retention", let_go))
    return loops


def retention_of(
    days: RetentionDays, letters: LetterStore, ledger: Ledger | None, clock: Clock
) -> Retention:
    """Retention as the settings say."""
    return Retention(
        letters,
        clock,
        keep={
            State.CLOSED: timedelta(days=days.closed),
            State.REPLAYED: timedelta(days=days.replayed),
            State.DISCARDED: timedelta(days=days.discarded),
        },
        ledger=ledger,
        abandoned=timedelta(days=days.ledger),
    )


def _indexing(letters: Indexing, clock: Clock) -> Callable[[], Awaitable[object]]:
    """Indexing error texts, half of the time at most: others write meanwhile."""

    async def once() -> None:
        began = clock.monotonic()
        while await letters.index_texts():
            await asyncio.sleep(clock.monotonic() - began)
            began = clock.monotonic()

    return once


def _sweeping(
    engine: Engine,
    letters: LetterStore,
    *,
    clock: Clock,
    dice: Dice,
    observe: Observer,
) -> Callable[[], Awaitable[object]]:
    """Sweeping by what mailboxes say themselves; handlers' policies are not here."""
    policies: dict[str, DLQPolicy] = {}
    solitude, ring = Solitude(), key_ring(letters)

    async def once() -> None:
        sweep = Sweep(
            broker=engine.broker,
            letters=letters,
            undertaker=engine.undertaker,
            ledger=engine.ledger,
            policies=policies,
            solitude=solitude,
            clock=clock,
            dice=dice,
            observe=observe,
            keys=await ring.keys(),
        )
        for queue in await engine.broker.queues():
            options = queue.options
            policies[options.name] = DLQPolicy(dead_queue=options.dead_queue)
        while await sweep.once():
            pass

    return once
