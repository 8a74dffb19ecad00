"""Background tasks of servers and workers: sweep, tidy, index, anchor, alert."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from deadletter.core.errors import BackendError, ConfigError, Conflict
from deadletter.core.events import BackInReach, Observer, OutOfReach
from deadletter.core.letter import AuditEntry, By, State
from deadletter.core.policy import DLQPolicy
from deadletter.observe.alerts import Alerting
from deadletter.observe.notifications import NotificationFailed, Webhook, check_url
from deadletter.office.audit import Anchoring, NotAnchored, Note, in_file
from deadletter.office.office import Office
from deadletter.office.retention import Retention
from deadletter.ports import (
    AccessStore,
    BodyIndexing,
    Clock,
    DeathCounting,
    Dice,
    Engine,
    Indexing,
    LetterStore,
)
from deadletter.runtime.deliveries import ExclusiveGate, Heartbeat
from deadletter.runtime.loop_group import Loop
from deadletter.runtime.sweep import Sweep
from deadletter.settings import Anchors, RetentionDays, Settings

from .engines import key_ring
from .foreign import Ways

SWEEP_EVERY: Final = 5.0  # seconds
INDEX_EVERY: Final = 5.0
REGROUP_EVERY: Final = 60.0
TIDY_EVERY: Final = 600.0
_SETTLE_EVERY: Final = 15.0  # seconds between checks of copies sent to other systems
_HOUR: Final = 3600.0
_ACTOR: Final = "dlq serve"
_BEAT: Final = 10.0  # seconds between heartbeats, also while a chore runs


class Chore:
    """
    A task that runs every `interval` seconds.

    With `in_parts`, `once` returns whether there is more to do. The next part then starts
    after a pause as long as the last part, so that other work gets its turn. A stop
    cancels a part: it is one transaction, and is repeated later.

    If the engine is unreachable or rejects something, the task reports it once and tries
    again. Any other error ends it.
    """

    def __init__(
        self,
        name: str,
        once: Callable[[], Awaitable[object]],
        *,
        interval: float,
        in_parts: bool = False,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self.name = name
        self.heartbeat = Heartbeat(clock)
        self._once = once
        self._interval = interval
        self._in_parts = in_parts
        self._clock = clock
        self._observe = observe
        self._trouble: Exception | None = None
        self._since = 0.0

    def ready(self) -> str | None:
        """Return why the engine is unreachable; a refusal counts as reachable."""
        is_away = isinstance(self._trouble, BackendError)
        return f"{self.name} failed: {self._trouble}" if is_away else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run the task repeatedly until `stop` is set."""
        beating = asyncio.create_task(self._beat())
        try:
            while not stop.is_set():
                began = self._clock.monotonic()
                has_more = await self._part(stop) and self._in_parts
                took = self._clock.monotonic() - began
                with suppress(TimeoutError):
                    pause = took if has_more else self._interval
                    await asyncio.wait_for(stop.wait(), pause)
        finally:
            beating.cancel()

    async def _part(self, stop: asyncio.Event) -> bool:
        if not self._in_parts:
            return await self._guarded()
        part = asyncio.create_task(self._guarded())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({part, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not part.done():
                part.cancel()
                await asyncio.wait({part})
        return not part.cancelled() and part.result()

    async def _beat(self) -> None:
        while True:
            self.heartbeat.beat()
            await asyncio.sleep(_BEAT)

    async def _guarded(self) -> bool:
        before = self._trouble
        has_more = False
        try:
            has_more = bool(await self._once())
        except (BackendError, Conflict) as error:
            self._trouble = error
            if before is None:
                self._since = self._clock.monotonic()
                self._observe(OutOfReach(mailbox="*", what=self.name, text=str(error), tries=1))
        else:
            self._trouble = None
            if before is not None:
                seconds = self._clock.monotonic() - self._since
                self._observe(BackInReach(mailbox="*", what=self.name, seconds=seconds))
        return has_more


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
    """Return the background tasks of a server."""

    def every(seconds: float, name: str, once: Callable[[], Awaitable[object]]) -> Loop:
        return Chore(name, once, interval=seconds, clock=clock, observe=observe)

    office = Office(engine, clock, dice, servers=Ways(settings.source_urls, clock=clock))
    replays = office.replays.sender
    loops = [
        every(TIDY_EVERY, "plans", partial(replays.let_go_of_plans, _ACTOR)),
        every(_SETTLE_EVERY, "outcomes", replays.settle_others),
    ]
    if access is not None:
        loops.append(every(TIDY_EVERY, "tidying", access.tidy))
    # Without it, a burial takes two steps and needs the policies of the workers.
    if engine.atomic_burial is not None:
        sweeping = _sweeping(engine, letters, clock=clock, dice=dice, observe=observe)
        loops.append(every(SWEEP_EVERY, "sweep", sweeping))
    loops.append(every(REGROUP_EVERY, "regroup", office.groups.regroup))
    loops += indexing(letters, settings.index_bodies, clock=clock, observe=observe)
    loops += tidying_deaths(letters, clock=clock, observe=observe)
    loops += anchoring(letters, settings.anchors, clock=clock, observe=observe)
    alerts, hours = settings.alerts, settings.serve.retention_every
    if alerts.targets:
        alerting = Alerting(alerts, letters, engine.ledger, clock=clock, observe=observe)
        loops.append(every(max(alerts.every, 1.0), "alerts", alerting.look))
    if hours is not None:
        retention = retention_of(office, settings.retention_days)
        run = partial(retention.run, By(_ACTOR, "retention"))
        loops.append(every(hours * _HOUR, "retention", run))
    return loops


def retention_of(office: Office, days: RetentionDays) -> Retention:
    """Return the retention of an office, with the days of the settings."""
    return office.retention(
        {
            State.CLOSED: timedelta(days=days.closed),
            State.REPLAYED: timedelta(days=days.replayed),
            State.DISCARDED: timedelta(days=days.discarded),
        },
        abandoned=timedelta(days=days.ledger),
    )


def indexing(
    letters: LetterStore, largest: int | None, *, clock: Clock, observe: Observer
) -> list[Loop]:
    """
    Return the task that indexes texts, if the office has an index.

    Bodies of up to `largest` bytes are indexed, too; None keeps the current size. Any
    number of processes can run it and share the work.
    """
    if largest and not isinstance(letters, BodyIndexing):
        raise ConfigError(
            f"index_bodies is {largest}, but this office cannot index bodies: use one"
            " in SQLite or PostgreSQL, or remove the setting"
        )
    if not isinstance(letters, Indexing):
        return []

    async def once() -> bool:
        nonlocal largest
        if largest is not None and isinstance(letters, BodyIndexing):
            await letters.index_bodies(largest)
            largest = None  # set once; afterwards the setting of the office applies
        return await letters.index_texts()

    return [Chore("index", once, interval=INDEX_EVERY, in_parts=True, clock=clock, observe=observe)]


def tidying_deaths(letters: LetterStore, *, clock: Clock, observe: Observer) -> list[Loop]:
    """
    Return the task that adds up old counters of deaths over time, if the office has any.

    Any number of processes can run it and share the work.
    """
    if not isinstance(letters, DeathCounting):
        return []
    once = letters.tidy_deaths
    return [Chore("deaths", once, interval=TIDY_EVERY, in_parts=True, clock=clock, observe=observe)]


def anchoring(
    letters: LetterStore, anchors: Anchors, *, clock: Clock, observe: Observer
) -> list[Loop]:
    """
    Return the task that writes the end of the audit to other places, if configured.

    Any number of processes can run it: a duplicate line does no harm.
    """
    places: dict[str, Note] = {}
    if anchors.file is not None:
        places["file"] = in_file(Path(anchors.file))
    if anchors.webhook is not None:
        check_url(anchors.webhook, "anchors")
        webhook = Webhook(anchors.webhook, anchors.secret)

        async def post(entry: AuditEntry) -> None:
            data = {"seq": entry.seq, "seal": entry.hash}
            id_ = f"anchor-{entry.seq}"
            try:
                await webhook.post("deadletter.anchor", id_, clock.now(), data)
            except NotificationFailed as error:
                raise NotAnchored(str(error)) from error

        places["webhook"] = post
    if not places:
        return []

    once = Anchoring(letters.latest_audit, places, observe).once
    interval = max(anchors.every, 1.0)
    return [Chore("anchors", once, interval=interval, clock=clock, observe=observe)]


def _sweeping(
    engine: Engine, letters: LetterStore, *, clock: Clock, dice: Dice, observe: Observer
) -> Callable[[], Awaitable[object]]:
    """Return a sweep that uses the options of mailboxes, without policies of handlers."""
    policies: dict[str, DLQPolicy] = {}
    gate, ring = ExclusiveGate(), key_ring(letters)

    async def once() -> None:
        sweep = Sweep(
            broker=engine.broker,
            letters=letters,
            atomic_burial=engine.atomic_burial,
            ledger=engine.ledger,
            policies=policies,
            gate=gate,
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
