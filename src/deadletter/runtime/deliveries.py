"""
Deliveries that a loop has received: checked fields, leases, time limits, and suspects.

- `Trust` removes fields that somebody else could have written.
- `LeaseKeeper` extends leases while there are signs of life: a process whose event loop
  is stuck extends nothing, and a handler registered with a heartbeat must beat itself.
  It also checks time limits, so that no attempt needs its own timer.
- `ExclusiveGate` runs a suspect alone. After a worker died, any of the deliveries it held
  may have killed it. All workers of a process share one gate, which also remembers the
  mailboxes that have suspects waiting.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum
from threading import Lock
from typing import Final

from msgspec import Struct, structs

from deadletter.core.errors import BackendError
from deadletter.core.events import HeadersIgnored, Observer, OutOfReach
from deadletter.core.message import Delivery, has_invalid_limit
from deadletter.core.signing import Keys
from deadletter.intake.dialects import is_lineage_believed
from deadletter.ports import Clock, Features, Released, Source

from .availability import Calls


class InterruptReason(Enum):
    """Reasons for interrupting a running handler."""

    TIMED_OUT = 1  # it overstayed its time limit
    STOPPED = 2  # we are shutting down
    LOST = 3  # the lease is gone: whatever it does no longer counts


class HandlerNote(Struct, frozen=True, tag="noted"):
    """Progress or a log line that a running handler reports."""

    progress: bytes | None = None  # JSON
    line: str | None = None


class ClaimedDelivery:
    """
    One claimed delivery.

    It is `running` until its handler has ended, and held until it is settled;
    its lease is kept alive all that time.
    """

    __slots__ = (
        *("beaten", "begun", "delivery", "interrupted", "running", "started", "stoppable"),
        *("on_note", "task"),
    )

    def __init__(self, delivery: Delivery, now: float, *, stoppable: bool = True) -> None:
        self.delivery = delivery
        self.started = now
        self.beaten = now
        self.begun = False
        self.running = True
        self.interrupted: InterruptReason | None = None
        self.stoppable = stoppable  # a thread is not: it runs on, and has its slot
        self.task: asyncio.Task[None] | None = None
        self.on_note: Callable[[ClaimedDelivery, HandlerNote], None] | None = None

    def note(self, noted: HandlerNote) -> None:
        """Pass on a note of the handler; may be called from any thread."""
        if self.on_note is not None:
            self.on_note(self, noted)

    def begin(self, now: float) -> None:
        """Start the time of the handler; waiting for its key does not count."""
        self.begun = True
        self.started = self.beaten = now

    def beat(self, now: float) -> None:
        """Record a sign of life of the handler."""
        self.beaten = now

    def interrupt(self, reason: InterruptReason) -> None:
        """Cancel the handler, once, and remember the reason."""
        if self.interrupted is None and self.running:
            self.interrupted = reason
            # A task that is cancelled before its first step never takes it, and
            # nobody would notice its end; it checks `interrupted` by itself.
            if self.task is not None and self.begun and self.stoppable:
                self.task.cancel()


class LeaseKeeper:
    """Extends leases, and interrupts handlers that exceed a limit or lost their lease."""

    def __init__(
        self,
        source: Source,
        held: Collection[ClaimedDelivery],
        *,
        calls: Calls,
        clock: Clock,
        lease: float,
        time_limit: float | None,
        heartbeat: float | None,
        on_overdue: Callable[[ClaimedDelivery], None],
    ) -> None:
        self._source = source
        self._held = held
        self._calls = calls
        self._clock = clock
        self._lease = lease
        self._time_limit = time_limit
        self._heartbeat = heartbeat
        self._on_overdue = on_overdue
        self._extended = clock.monotonic()

    async def run(self) -> None:
        """Extend leases and check time limits until cancelled."""
        while True:
            await asyncio.sleep(self._pause())
            now = self._clock.monotonic()
            if self._time_limit is not None:
                for held in list(self._held):
                    at_work = held.begun and held.running
                    if at_work and now - held.started >= self._time_limit:
                        self._on_overdue(held)
            if now - self._extended >= self._lease / 3:
                await self._extend(now)

    def _pause(self) -> float:
        pause = self._lease / 6
        if self._time_limit is not None:
            pause = min(pause, self._time_limit / 5)
        return max(pause, 0.01)

    async def _extend(self, now: float) -> None:
        alive = [held for held in self._held if self._is_alive(held, now)]
        self._extended = now
        if not alive:
            return
        try:
            deliveries = [held.delivery for held in alive]
            extending = self._source.extend(deliveries, lease=self._lease)
            ours = await self._calls.limited("broker", extending)
        except Exception:  # noqa: BLE001 -- any error means that leases may not be extended
            # The broker is unavailable. Leases may be lost by now, which settling
            # finds out. Try again sooner.
            self._extended = now - self._lease / 6
            return
        for held, mine in zip(alive, ours, strict=True):
            if not mine:
                held.interrupt(InterruptReason.LOST)

    def _is_alive(self, held: ClaimedDelivery, now: float) -> bool:
        if not held.begun or not held.running:  # waiting to start, or to be settled
            return True
        if held.interrupted in (InterruptReason.TIMED_OUT, InterruptReason.LOST):
            return False
        return self._heartbeat is None or now - held.beaten < self._heartbeat


class Heartbeat:
    """
    The last sign of life of a loop, for use from any thread.

    Callbacks run after every beat, in the order they were added, on the thread that
    beats. Their errors are ignored.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._last = clock.monotonic()
        self._callbacks: list[Callable[[], object]] = []

    def beat(self) -> None:
        """Record a sign of life."""
        with self._lock:
            self._last = self._clock.monotonic()
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            with suppress(Exception):
                callback()

    def elapsed(self) -> float:
        """Return the seconds since the last beat, or since the beginning."""
        with self._lock:
            return self._clock.monotonic() - self._last

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call this after every beat from now on."""
        with self._lock:
            self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Remove a callback; raise ValueError if it was never added."""
        with self._lock:
            self._callbacks.remove(callback)


