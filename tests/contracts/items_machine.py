"""
An engine's lease queues driven beside a model's, step by step, by hypothesis.

Both share a clock and get the same calls; after every step they must have given
the same answers and hold the same items. A backend's test is a subclass that says
how to open both, and `TestName = Subclass.TestCase`.
"""

from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec import structs

from contracts.side_by_side import SideBySide
from deadletter.core.policy import LimitMode
from deadletter.ports import Engine, ItemStore, KeepsItems, SweepResult
from deadletter.queue_server.model import (
    Completion,
    DeadItem,
    Item,
    ItemRetry,
    LeasedItems,
    LeaseQueue,
    NewItem,
    PartitionStats,
    Rejection,
    RetryBatch,
)

T = TypeVar("T")
Pair: TypeAlias = tuple[str, str, int]
"""An item's id of ours, of the model's, and its partition."""

_QUEUES = (
    LeaseQueue(name="dead", lease_timeout=10, expire_timeout=30, max_attempts=1),
    LeaseQueue(
        name="orders",
        lease_timeout=10,
        expire_timeout=40,
        max_attempts=2,
        dead_queue="dead",
        partitions=2,
    ),
    LeaseQueue(name="alone", lease_timeout=5, expire_timeout=20, max_attempts=2),
)

_names = st.sampled_from([queue.name for queue in _QUEUES])
_delays = st.sampled_from([None, None, None, 0.05, 3.0, 60.0])
_rarely = st.sampled_from([False, False, False, True])


