"""What the contract of lease queues works with."""

from collections.abc import Sequence
from datetime import datetime

import pytest

from deadletter.core.policy import LimitMode
from deadletter.ports import Engine, ItemStore, KeepsItems
from deadletter.queue_server.model import (
    Completion,
    DeadItem,
    Item,
    ItemRetry,
    LeasedItems,
    LeaseQueue,
    NewItem,
    Rejection,
    RetryBatch,
)
from deadletter.testing.fakes import FakeClock

LEASE = 10.0
LIFE = 100.0


def a_queue(
    name: str = "orders",
    *,
    dead_queue: str | None = None,
    max_attempts: int = 0,
    limit_mode: LimitMode = LimitMode.REACHED,
    partitions: int = 1,
) -> LeaseQueue:
    """A queue to be made."""
    return LeaseQueue(
        name=name,
        lease_timeout=LEASE,
        expire_timeout=LIFE,
        dead_queue=dead_queue,
        max_attempts=max_attempts,
        limit_mode=limit_mode,
        partitions=partitions,
    )


class ItemsBench:
    """
    A store of items, its clock, and shorter words for what is done with it.

    A backend's test class gives a fixture `engine` opened on the `clock` it is
    handed, without any queue, and names its engine class as `driver`.
    """

    driver: type[KeepsItems]

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def store(self, engine: Engine) -> ItemStore:
        assert isinstance(engine, KeepsItems)
        return engine.items

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        """Let so much time pass for the engine."""
        clock.advance(seconds)

    async def with_dead_queue(
        self, store: ItemStore, *, max_attempts: int = 0, partitions: int = 1
    ) -> None:
        """Have a queue `orders` and its dead queue `orders-dlq`."""
        await store.create_queue(a_queue("orders-dlq", partitions=partitions))
        await store.create_queue(a_queue(dead_queue="orders-dlq", max_attempts=max_attempts))


async def produced(
    store: ItemStore, *payloads: bytes, queue: str = "orders", at: datetime | None = None
) -> None:
    """Items in one batch."""
    await store.produce(queue, [[NewItem(p, enqueue_at=at) for p in payloads]])


async def leased(store: ItemStore, limit: int = 100, queue: str = "orders") -> LeasedItems:
    """What one client gets."""
    (found,) = await store.lease(queue, [limit])
    return found


async def completed(
    store: ItemStore, ids: Sequence[str], *, queue: str = "orders", partition: int = 0
) -> Rejection | None:
    """The answer to one request."""
    (answer,) = await store.complete(queue, [Completion(partition, tuple(ids))])
    return answer


async def given_back(
    store: ItemStore,
    items: Sequence[Item],
    *,
    queue: str = "orders",
    at: datetime | None = None,
    dead: bool = False,
) -> Sequence[DeadItem]:
    """What of it was dead."""
    again = tuple(ItemRetry(item.id, at, dead) for item in items)
    (answer,) = await store.retry(queue, [RetryBatch(0, again)])
    assert not isinstance(answer, Rejection)
    return answer


async def listed(
    store: ItemStore, queue: str = "orders", *, partition: int = 0, scheduled: bool = False
) -> Sequence[Item]:
    """What is in a partition."""
    return await store.items(queue, partition, limit=1000, scheduled=scheduled)


def payloads(items: Sequence[Item]) -> list[bytes]:
    """What is in items."""
    return [item.payload for item in items]


def an_item(now: datetime, payload: bytes = b"x", source_id: str | None = None) -> Item:
    """An item from elsewhere."""
    return Item(
        id="elsewhere", payload=payload, source_id=source_id, created_at=now, updated_at=now
    )