SHORTEST_PATIENCE: Final = 1.0  # seconds
LONGEST_PATIENCE: Final = 3600.0  # ...unless a handler may take longer
_TICK: Final = 1.0  # seconds between signs of life while waiting


def next_wait(
    patience: float, waited: float, *, alone: bool, time_limit: float | None = None
) -> float:
    """
    Return the seconds to wait for exclusive access the next time.

    That is twice the last limit if it was too short, else twice what was needed. It never
    exceeds twice the time limit, or an hour if that is more.
    """
    wanted = 2 * (waited if alone else patience)
    longest = max(LONGEST_PATIENCE, 2 * (time_limit or 0.0))
    return min(max(wanted, SHORTEST_PATIENCE), longest)


class ExclusiveGate:
    """A gate: many may pass together, or one alone."""

    def __init__(self) -> None:
        self.suspects: set[str] = set()
        self._active = 0
        self._alone: str | None = None
        self._changed = asyncio.Event()

    @property
    def wanted(self) -> bool:
        """Return whether somebody has, or waits for, exclusive access: nothing may start then."""
        return self._alone is not None

    def enter(self, count: int = 1) -> None:
        """Count deliveries that are in flight from now on."""
        self._active += count

    def leave(self, count: int = 1) -> None:
        """Count deliveries that have ended."""
        self._active -= count
        if self._alone is not None:
            self._notify()

    async def until_free(self, within: float) -> None:
        """Wait until nobody has or wants exclusive access, at most `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._alone is not None:
                    await self._changed.wait()

    @asynccontextmanager
    async def alone(
        self,
        who: str,
        *,
        patience: float,
        stop: asyncio.Event | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[bool]:
        """
        Wait until nothing is in flight, and start nothing else while the block runs.

        Yields whether that succeeded within `patience` seconds, before `stop` was set.
        Nothing new starts while it waits, so the wait is limited. `beat` is called every
        second: waiting is a sign of life.
        """
        if self._alone is not None:
            yield False
            return
        self._alone = who
        stopped = stop or asyncio.Event()
        hearing = asyncio.ensure_future(stopped.wait())
        hearing.add_done_callback(lambda _: self._notify())
        try:
            await self._emptied(patience, stopped, beat)
            yield self._active == 0 and not stopped.is_set()
        finally:
            hearing.cancel()
            self._alone = None
            self._notify()

    async def _emptied(
        self, patience: float, stopped: asyncio.Event, beat: Callable[[], None]
    ) -> None:
        """Wait until nothing is in flight, the time is over, or we are stopped."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._active and not stopped.is_set():
            beat()
            left = deadline - loop.time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _TICK)):
                    await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Trust:
    """
    Remove fields from deliveries that somebody else could have written.

    Engines that own their fields need no check of lineages. In a dead queue, copies
    that its broker moved there from the mailboxes `dead_queue_of` are trusted.
    """

    def __init__(
        self, features: Features, keys: Keys, observe: Observer, dead_queue_of: Collection[str] = ()
    ) -> None:
        self._needed = not features.owns_fields
        self._keys = keys
        self._dead_queue_of = dead_queue_of
        self._observe = observe

    def checked(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the deliveries without unsigned lineages; report ignored headers."""
        for one in deliveries:
            if one.message.headers and has_invalid_limit(one.message):
                self._report(one, "max-attempts")
        if not self._needed:
            return deliveries
        return [
            one if one.message.lineage is None and not one.unsigned else self._checked(one)
            for one in deliveries
        ]

    def _checked(self, delivery: Delivery) -> Delivery:
        message = delivery.message
        if delivery.unsigned:
            self._report(delivery, "attempts")
        if message.lineage is None or is_lineage_believed(
            message, delivery.mailbox, self._keys, dead_queue_of=self._dead_queue_of
        ):
            return delivery
        key = self._keys.unknown(message.lineage.signature)
        self._report(delivery, "lineage", key)
        return structs.replace(delivery, message=structs.replace(message, lineage=None))

    def _report(self, delivery: Delivery, what: str, key: str = "") -> None:
        id_, mailbox = delivery.message.id, delivery.mailbox
        self._observe(HeadersIgnored(mailbox=mailbox, message_id=id_, what=what, key=key))


_REMEMBERED: Final = 1000  # contents that did not match
_PAUSE: Final = 0.2  # seconds until they are read again


class CorruptionCheck:
    """
    Detection of messages that were changed in transit.

    Such a message is released, and is intact when it is received again. A message that
    arrives changed in the same way twice is stored that way: it is passed on, and buried
    as corrupt without being handled.
    """

    def __init__(self, source: Source, *, calls: Calls, observe: Observer) -> None:
        self._source = source
        self._calls = calls
        self._observe = observe
        self._seen: dict[int, None] = {}  # oldest first

    async def sorted_out(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the intact deliveries; release the others without charging an attempt."""
        if not any(delivery.corrupt for delivery in deliveries):
            return deliveries
        doubtful = [d for d in deliveries if d.corrupt and not self._is_certain(d)]
        if not doubtful:
            return deliveries
        self._observe(
            OutOfReach(
                mailbox=self._source.mailbox,
                what="broker",
                text=(
                    f"{len(doubtful)} of {len(deliveries)} messages arrived changed"
                    " (checksum): they are read again"
                ),
                tries=1,
            )
        )
        back = [Released(one, _PAUSE, None, charged=False) for one in doubtful]
        with suppress(BackendError):  # their leases run out, and they come again
            await self._calls.limited("broker", self._source.settle(back))
        returned = {id(one) for one in doubtful}
        return [one for one in deliveries if id(one) not in returned]

    def _is_certain(self, delivery: Delivery) -> bool:
        message = delivery.message
        content = hash((message.id, message.body, message.headers))
        if content in self._seen:
            return True
        while len(self._seen) >= _REMEMBERED:
            self._seen.pop(next(iter(self._seen)))
        self._seen[content] = None
        return False