class ItemsMachine(SideBySide):
    """Calls both engines alike and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.held: dict[str, list[Pair]] = {queue.name: [] for queue in _QUEUES}

    @initialize()
    def begin(self) -> None:
        self.open_both()
        for queue in _QUEUES:
            self._both(partial(_create, queue=queue))

    @rule(name=_names, sizes=st.lists(st.integers(0, 4), max_size=3), delay=_delays)
    def produce(self, name: str, sizes: list[int], delay: float | None) -> None:
        at = None if delay is None else self.clock.now() + timedelta(seconds=delay)
        batches = [[NewItem(self._payload(), enqueue_at=at) for _ in range(size)] for size in sizes]
        self._both(lambda store: store.produce(name, batches))

    @rule(name=_names, wants=st.lists(st.integers(0, 4), max_size=3))
    def lease(self, name: str, wants: list[int]) -> None:
        ours, theirs = self._both(lambda store: store.lease(name, wants))
        self._compare([_lent(one) for one in ours], [_lent(one) for one in theirs])
        for our, their in zip(ours, theirs, strict=True):
            pairs = zip(our.items, their.items, strict=True)
            self.held[name] += [(a.id, b.id, our.partition) for a, b in pairs]

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), name=_names)
    def complete(self, data: st.DataObject, name: str) -> None:
        """Complete what was leased, and maybe lost or completed, some time ago."""
        requests = self._requests(data, name)
        ours, theirs = [
            [Completion(partition, tuple(ids[side])) for partition, ids in requests]
            for side in (0, 1)
        ]
        store, model = _items(self.engine), _items(self.model)
        self._compare(
            [_wrong(one) for one in self._run(store.complete(name, ours))],
            [_wrong(one) for one in self._run(model.complete(name, theirs))],
        )

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), name=_names, delay=_delays, dead=_rarely)
    def retry(self, data: st.DataObject, name: str, delay: float | None, *, dead: bool) -> None:
        at = None if delay is None else self.clock.now() + timedelta(seconds=delay)
        requests = self._requests(data, name)
        ours, theirs = [
            [
                RetryBatch(partition, tuple(ItemRetry(id_, at, dead) for id_ in ids[side]))
                for partition, ids in requests
            ]
            for side in (0, 1)
        ]
        store, model = _items(self.engine), _items(self.model)
        self._compare(
            [_given_back(one) for one in self._run(store.retry(name, ours))],
            [_given_back(one) for one in self._run(model.retry(name, theirs))],
        )

    @rule(seconds=st.sampled_from([0.5, 5.0, 10.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(limit=st.sampled_from([1000, 1000, 2]))
    def sweep(self, limit: int) -> None:
        ours, theirs = self._both(lambda store: store.sweep(limit=limit))
        self._compare(_swept(ours), _swept(theirs))

    @rule(
        name=_names,
        source=st.sampled_from([None, "a", "b"]),
        attempts=st.integers(0, 2),
        leased=_rarely,
        life=st.sampled_from([None, 0.0, 15.0]),
        delay=_delays,
    )
    def bring_in(
        self,
        name: str,
        source: str | None,
        attempts: int,
        life: float | None,
        delay: float | None,
        *,
        leased: bool,
    ) -> None:
        now = self.clock.now()
        item = Item(
            id="",
            payload=self._payload(),
            source_id=source,
            attempts=attempts,
            is_leased=leased,
            expire_deadline=None if life is None else now + timedelta(seconds=life),
            enqueue_at=None if delay is None else now + timedelta(seconds=delay),
            created_at=now,
            updated_at=now,
        )
        ours, theirs = self._both(lambda store: store.import_items(name, 0, [item]))
        self._compare([_told(one) for one in ours], [_told(one) for one in theirs])

    @rule(name=_names, waiting=st.booleans(), scheduled=st.booleans(), destructive=_rarely)
    def clear(self, name: str, *, waiting: bool, scheduled: bool, destructive: bool) -> None:
        self._compare(
            *self._both(
                lambda store: store.clear(
                    name, waiting=waiting, scheduled=scheduled, destructive=destructive
                )
            )
        )

    @rule(
        dead_queue=st.sampled_from([None, "dead"]),
        max_attempts=st.integers(0, 3),
        limit_mode=st.sampled_from(LimitMode),
    )
    def change(self, dead_queue: str | None, max_attempts: int, limit_mode: LimitMode) -> None:
        """Change limits and dead queue of `orders`; `dead` may become an ordinary queue."""
        changed = structs.replace(
            _QUEUES[1], dead_queue=dead_queue, max_attempts=max_attempts, limit_mode=limit_mode
        )
        self._both(lambda store: store.update_queue(changed))

    @rule()
    def reopen(self) -> None:
        """Open the engine again, where all must still be there."""
        self._run(self.engine.close())
        self.engine = self._run(self.open())

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "model"):
            return
        for queue in _QUEUES:
            self._compare(*self._both(partial(_stats, name=queue.name)))
            for partition in range(queue.partitions):
                for scheduled in (False, True):
                    self._compare_items(queue.name, partition, scheduled=scheduled)

    def _compare_items(self, name: str, partition: int, *, scheduled: bool) -> None:
        ours, theirs = self._both(
            lambda store: store.items(name, partition, limit=1000, scheduled=scheduled)
        )
        self._compare([_told(one) for one in ours], [_told(one) for one in theirs])
        assert sorted({one.id for one in ours}) == [one.id for one in ours]

    def _requests(
        self, data: st.DataObject, name: str
    ) -> list[tuple[int, tuple[list[str], list[str]]]]:
        """Some requests for items that are or were leased; some of them absurd."""
        pairs = self.held[name][-8:]
        some = st.lists(st.sampled_from(pairs), max_size=4) if pairs else st.just([])
        drawn = data.draw(st.lists(some, max_size=3))
        elsewhere = data.draw(_rarely)
        return [
            (
                1 if elsewhere else (pairs[0][2] if pairs else 0),
                ([pair[0] for pair in pairs], [pair[1] for pair in pairs]),
            )
            for pairs in drawn
        ]

    def _payload(self) -> bytes:
        self.made += 1
        return b"%d" % self.made

    def _both(self, call: Callable[[ItemStore], Coroutine[Any, Any, T]]) -> tuple[T, T]:
        return (self._run(call(_items(self.engine))), self._run(call(_items(self.model))))


def _items(engine: Engine) -> ItemStore:
    assert isinstance(engine, KeepsItems)
    return engine.items


async def _create(store: ItemStore, queue: LeaseQueue) -> None:
    await store.create_queue(queue)


async def _stats(store: ItemStore, name: str) -> list[PartitionStats]:
    return [
        structs.replace(
            one,
            average_age=round(one.average_age, 5),
            average_leased_age=round(one.average_leased_age, 5),
        )
        for one in await store.stats(name)
    ]


def _told(item: Item) -> Item:
    """Everything about an item but ids, which are its store's own."""
    source = None if item.source_id is None else "some"
    return structs.replace(item, id="", source_id=source)


def _lent(leased: LeasedItems) -> tuple[int, list[Item]]:
    return leased.partition, [_told(item) for item in leased.items]


def _wrong(answer: Rejection | None) -> str | None:
    return None if answer is None else answer.reason


def _given_back(answer: Rejection | Sequence[DeadItem]) -> Any:
    if isinstance(answer, Rejection):
        return answer.reason
    return [_gone(one) for one in answer]


def _gone(dead: DeadItem) -> DeadItem:
    return structs.replace(dead, id="")


def _swept(swept: SweepResult) -> SweepResult:
    dead = tuple(_gone(one) for one in swept.dead)
    return structs.replace(swept, dead=dead)
