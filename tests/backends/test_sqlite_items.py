"""The SQLite engine keeps what lease queues promise."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deadletter.backends.sqlite import SqliteEngine, items_tending, open_engine
from deadletter.ports import ItemStore
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.items_bench import a_queue, leased, produced
from deadletter.testing.items_contract import ItemsContract
from deadletter.testing.items_sharing import SharingContract
from deadletter.testing.waiting import eventually


class TestSqliteItems(ItemsContract):
    driver = SqliteEngine

    @pytest.fixture
    async def engine(
        self, clock: FakeClock, tmp_path: Path
    ) -> AsyncIterator[SqliteEngine]:
        url = f"sqlite:///{tmp_path}/q.db"
        engine = await open_engine(url, clock=clock, dice=SeededDice())
        yield engine
        await engine.close()


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[tuple[SqliteEngine, SqliteEngine]]:
    """Two engines on one file, as of two processes."""
    url = f"sqlite:///{tmp_path}/q.db"
    opened = [
        await open_engine(url, clock=SystemClock(), dice=SystemDice()) for _ in range(2)
    ]
    yield opened[0], opened[1]
    for engine in opened:
        await engine.close()


class TestSqliteItemsShared(SharingContract):
    @pytest.fixture
    def stores(self, engines: tuple[SqliteEngine, SqliteEngine]) -> list[ItemStore]:
        return [engine.items for engine in engines]


async def test_a_queue_nobody_asked_is_not_watched(
    engines: tuple[SqliteEngine, SqliteEngine],
) -> None:
    ours, theirs = (engine.items for engine in engines)
    await ours.create_queue(a_queue())
    await ours.create_queue(a_queue("other"))
    told: list[str] = []
    ours.on_ready(told.append)
    await leased(ours)

    await produced(theirs, b"x", queue="other")
    await produced(theirs, b"a")

    await eventually(lambda: "orders" in told)
    assert told == ["orders"]


async def test_tending_looks_at_an_index_and_not_at_items(
    engines: tuple[SqliteEngine, SqliteEngine],
) -> None:
    for sql in (items_tending._DUE, items_tending._NEXT):
        plan = await engines[0]._db.read(
            lambda c, sql=sql: c.execute(
                f"EXPLAIN QUERY PLAN {sql}", (1, 1)[: sql.count("?")]
            ).fetchall()
        )
        told = " ".join(row[3] for row in plan)
        assert "items_due" in told
        assert "SCAN items" not in told.replace("SCAN items USING COVERING INDEX", "")
