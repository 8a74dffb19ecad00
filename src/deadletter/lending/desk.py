"""What is asked of one queue: four kinds of requests, gathered by kind."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from deadletter.core.items import (
    Completion,
    Denial,
    Departed,
    Leased,
    NewItem,
    Retrial,
)
from deadletter.ports import ItemStore

from .gathering import Gathering
from .line import Line

# Sizes are bytes for what is produced, and numbers of items for the rest.
PRODUCED_AT_ONCE: Final = 8 * 1024 * 1024
PRODUCED_WAITING: Final = 64 * 1024 * 1024
ITEMS_AT_ONCE: Final = 5_000
ITEMS_WAITING: Final = 100_000
OVERHEAD: Final = 100  # bytes of an item without its payload


class Desk:
    """Where the clients of one queue are served."""

    def __init__(
        self, queue: str, store: ItemStore, on_leased: Callable[[datetime], None]
    ) -> None:
        self._queue = queue
        self._store = store
        self._on_leased = on_leased
        self.line = Line(self._lease)
        self.produce: Gathering[Sequence[NewItem], None] = Gathering(
            self._produce, most=PRODUCED_AT_ONCE, limit=PRODUCED_WAITING
        )
        self.complete: Gathering[Completion, Denial | None] = Gathering(
            lambda asked: store.complete(queue, asked),
            most=ITEMS_AT_ONCE,
            limit=ITEMS_WAITING,
        )
        self.retry: Gathering[Retrial, Denial | Sequence[Departed]] = Gathering(
            lambda asked: store.retry(queue, asked),
            most=ITEMS_AT_ONCE,
            limit=ITEMS_WAITING,
        )

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything."""
        return (
            self.line.is_idle
            and self.produce.is_idle
            and self.complete.is_idle
            and self.retry.is_idle
        )

    @property
    def under_way(self) -> int:
        """Requests being carried out."""
        gathered = self.produce.under_way + self.complete.under_way
        return self.line.under_way + gathered + self.retry.under_way

    async def drained(self) -> None:
        """Wait until everything under way is done."""
        await self.line.drained()
        await self.produce.drained()
        await self.complete.drained()
        await self.retry.drained()

    async def _produce(self, asked: Sequence[Sequence[NewItem]]) -> Sequence[None]:
        await self._store.produce(self._queue, asked)
        self.line.wake()
        return [None] * len(asked)

    async def _lease(self, wants: Sequence[int]) -> Sequence[Leased]:
        lent = await self._store.lease(self._queue, wants)
        deadlines = [leased.items[0].lease_deadline for leased in lent if leased.items]
        if earliest := min(filter(None, deadlines), default=None):
            self._on_leased(earliest)
        return lent


def size_of(items: Sequence[NewItem]) -> int:
    """How much room new items take while they wait, roughly."""
    return sum(len(item.payload) for item in items) + OVERHEAD * len(items)
