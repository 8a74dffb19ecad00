"""Items of the queue server in memory."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from deadletter.office.transactions.operations import run_now
from deadletter.ports.features import Clock, Dice
from deadletter.queue_server.item_store import SteppedItems, Transaction
from deadletter.queue_server.plans import StoredQueue
from deadletter.queue_server.transactions import LeaseOperations

from .items_operations import MemoryItemOperations

T = TypeVar("T")

_START: Final = 1 << 61  # each store starts to count at random, so that ids differ


class MemoryItems(SteppedItems):
    """Items of one process and one event loop."""

    def __init__(self, *, clock: Clock, dice: Dice) -> None:
        self._operations = MemoryItemOperations(clock, int(dice.draw() * _START))
        self._callbacks: list[Callable[[str], None]] = []

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of a queue that may have something to lease."""
        self._callbacks.append(tell)

    async def _write(
        self,
        transaction: Transaction[LeaseOperations, T],
        *,
        items: int | None = None,
        size: int = 0,
    ) -> T:
        return run_now(transaction(self._operations))

    async def _read(self, transaction: Transaction[LeaseOperations, T]) -> T:
        return run_now(transaction(self._operations))

    def _announce(self, queues: Iterable[str]) -> None:
        for queue in queues:
            for tell in self._callbacks:
                tell(queue)

    def _watch(self, queue: StoredQueue) -> None:
        """Do nothing: there is one process only."""
