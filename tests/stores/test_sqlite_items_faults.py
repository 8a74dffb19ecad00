"""Lease queues on a full disk: said in words, nothing half done, gone on with."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from contracts.items_bench import (
    LEASE,
    a_queue,
    an_item,
    completed,
    given_back,
    leased,
    listed,
    payloads,
    produced,
)
from deadletter.core.errors import Unavailable
from deadletter.queue_server.model import Item
from deadletter.stores.sqlite import SqliteEngine, open_engine
from deadletter.testing.fakes import FakeClock, SeededDice

MANY = 900  # so many that whatever is written of them needs new pages
DLQ = "orders-dlq"
FULL = "PRAGMA max_page_count=1"  # of this connection; the next has none


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteEngine]:
    url = f"sqlite:///{tmp_path}/q.db"
    engine = await open_engine(url, clock=clock, dice=SeededDice())
    await engine.items.create_queue(a_queue(DLQ, partitions=2))
    await engine.items.create_queue(a_queue(dead_queue=DLQ, max_attempts=1))
    yield engine
    await engine.close()


async def refused(engine: SqliteEngine, work: Callable[[], Awaitable[object]]) -> None:
    """Do it on a full disk, once: it is said that this is why it cannot be done."""
    await engine._db.write(lambda c: c.execute(FULL).fetchone())
    with pytest.raises(Unavailable, match="disk is full: free some space"):
        await work()


async def test_items_that_could_not_be_produced_are_not_stored(engine: SqliteEngine) -> None:
    store = engine.items
    await produced(store, b"before")

    await refused(engine, lambda: produced(store, b"small", b"x" * 200_000))
    await produced(store, b"after")

    assert payloads(await listed(store)) == [b"before", b"after"]
    assert [one.total for one in await store.stats("orders")] == [2]


async def test_failed_imports_succeed_once_there_is_room(
    engine: SqliteEngine, clock: FakeClock
) -> None:
    store = engine.items
    items = [an_item(clock.now(), b"x" * 2_000, f"s-{n}") for n in range(100)]

    await refused(engine, lambda: store.import_items(DLQ, 1, items))

    assert await listed(store, DLQ, partition=1) == []
    assert len(await store.import_items(DLQ, 1, items)) == 100  # none was noted as had
    assert await store.import_items(DLQ, 1, items) == []


async def test_items_that_could_not_be_leased_stay_available(engine: SqliteEngine) -> None:
    store = engine.items
    # In a dead queue nothing falls due until it is leased: then it needs room.
    await produced(store, *[b"x"] * MANY, queue=DLQ)

    await refused(engine, lambda: leased(store, MANY, queue=DLQ))

    kept = [item for part in (0, 1) for item in await listed(store, DLQ, partition=part)]
    assert {(item.is_leased, item.attempts) for item in kept} == {(False, 0)}
    lent = await leased(store, MANY, queue=DLQ)
    assert {item.attempts for item in lent.items} == {1}
    assert len(lent.items) == MANY


async def test_items_that_could_not_be_retried_stay_leased(engine: SqliteEngine) -> None:
    store = engine.items
    lent = await _lent(engine)

    await refused(engine, lambda: given_back(store, lent, dead=True))

    assert await listed(store, DLQ) == await listed(store, DLQ, partition=1) == []
    assert {item.is_leased for item in await listed(store)} == {True}
    ids = [item.id for item in lent]
    assert await completed(store, ids) is None


async def test_a_move_that_has_no_room_is_made_later_and_once(
    engine: SqliteEngine, clock: FakeClock
) -> None:
    store = engine.items
    lent = await _lent(engine)
    clock.advance(LEASE)

    await refused(engine, store.sweep)
    assert len(await listed(store)) == MANY
    assert await listed(store, DLQ) == []
    swept = await store.sweep()

    assert len(swept.dead) == MANY
    # The first partition has failed, so they are in the other one.
    dead = await listed(store, DLQ, partition=1)
    assert {item.source_id for item in dead} == {item.id for item in lent}
    assert len(dead) == MANY
    assert await listed(store) == []
    assert (await store.sweep()).dead == ()


async def test_a_queue_that_cannot_be_made_is_not(engine: SqliteEngine) -> None:
    store = engine.items
    wide = a_queue("wide", partitions=1000)

    await refused(engine, lambda: store.create_queue(wide))

    assert [queue.name for queue in await store.queues(limit=9)] == ["orders", DLQ]
    await store.create_queue(wide)


async def _lent(engine: SqliteEngine) -> list[Item]:
    store = engine.items
    await produced(store, *[b"x"] * MANY)
    return list((await leased(store, MANY)).items)
