"""Items of the queue server in the file."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from deadletter.office.transactions.operations import run_now
from deadletter.queue_server.item_store import SteppedItems, Transaction
from deadletter.queue_server.model import Completion, Item, Rejection, item_id, item_number
from deadletter.queue_server.plans import StoredQueue, item_numbers
from deadletter.queue_server.transactions import LeaseOperations

from .engine import Database, is_brief
from .items_operations import LeaseScan, SqliteItemOperations
from .waking import Bell, Waking

T = TypeVar("T")

_PAGE: Final = 1_000  # items in one answer of SQLite, which must not be too long
_ROWS_PER_ITEM: Final = 4  # the work of writing one item, counted in rows

# An item is waiting now, or nobody knows when one will be.
_WAITING: Final = """
SELECT 0 FROM lease_partitions AS p WHERE p.queue = ? AND EXISTS (
    SELECT 1 FROM items WHERE items.queue = p.queue AND items.partition = p.partition
    AND state = 0 AND held = 0 AND seq >= p.head AND (due IS NULL OR due > ?))
LIMIT 1
"""


class ItemBell(Bell):
    """Rings when another process has put something into a queue."""

    def __init__(self, queue: int, tell: Callable[[], None]) -> None:
        super().__init__(queue, alone=False)
        self._tell = tell

    def question(self, now: int) -> tuple[str, tuple[int, ...]]:
        """Return the select that finds something to lease."""
        return _WAITING, (self.mailbox, now)

    def ring(self) -> None:
        """Call back on the event loop; may be called from any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._tell)


class Readiness:
    """
    Callbacks for queues that may have something to lease.

    The file is watched for those queues in which a client found nothing.
    """

    def __init__(self, db: Database) -> None:
        self._waking = Waking(db.reader(), db.clock)
        self._callbacks: list[Callable[[str], None]] = []
        self._bells: dict[str, ItemBell] = {}

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the names of queues."""
        self._callbacks.append(tell)

    def announce(self, names: Iterable[str]) -> None:
        """Call back for these queues."""
        for name in names:
            bell = self._bells.pop(name, None)
            if bell is not None:
                self._waking.discard(bell)
            for tell in self._callbacks:
                tell(name)

    def watch(self, name: str, queue: int) -> None:
        """Watch the file for a queue in which a client found nothing."""
        if self._callbacks and name not in self._bells:
            bell = ItemBell(queue, lambda: self.announce([name]))
            self._bells[name] = bell
            self._waking.add(bell)

    def stop(self) -> None:
        """Stop watching. Blocks."""
        self._waking.stop()


class _NotAllLeased(Exception):
    """A request of the batch is not valid."""


class SqliteItems(SteppedItems):
    """Items in the file, for any number of processes."""

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db
        self._ready = Readiness(db)
        self._scan = LeaseScan()

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Rejection | None]:
        """Delete leased items for good: in one statement if all requests are valid."""
        try:
            await self._db.write(
                lambda c: run_now(_complete_all(self._operations(c), queue, requests)),
                brief=is_brief(_ROWS_PER_ITEM * sum([len(one.ids) for one in requests])),
            )
        except _NotAllLeased:
            return await super().complete(queue, requests)
        return [None] * len(requests)

    async def items(
        self, queue: str, partition: int, *, pivot: str = "", limit: int, scheduled: bool = False
    ) -> Sequence[Item]:
        """Return items in order, a page at a time."""
        found: list[Item] = []
        while (missing := limit - len(found)) > 0:
            size = min(missing, _PAGE)
            page = await super().items(
                queue, partition, pivot=pivot, limit=size, scheduled=scheduled
            )
            found += page
            if len(page) < size:
                break
            pivot = item_id((item_number(page[-1].id) or 0) + 1)
        return found

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of a queue that may have something to lease."""
        self._ready.on_ready(tell)

    def stop(self) -> None:
        """Stop watching for changes by other processes. Blocks."""
        self._ready.stop()

    async def _write(
        self,
        transaction: Transaction[LeaseOperations, T],
        *,
        items: int | None = None,
        size: int = 0,
    ) -> T:
        return await self._db.write(
            lambda c: run_now(transaction(self._operations(c))),
            brief=items is not None and is_brief(_ROWS_PER_ITEM * items, size),
        )

    async def _read(self, transaction: Transaction[LeaseOperations, T]) -> T:
        return await self._db.read(lambda c: run_now(transaction(self._operations(c))))

    def _announce(self, queues: Iterable[str]) -> None:
        self._ready.announce(queues)

    def _watch(self, queue: StoredQueue) -> None:
        self._ready.watch(queue.queue.name, queue.number)

    def _operations(self, connection: sqlite3.Connection) -> SqliteItemOperations:
        return SqliteItemOperations(connection, self._db.clock, self._scan)


async def _complete_all(
    operations: SqliteItemOperations, name: str, requests: Sequence[Completion]
) -> None:
    """Delete the items of all requests, or raise: then the transaction is rolled back."""
    queue = await operations.queue(name)
    by_partition: dict[int, list[int]] = {}
    for request in requests:
        numbers = item_numbers(request.ids)
        if len(numbers) != len(request.ids):
            raise _NotAllLeased
        by_partition.setdefault(request.partition, []).extend(numbers)
    for partition, numbers in by_partition.items():
        if not 0 <= partition < queue.queue.partitions:
            raise _NotAllLeased
        if operations.delete_leased(queue, partition, numbers) != len(numbers):
            raise _NotAllLeased
