"""
The queue server without its wire: produce, lease, complete and retry for many clients.

Clients that lease wait until there are items. Requests that arrive while a transaction is
in progress are carried out together in the next one.

A loop sweeps the store when something falls due: leases, schedules, dead items. The store
says when the next item is due, and the loop sleeps until then. While any item is due later,
the loop also sweeps at intervals, since another server of the same store may have died
with leases of its own.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final, Self

from msgspec import Struct

from deadletter.core.backoff import Exponential
from deadletter.core.errors import BackendError, ConfigError, Conflict
from deadletter.core.events import (
    BackInReach,
    ClockJumped,
    ItemDeleted,
    ItemMoved,
    LoopDied,
    Observer,
    OutOfReach,
)
from deadletter.ports import Clock, Dice, ItemStore, SweepResult
from deadletter.runtime.loop_group import KeptAlive

from .model import (
    Completion,
    DeadItem,
    Death,
    Item,
    LeasedItems,
    LeaseQueue,
    NewItem,
    Rejection,
    RejectionReason,
    RetryBatch,
)
from .waiting_requests import SERVICE_SHUTTING_DOWN, RequestBatcher, ShuttingDown, WaitingLine

NAME: Final = "items"  # of the store, in events about its availability
UNKNOWN_DEADLINE: Final = 1.0  # seconds until a sweep after a change of unknown deadlines
INTERVAL: Final = 10.0  # seconds between sweeps for items of other servers
RETRIES: Final = Exponential(0.1, factor=2.0, cap=5.0, jitter=0.5)
# The clock of the store may be behind ours: then a sweep comes too early.
TOO_EARLY: Final = Exponential(0.005, factor=2.0, cap=1.0)


class ItemSweep:
    """A loop that sweeps the store when something falls due."""

    def __init__(
        self,
        store: ItemStore,
        *,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        on_ready: Callable[[str], None],
        on_dead: Callable[[DeadItem], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._on_ready = on_ready
        self._on_dead = on_dead
        self._next_at: datetime | None = None
        self._sweep_at: float | None = None  # by the monotonic clock
        self._changed = asyncio.Event()
        self._too_early = 0  # sweeps in a row that found nothing to do
        self._shorten_at = -math.inf  # when to look for misdated leases, monotonic

    def sweep_at(self, at: datetime) -> None:
        """Sweep at this time, when something falls due."""
        if self._next_at is None or at < self._next_at:
            self._next_at = at
            self._changed.set()

    def sweep_soon(self, within: float = UNKNOWN_DEADLINE) -> None:
        """Sweep within some seconds: only the store knows the deadlines of a change."""
        at = self._clock.monotonic() + within
        if self._sweep_at is None or at < self._sweep_at:
            self._sweep_at = at
            self._changed.set()

    async def run(self) -> None:
        """Sweep and sleep until cancelled; errors of the store do not end the loop."""
        while True:
            self._next_at = self._sweep_at = None
            self._report(await self._sweep())
            await self._sleep()

    def _report(self, swept: SweepResult) -> None:
        for dead in swept.dead:
            self._on_dead(dead)
        for queue in swept.ready:
            self._on_ready(queue)
        if swept.more:
            self.sweep_soon(0.0)
        if swept.next_at is not None:
            self.sweep_at(swept.next_at)
            self.sweep_soon(INTERVAL)
        is_due = swept.next_at is not None and swept.next_at <= self._clock.now()
        has_changed = bool(swept.dead or swept.ready or swept.more)
        self._too_early = self._too_early + 1 if is_due and not has_changed else 0

    async def _sleep(self) -> None:
        if self._too_early:
            await asyncio.sleep(TOO_EARLY.delay(self._too_early, self._dice.draw()))
        while (delay := self._delay()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if math.isinf(delay) else delay):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _delay(self) -> float:
        delays = [math.inf]
        if self._next_at is not None:
            delays.append((self._next_at - self._clock.now()).total_seconds())
        if self._sweep_at is not None:
            delays.append(self._sweep_at - self._clock.monotonic())
        return min(delays)

    async def _shorten_leases(self) -> None:
        """Shorten misdated leases, but not more often than at each interval."""
        if self._clock.monotonic() < self._shorten_at:
            return
        found = await self._store.shorten_leases()
        self._shorten_at = self._clock.monotonic() + INTERVAL
        if found.leases:
            self._observe(
                ClockJumped(mailbox="", seconds=0.0, shortened=found.leases, ahead=found.ahead)
            )

    async def _sweep(self) -> SweepResult:
        tries = 0
        since = self._clock.monotonic()
        while True:
            try:
                await self._shorten_leases()
                swept = await self._store.sweep()
            except BackendError as error:
                tries += 1
                self._observe(OutOfReach(mailbox="", what=NAME, text=str(error), tries=tries))
            except Exception as error:  # noqa: BLE001 -- a bug must not stop the loop
                tries += 1
                self._observe(LoopDied(mailbox="", loop=NAME, text=repr(error)))
            else:
                break
            await asyncio.sleep(RETRIES.delay(tries, self._dice.draw()))
        if tries:
            seconds = self._clock.monotonic() - since
            self._observe(BackInReach(mailbox="", what=NAME, seconds=seconds))
        return swept


# Sizes are bytes of produced items, and numbers of items for other requests.
PRODUCED_AT_ONCE: Final = 8 * 1024 * 1024
PRODUCED_WAITING: Final = 64 * 1024 * 1024
ITEMS_AT_ONCE: Final = 5_000
ITEMS_WAITING: Final = 100_000
OVERHEAD: Final = 100  # bytes of an item besides its payload

MAX_IDLE_QUEUES: Final = 1024  # kept although no client waits
DEFAULT_TIMEOUT: Final = 900.0  # seconds that a request waits for its turn
_CAUSES: Final = {
    Death.ATTEMPTS: "max_attempts is reached",
    Death.EXPIRED: "expire_timeout is over",
    Death.ASKED: "its consumer declared it dead",
}


class RequestCounts(Struct, frozen=True):
    """Numbers of requests to one queue that wait here."""

    produce: int = 0
    lease: int = 0
    complete: int = 0
    in_progress: int = 0


class QueueRequests:
    """Requests of clients to one queue, by kind."""

    def __init__(
        self,
        queue: str,
        store: ItemStore,
        *,
        on_leased: Callable[[datetime], None],
        on_dead: Callable[[DeadItem], None],
    ) -> None:
        self._queue = queue
        self._store = store
        self._on_leased = on_leased
        self._on_dead = on_dead
        self.line = WaitingLine(self._lease)
        self.produce: RequestBatcher[Sequence[NewItem], None] = RequestBatcher(
            self._produce, most=PRODUCED_AT_ONCE, limit=PRODUCED_WAITING
        )
        self.complete: RequestBatcher[Completion, Rejection | None] = RequestBatcher(
            partial(store.complete, queue), most=ITEMS_AT_ONCE, limit=ITEMS_WAITING
        )
        self.retry: RequestBatcher[RetryBatch, Rejection | Sequence[DeadItem]] = RequestBatcher(
            self._retry, most=ITEMS_AT_ONCE, limit=ITEMS_WAITING
        )

    @property
    def is_idle(self) -> bool:
        """Return whether no request waits or is in progress."""
        return (
            self.line.is_idle
            and self.produce.is_idle
            and self.complete.is_idle
            and self.retry.is_idle
        )

    @property
    def counts(self) -> RequestCounts:
        """Return the numbers of waiting requests."""
        batched = self.produce.in_progress + self.complete.in_progress + self.retry.in_progress
        return RequestCounts(
            produce=self.produce.waiting,
            lease=self.line.waiting,
            complete=self.complete.waiting,
            in_progress=self.line.in_progress + batched,
        )

    async def drained(self) -> None:
        """Wait until everything in progress is done."""
        await self.line.drained()
        await self.produce.drained()
        await self.complete.drained()
        await self.retry.drained()

    async def _produce(self, batches: Sequence[Sequence[NewItem]]) -> Sequence[None]:
        await self._store.produce(self._queue, batches)
        self.line.wake()
        return [None] * len(batches)

    async def _lease(self, wants: Sequence[int]) -> Sequence[LeasedItems]:
        leased = await self._store.lease(self._queue, wants)
        deadlines = [one.items[0].lease_deadline for one in leased if one.items]
        if earliest := min(filter(None, deadlines), default=None):
            self._on_leased(earliest)
        return leased

    async def _retry(
        self, batches: Sequence[RetryBatch]
    ) -> Sequence[Rejection | Sequence[DeadItem]]:
        answers = await self._store.retry(self._queue, batches)
        # Dead items are reported here, since a client that has gone reads no answer; and
        # on their own, since an observer that raises must not fail the request.
        report = asyncio.get_running_loop().call_soon
        for answer in answers:
            if not isinstance(answer, Rejection):
                for dead in answer:
                    report(self._on_dead, dead)
        return answers


class QueueService:
    """
    The queue server without its wire.

    Use it as a context manager: within it, due items are swept. Errors of the store are
    raised; a request is applied as a whole or not at all.
    """

    def __init__(self, store: ItemStore, *, clock: Clock, dice: Dice, observe: Observer) -> None:
        self.store = store
        self.clock = clock
        self._observe = observe
        self._queues: dict[str, QueueRequests] = {}
        self._is_closed = False
        self._sweep = ItemSweep(
            store,
            clock=clock,
            dice=dice,
            observe=observe,
            on_ready=self._wake,
            on_dead=self._report_dead,
        )
        self._loop = KeptAlive(
            "sweep", partial(_run_until_cancelled, self._sweep.run), clock=clock, observe=observe
        )
        self._task: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> Self:
        self.store.on_ready(self._on_ready)
        never = asyncio.Event()  # the loop is cancelled
        self._task = asyncio.create_task(self._loop.run(never))
        await asyncio.sleep(0)  # let the loop begin
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def problem(self) -> str | None:
        """Return why due items are not swept, or None while they are."""
        return None if self._loop.trouble is None else f"sweep: {self._loop.trouble}"

    async def stop(self) -> None:
        """
        Send waiting clients away, finish requests in progress, and accept no new ones.

        May be called more than once, and before a server waits for its requests to end.
        """
        self._is_closed = True
        queues = list(self._queues.values())
        for queue in queues:
            queue.line.close()
        for queue in queues:
            await queue.drained()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def produce(
        self, queue: str, items: Sequence[NewItem], *, within: float = DEFAULT_TIMEOUT
    ) -> None:
        """Add items; they are durable when this returns."""
        size = sum(len(item.payload) for item in items) + OVERHEAD * len(items)
        await self._requests(queue).produce.ask(items, size=size, within=within)
        for item in items:
            if item.enqueue_at is not None:
                self._sweep.sweep_at(item.enqueue_at)
        self._sweep.sweep_soon()

    def lease(
        self, queue: str, client: str, want: int, *, within: float
    ) -> asyncio.Future[LeasedItems]:
        """
        Wait for items: at least one, at most `want`.

        Raises TryAgain when there were none in time. Cancel the future when the client
        has gone.
        """
        return self._requests(queue).line.join(client, want, within=within)

    async def complete(
        self, queue: str, completion: Completion, *, within: float = DEFAULT_TIMEOUT
    ) -> None:
        """Delete leased items; raises ConfigError or Conflict if the request is rejected."""
        requests = self._requests(queue).complete
        rejection = await requests.ask(completion, size=len(completion.ids), within=within)
        if rejection is not None:
            raise _error_of(rejection, completion.partition)

    async def retry(
        self, queue: str, batch: RetryBatch, *, within: float = DEFAULT_TIMEOUT
    ) -> None:
        """Return leased items; raises ConfigError or Conflict if the request is rejected."""
        requests = self._requests(queue).retry
        answer = await requests.ask(batch, size=len(batch.items), within=within)
        if isinstance(answer, Rejection):
            raise _error_of(answer, batch.partition)
        for item in batch.items:
            if item.retry_at is not None:
                self._sweep.sweep_at(item.retry_at)
        self._sweep.sweep_soon()
        self._wake(queue)

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """Add items as they are; return those that were added."""
        added = await self.store.import_items(queue, partition, items)
        self.look(queue)
        return added

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change the options of a queue."""
        await self.store.update_queue(queue)
        self.look(queue.name)

    async def delete_queue(self, name: str, *, force: bool) -> int:
        """Delete a queue and return its number of items; waiting clients get an error."""
        deleted = await self.store.delete_queue(name, force=force)
        self._wake(name)
        return deleted

    def counts(self, queue: str) -> RequestCounts:
        """Return the numbers of requests to a queue that wait here."""
        requests = self._queues.get(queue)
        return RequestCounts() if requests is None else requests.counts

    def look(self, queue: str) -> None:
        """Sweep now, and ask the store again on behalf of waiting clients."""
        self._sweep.sweep_soon(0.0)
        self._wake(queue)

    def _requests(self, queue: str) -> QueueRequests:
        if self._is_closed:
            raise ShuttingDown(SERVICE_SHUTTING_DOWN)
        found = self._queues.get(queue)
        if found is None:
            if len(self._queues) >= MAX_IDLE_QUEUES:  # clients choose the names
                self._queues = {n: q for n, q in self._queues.items() if not q.is_idle}
            found = self._queues[queue] = QueueRequests(
                queue, self.store, on_leased=self._sweep.sweep_at, on_dead=self._report_dead
            )
        return found

    def _wake(self, queue: str) -> None:
        requests = self._queues.get(queue)
        if requests is not None and not self._is_closed:
            requests.line.wake()

    def _on_ready(self, queue: str) -> None:
        """Wake clients, and sweep: the store may have new deadlines as well."""
        self._wake(queue)
        self._sweep.sweep_soon()

    def _report_dead(self, dead: DeadItem) -> None:
        queue, item, death = dead.queue, dead.id, dead.death.value
        if dead.to is None:
            text = f"{_CAUSES[dead.death]}, and {queue} has no dead_queue"
            self._observe(ItemDeleted(mailbox=queue, item_id=item, death=death, text=text))
            return
        self._observe(ItemMoved(mailbox=queue, item_id=item, death=death, to=dead.to))
        self._wake(dead.to)


async def _run_until_cancelled(run: Callable[[], Awaitable[None]], _: asyncio.Event) -> None:
    await run()


def _error_of(rejection: Rejection, partition: int) -> ConfigError | Conflict:
    if rejection.reason is RejectionReason.NOT_LEASED:
        return Conflict(f"item is not leased; {rejection.id!a} has to be leased first")
    if rejection.reason is RejectionReason.PARTITION:
        return ConfigError(f"invalid partition; there is no partition {partition}")
    if rejection.reason is RejectionReason.REPEATED:
        return ConfigError(f"invalid id; the request names {rejection.id!a} more than once")
    return ConfigError(f"invalid id; there is no item {rejection.id!a}")
