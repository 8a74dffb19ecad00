"""The PostgreSQL engine keeps what lease queues promise."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from contracts.items_bench import a_queue, leased, produced
from contracts.items_contract import ItemsContract
from contracts.items_sharing import SharingContract
from deadletter.backends.postgresql import items_tending, waking
from deadletter.backends.postgresql.engine import PostgresqlEngine, open_database
from deadletter.core.items import Death
from deadletter.ports import ItemStore
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock
from deadletter.testing.waiting import eventually
from engines.postgresql_time import ToldTime, a_database, told_database, told_time
from servers import Server

__all__ = ["told_database"]


class TestPostgresqlItems(ItemsContract):
    driver = PostgresqlEngine
    time: ToldTime

    @pytest.fixture
    async def engine(
        self, clock: FakeClock, told_database: str
    ) -> AsyncIterator[PostgresqlEngine]:
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
    def stores(
        self, engines: tuple[PostgresqlEngine, PostgresqlEngine]
    ) -> list[ItemStore]:
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


async def test_what_falls_due_while_others_are_tended_is_not_spared_for_ever(
    engines: tuple[PostgresqlEngine, PostgresqlEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = engines[0].items
    brief = structs.replace(a_queue(), lease_timeout=0.05, expire_timeout=0.05)
    await store.create_queue(brief)
    await produced(store, b"stale")
    await asyncio.sleep(0.1)

    with monkeypatch.context() as early:  # asked for the time, and then held up
        before = "SELECT deadletter.clock() - interval '1 minute'"
        early.setattr(items_tending, "CLOCK", before)
        assert not (await store.tend()).departed

    (departed,) = (await store.tend()).departed
    assert departed.death is Death.EXPIRED
