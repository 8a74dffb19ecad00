"""
The loop that works one mailbox: receive, attempt, settle.

The worker fetches only what it can start at once, and runs suspects alone. It stops
fetching while everything fails (the brake) or something is unavailable. On stop, running
handlers get their grace; what is left goes back to the broker.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from deadletter.core.errors import BackendError, ConfigError, DeadLetterError, Unavailable
from deadletter.core.events import Observer, Received, WorkerStarted, WorkerStopped
from deadletter.core.failure.clues import plain_name, text_of
from deadletter.core.message import Delivery
from deadletter.core.presence import LONGEST, WorkedMailbox
from deadletter.core.signing import Keys
from deadletter.ports import (
    PROCESS_KEYS,
    AtomicBurial,
    Broker,
    Clock,
    Dice,
    Ledger,
    LetterStore,
    Reconnecting,
    Source,
)

from .attempt import Attempts, Running
from .availability import Availability, Progress, RuntimeContext
from .brake_gate import BrakeGate, BrakeLog
from .deliveries import (
    ClaimedDelivery,
    CorruptionCheck,
    ExclusiveGate,
    Heartbeat,
    InterruptReason,
    LeaseKeeper,
    Trust,
    next_wait,
)
from .handlers import Handler
from .idempotency import Once, keyed
from .loop_group import beside, was_cancelled
from .registration import KeyOf, WorkerOptions
from .settlement import Settler

_TEXT_LIMIT: Final = 500


class Fetcher:
    """Fetches deliveries from a source, one fetch at a time."""

    def __init__(
        self,
        source: Source,
        broker: Broker,
        *,
        wait: float,
        lease: float,
        gate: ExclusiveGate,
        availability: Availability,
        heartbeat: Heartbeat,
        observe: Observer,
        trust: Trust,
    ) -> None:
        self._source = source
        self._broker = broker
        self._wait = wait
        self._lease = lease
        self._gate = gate
        self._availability = availability
        self._heartbeat = heartbeat
        self._observe = observe
        self._trust = trust
        self._corruption_check = CorruptionCheck(source, calls=availability.calls, observe=observe)
        self._under_way: asyncio.Future[Sequence[Delivery]] | None = None
        self._stopped = False

    async def receive(self, limit: int, *, alone: bool = False) -> Sequence[Delivery]:
        """Return deliveries; wait while the broker is unavailable."""
        wait = 0.0 if alone else self._wait
        self._gate.enter()
        try:
            deliveries = await self._reached(limit, wait, alone=alone)
            deliveries = await self._corruption_check.sorted_out(deliveries)
        finally:
            self._gate.leave()
        if deliveries:
            count = len(deliveries)
            self._observe(Received(mailbox=self._source.mailbox, count=count))
        return self._trust.checked(deliveries)

    def stop(self) -> None:
        """Fetch no more; a fetch in progress releases what it has claimed."""
        self._stopped = True
        if self._under_way is not None:
            self._under_way.cancel()

    async def _reached(self, limit: int, wait: float, *, alone: bool) -> Sequence[Delivery]:
        fetching = self._fetched(limit, wait, alone=alone)
        try:
            return await self._availability.calls.limited("broker", fetching, wait=wait)
        except BackendError:
            # Make it known, and wait until the broker answers again.
            return await self._availability.retry_until_available(
                "broker", lambda: self._fetched(limit, 0.0, alone=alone)
            )

    async def _fetched(self, limit: int, wait: float, *, alone: bool) -> Sequence[Delivery]:
        """Return what the source hands out; nothing when we are stopped meanwhile."""
        self._heartbeat.beat()  # waiting for a broker that is away is a sign of life
        if self._stopped:  # while the broker could not be reached
            return ()
        receiving = self._source.receive(limit=limit, wait=wait, lease=self._lease, alone=alone)
        self._under_way = asyncio.ensure_future(receiving)
        try:
            return await self._under_way
        except asyncio.CancelledError:
            if was_cancelled() or not self._stopped:
                raise
            return ()
        except DeadLetterError:
            raise
        except Exception as error:
            # Client libraries make whatever they can of bytes that were changed.
            await self._reconnect()
            said = f"{plain_name(type(error))}: {text_of(error, _TEXT_LIMIT)}"
            raise Unavailable(f"its answer cannot be read ({said})") from error

    async def _reconnect(self) -> None:
        """Give up connections whose state nobody knows."""
        if isinstance(self._broker, Reconnecting):
            with suppress(Exception):  # whatever it is, the next fetch shows it
                await self._broker.reconnect()


FIRST_FETCH: Final = 10  # until we know how large the messages are
ALONE_FOR: Final = 1.0  # seconds of suspects before the others get their turn


class Worker:
    """Works one mailbox until it is stopped."""

    def __init__(
        self,
        *,
        source: Source,
        handler: Handler,
        options: WorkerOptions,
        broker: Broker,
        letters: LetterStore,
        atomic_burial: AtomicBurial | None,
        ledger: Ledger | None,
        gate: ExclusiveGate,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        keys: Keys = PROCESS_KEYS,
    ) -> None:
        self.name = f"worker {source.mailbox}"
        self.heartbeat = Heartbeat(clock)
        self._source = source
        self._options = options
        self._gate = gate
        self._clock = clock
        self._observe = observe
        self._held: dict[ClaimedDelivery, None] = {}  # in the order they were claimed
        self._opening: set[asyncio.Task[None]] = set()
        self._running = 0
        self._bytes = 0
        self._typical = 0.0  # bytes of a message, as a moving average
        self._changed = asyncio.Event()
        self._patience = ALONE_FOR
        self._company_until = 0.0  # until then suspects have to wait
        context = RuntimeContext(clock, dice, observe)
        self._availability = Availability(source.mailbox, context=context)
        self._fetcher = Fetcher(
            source,
            broker,
            wait=options.wait,
            lease=options.lease,
            gate=gate,
            availability=self._availability,
            heartbeat=self.heartbeat,
            observe=observe,
            trust=Trust(source.features, keys, observe),
        )
        self._once = _once(ledger, source.mailbox, options)
        self._settler = Settler(
            source=source,
            broker=broker,
            letters=letters,
            atomic_burial=atomic_burial,
            policy=options.policy,
            once=self._once,
            availability=self._availability,
            context=context,
            on_settled=self._settled,
            lease=options.lease,
            consumer=options.consumer,
            version=options.version,
            keys=keys,
        )
        self._brake_gate = BrakeGate(
            options.brake, source.mailbox, context=context, version=options.version
        )
        self._brake_log = BrakeLog(
            self._brake_gate, letters, source.mailbox, calls=self._availability.calls, clock=clock
        )
        self._attempts = Attempts(
            mailbox=source.mailbox,
            handler=handler,
            options=options,
            settler=self._settler,
            brake_gate=self._brake_gate,
            context=context,
            on_ended=self._ended,
            keeps_results=source.features.keeps_results,
            on_note=self._settler.note,
        )
        self._handlers = Running(self._attempts.run)
        self._keeper = LeaseKeeper(
            source,
            self._held,
            calls=self._availability.calls,
            clock=clock,
            lease=options.lease,
            time_limit=options.time_limit,
            heartbeat=options.heartbeat,
            on_overdue=self._attempts.overdue,
        )

        self._progress = Progress(
            source.mailbox,
            broker,
            calls=self._availability.calls,
            is_free=self._is_free,
            unstarted=self._unstarted,
        )

    def ready(self) -> str | None:
        """Return why this worker cannot work at the moment; None when it can."""
        if complaint := self._availability.complaint():
            return complaint
        if not self._has_a_slot():
            return "every slot is held by a handler that overstayed its time limit"
        return self._progress.complaint()

    def note(self) -> str | None:
        """Return why nothing is fetched although this worker is ready; None if it is."""
        return self._brake_gate.complaint()

    def presence(self) -> WorkedMailbox:
        """Return what people see of this worker."""
        window = self._brake_gate.window if self._brake_gate.is_open else None
        return WorkedMailbox(
            mailbox=self._source.mailbox,
            slots=self._options.slots,
            in_flight=len(self._held),
            brake=window.text[:LONGEST] if window is not None else "",
            brake_since=window.opened_at if window is not None else None,
            trouble=(self.ready() or "")[:LONGEST],
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish or release what is held."""
        self._observe(WorkerStarted(mailbox=self._source.mailbox, slots=self._options.slots))
        self._handlers = Running(self._attempts.run)  # one that ended starts no more
        helpers = [
            asyncio.create_task(self._settler.run()),
            asyncio.create_task(self._keeper.run()),
            asyncio.create_task(self._progress.run()),
            asyncio.create_task(self._brake_log.run()),
            asyncio.create_task(self._wake_on(stop)),
        ]
        abandoned = 0
        try:
            await beside(self._work(stop), helpers[:-1])
            abandoned = await self._wind_down(self._options.grace)
        except BaseException:
            # Cancelled or failing: release what can be released, and end.
            await self._wind_down(0.0, flush=3.0)
            raise
        finally:
            helpers += self._opening  # still waiting for a ledger out of reach
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._brake_log.end()
            self._handlers.forget()
            self._forget_unstarted(list(self._held))
        self._observe(WorkerStopped(mailbox=self._source.mailbox, abandoned=abandoned))

    async def _work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._has_a_slot():
                self.heartbeat.beat()
            if self._gate.wanted:
                await self._gate.until_free(1.0)
                continue
            if self._suspects_are_due():
                await self._work_suspects(stop)
                continue
            room = self._room()
            if room <= 0:
                await self._change(self._brake_gate.pause())
                continue
            deliveries = await self._fetcher.receive(room)
            if stop.is_set():
                await self._hand_back(deliveries)
                return
            self._start(deliveries)

    def _start(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        self._progress.taken(len(deliveries))
        now = self._clock.monotonic()
        self._gate.enter(len(deliveries))
        self._running += len(deliveries)
        size = 0
        batch = []
        for delivery in deliveries:
            size += len(delivery.message.body)
            held = ClaimedDelivery(delivery, now, stoppable=not self._options.on_threads)
            self._held[held] = None
            batch.append(held)
        self._bytes += size
        mean = size / len(deliveries)
        self._typical += (mean - self._typical) / (8 if self._typical else 1)
        if key_of := self._options.key_of:
            batch = [held for held in batch if self._has_key(held, key_of)]
        if self._once is None:
            self._handlers.start(batch)
        else:
            opening = self._open(self._once, batch)
            self._opening.add(task := asyncio.create_task(opening))
            task.add_done_callback(self._opening.discard)

    def _has_key(self, held: ClaimedDelivery, key_of: KeyOf) -> bool:
        try:
            held.delivery = keyed(held.delivery, key_of)
        except Exception as error:  # noqa: BLE001 -- not our function
            self._attempts.reject(held, error)
            return False
        return True

    async def _open(self, once: Once, batch: Sequence[ClaimedDelivery]) -> None:
        try:
            await once.start(
                batch, self._availability, run=self._handlers.start, skip=self._attempts.skip
            )
        except Exception:
            # An error in code, not an outage: it must not block the slots.
            self._forget_unstarted(batch)
            raise

    def _suspects_are_due(self) -> bool:
        return (
            self._source.mailbox in self._gate.suspects
            and self._clock.monotonic() >= self._company_until
            and self._has_a_slot()
        )

    def _is_free(self) -> bool:
        """Return whether nothing prevents this worker from taking messages."""
        held = self._running + self._attempts.stuck
        return (
            not self._availability.down
            and not self._brake_gate.is_open
            and not self._gate.wanted
            and not self._suspects_are_due()
            and held < self._options.slots
            and len(self._held) < 4 * self._options.slots
            and self._bytes < self._options.max_bytes
        )

    def _unstarted(self) -> int:
        """Return how many we have taken whose handlers have not begun."""
        if self._availability.down:
            return 0
        return sum(held.running and not held.begun for held in self._held)

    def _has_a_slot(self) -> bool:
        """Return whether a handler could start, were nothing else running."""
        return self._attempts.stuck < self._options.slots

    async def _work_suspects(self, stop: asyncio.Event) -> None:
        """Run suspects alone for a while; then the others get as long a turn."""
        began = self._clock.monotonic()
        gate = self._gate.alone(
            self.name, patience=self._patience, stop=stop, beat=self.heartbeat.beat
        )
        async with gate as alone:
            there = self._clock.monotonic()
            waited, limit = there - began, self._options.time_limit
            self._patience = next_wait(self._patience, waited, alone=alone, time_limit=limit)
            if alone:
                # Whoever waited long has as long a turn, and one suspect at least.
                await self._one_by_one(stop, until=there + max(waited, ALONE_FOR))
        now = self._clock.monotonic()
        self._company_until = now + (now - began)

    async def _one_by_one(self, stop: asyncio.Event, *, until: float) -> None:
        mailbox = self._source.mailbox
        while not stop.is_set() and self._clock.monotonic() < until:
            if not self._has_a_slot():
                return
            deliveries = await self._fetcher.receive(1, alone=True)
            if not deliveries:
                self._gate.suspects.discard(mailbox)
                return
            self._start(deliveries)
            while self._held and not stop.is_set():
                self.heartbeat.beat()
                await self._change(1.0)

    def _room(self) -> int:
        """Return how many deliveries we may fetch now."""
        options = self._options
        if self._availability.down or len(self._held) >= 4 * options.slots:
            return 0
        if self._attempts.is_starved:  # it would be blamed for our own state
            return 0
        room = options.slots - self._running - self._attempts.stuck
        # Half of them at a time: while one half runs, the next is on its way.
        room = min(room, max(1, options.slots // 2))
        room = min(room, self._brake_gate.may_fetch(room, self._running))
        if room <= 0:
            return 0
        if not self._typical:
            return min(room, FIRST_FETCH)
        spare = options.max_bytes - self._bytes
        if spare <= 0:
            return 0 if self._held else 1
        return max(1, min(room, int(spare / max(self._typical, 1.0))))

    def _ended(self, held: ClaimedDelivery) -> None:
        held.running = False
        self._running -= 1
        self._bytes -= len(held.delivery.message.body)
        self._gate.leave()
        self._changed.set()

    def _forget_unstarted(self, batch: Sequence[ClaimedDelivery]) -> None:
        """Leave to their leases those whose keys were never claimed."""
        for held in batch:
            if held.running and held.task is None:
                self._ended(held)
                self._settled(held)

    def _settled(self, held: ClaimedDelivery) -> None:
        self._held.pop(held, None)
        self._changed.set()

    async def _change(self, within: float) -> None:
        """Wait until something ended or was settled, or the time is over."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._changed.set()
        self._fetcher.stop()

    async def _hand_back(self, deliveries: Sequence[Delivery]) -> None:
        now = self._clock.monotonic()
        for delivery in deliveries:
            held = ClaimedDelivery(delivery, now)
            held.running = False
            self._held[held] = None
            self._attempts.hand_back(held)

    async def _wind_down(self, grace: float, *, flush: float = 30.0) -> int:
        """Let what runs finish within the grace; hand back what can be."""
        deadline = self._clock.monotonic() + grace
        while self._running and (left := deadline - self._clock.monotonic()) > 0:
            self.heartbeat.beat()
            await self._change(min(left, 1.0))
        stoppable = not self._options.on_threads
        if stoppable:
            for held in list(self._held):
                held.interrupt(InterruptReason.STOPPED)
        # A moment more for those that were interrupted, and for the last flush.
        deadline = self._clock.monotonic() + flush
        while self._clock.monotonic() < deadline:
            self.heartbeat.beat()
            unsettled = any(not held.running for held in self._held)
            if not unsettled and not (stoppable and self._running):
                break
            await self._change(0.5)
        # A thread cannot be stopped. What still runs there is not handed back:
        # its lease runs out, and nobody runs it beside a handler of ours.
        return self._running + self._attempts.stuck


def _once(ledger: Ledger | None, mailbox: str, options: WorkerOptions) -> Once | None:
    if not options.idempotent:
        return None
    if ledger is None:
        raise ConfigError(
            f"the handler of {mailbox} is idempotent, but there is no ledger: use an "
            "engine that keeps one, or leave idempotent=True out"
        )
    # The message itself may take over its claim at once, so a long lease costs
    # nothing; it only keeps other messages with the same key away meanwhile.
    lease = options.lease + (options.time_limit or 3600.0)
    return Once(
        ledger,
        mailbox,
        lease=lease,
        ttl=options.ledger_ttl,
        bodies_may_differ=options.bodies_may_differ,
    )
