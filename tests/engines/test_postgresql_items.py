"""The PostgreSQL engine keeps what lease queues promise."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from contracts.items_bench import a_queue, leased, produced
from contracts.items_contract import ItemsContract
from contracts.items_sharing import SharingContract
from deadletter.ports import ItemStore
from deadletter.queue_server.model import Death
from deadletter.queue_server.partition_health import WriteAttempt
from deadletter.queue_server.transactions import sweep
from deadletter.stores.postgresql import database as waking
from deadletter.stores.postgresql import items_operations
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock, eventually
from engines.postgresql_time import ToldTime, a_database, told_database, told_time
from servers import Server

__all__ = ["told_database"]


class TestPostgresqlItems(ItemsContract):
    driver = PostgresqlEngine
    time: ToldTime

    @pytest.fixture
    async def engine(self, clock: FakeClock, told_database: str) -> AsyncIterator[PostgresqlEngine]:
        async with told_time(told_database, clock) as self.time:
            engine = await open_database(told_database, clock)
            yield engine
            await engine.close()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        await super().pass_time(clock, seconds)
        await self.time.tell()


@pytest.fixture
async def engines(
    postgresql_server: Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresqlEngine, PostgresqlEngine]]:
    """Two engines on one database, as of two processes; looking does not help."""
    monkeypatch.setattr(waking, "LOOK", 600.0)
    monkeypatch.setattr(waking, "LOOK_OFTEN", 600.0)
    async with a_database(postgresql_server.url) as url:
        opened = [await open_database(url, SystemClock()) for _ in range(2)]
        yield opened[0], opened[1]
        for engine in opened:
            await engine.close()


class TestPostgresqlItemsShared(SharingContract):
    @pytest.fixture
    def stores(self, engines: tuple[PostgresqlEngine, PostgresqlEngine]) -> list[ItemStore]:
        return [engine.items for engine in engines]


async def test_without_anybody_telling_somebody_looks(
    engines: tuple[PostgresqlEngine, PostgresqlEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "LOOK_OFTEN", 0.05)
    engines[0]._waking._listen = None
    ours, theirs = (engine.items for engine in engines)
    await ours.create_queue(a_queue())
    told: list[str] = []
    ours.on_ready(told.append)
    assert (await leased(ours)).items == ()

    await produced(theirs, b"a")

    await eventually(lambda: set(told) == {"orders"})


async def test_nothing_is_put_into_a_queue_while_it_is_deleted(
    engines: tuple[PostgresqlEngine, PostgresqlEngine],
) -> None:
    ours, theirs = (engine.items for engine in engines)
    for _ in range(10):
        await ours.create_queue(a_queue())
        await asyncio.gather(
            *(produced(ours, b"x") for _ in range(5)),
            theirs.delete_queue("orders"),
            return_exceptions=True,
        )

    async with engines[0]._db._pool.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM deadletter.items") == 0


async def test_items_that_fall_due_during_a_sweep_are_swept_later(
    engines: tuple[PostgresqlEngine, PostgresqlEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = engines[0].items
    brief = structs.replace(a_queue(), lease_timeout=0.05, expire_timeout=0.05)
    await store.create_queue(brief)
    await produced(store, b"stale")
    await asyncio.sleep(0.1)

    with monkeypatch.context() as early:  # asked for the time, and then held up
        before = "SELECT deadletter.clock() - interval '1 minute'"
        early.setattr(items_operations, "_CLOCK", before)
        assert not (await store._write(lambda found: sweep(found, 10, WriteAttempt({})))).dead

    (dead,) = (await store.sweep()).dead
    assert dead.death is Death.EXPIRED
