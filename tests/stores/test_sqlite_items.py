"""The SQLite engine keeps what lease queues promise."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contracts.items_bench import a_queue, completed, leased, produced
from contracts.items_contract import ItemsContract
from contracts.items_sharing import SharingContract
from deadletter.ports import ItemStore
from deadletter.stores.sqlite import SqliteEngine, items_operations, open_engine
from deadletter.stores.sqlite import opening as schema
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import FakeClock, SeededDice, eventually


class TestSqliteItems(ItemsContract):
    driver = SqliteEngine

    @pytest.fixture
    async def engine(self, clock: FakeClock, tmp_path: Path) -> AsyncIterator[SqliteEngine]:
        url = f"sqlite:///{tmp_path}/q.db"
        engine = await open_engine(url, clock=clock, dice=SeededDice())
        yield engine
        await engine.close()


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[tuple[SqliteEngine, SqliteEngine]]:
    """Two engines on one file, as of two processes."""
    url = f"sqlite:///{tmp_path}/q.db"
    opened = [await open_engine(url, clock=SystemClock(), dice=SystemDice()) for _ in range(2)]
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
    for sql in (items_operations.DUE, items_operations.NEXT_DUE):
        plan = await engines[0]._db.read(
            lambda c, sql=sql: c.execute(
                f"EXPLAIN QUERY PLAN {sql}", (1, 1)[: sql.count("?")]
            ).fetchall()
        )
        told = " ".join(row[3] for row in plan)
        assert "items_due" in told
        assert "SCAN items" not in told.replace("SCAN items USING COVERING INDEX", "")


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        (items_operations.COMPLETE, ("[1]", 1, 0)),
        (items_operations.FACTS_OF, ("[1]", 1)),
        (f"DELETE {items_operations.NAMED}", {"numbers": "[1]", "queue": 1, "partition": 0}),
    ],
    ids=["complete", "retry", "delete"],
)
async def test_items_are_found_by_their_numbers_however_long_the_queue_is(
    engines: tuple[SqliteEngine, SqliteEngine], sql: str, values: Any
) -> None:
    plan = await engines[0]._db.read(
        lambda c: c.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    )

    assert plan[0][3] == "SEARCH items USING INTEGER PRIMARY KEY (rowid=?)"


async def test_leases_survive_an_upgrade(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with monkeypatch.context() as before:
        known = schema.known()[:6]
        before.setattr(schema, "known", lambda: known)
        old = await open_engine(url, clock=SystemClock(), dice=SystemDice())
        await old._db.write(_filled)
        await old.close()

    engine = await open_engine(url, clock=SystemClock(), dice=SystemDice())
    (stats,) = await engine.items.stats("orders")
    lent = await leased(engine.items)
    answer = await completed(engine.items, [f"{1:016x}", lent.items[0].id])
    await engine.close()

    assert (stats.total, stats.leased, stats.scheduled) == (2, 1, 1)
    assert [item.id for item in lent.items] == [f"{2:016x}"]
    assert answer is None


def _filled(connection: sqlite3.Connection) -> None:
    """A queue with an item that is leased, one that waits, and one for later."""
    for sql in (
        "INSERT INTO lease_queues VALUES (1, 'orders', NULL, 9, 9, 0, 1, '', '', 0, 0)",
        "INSERT INTO lease_partitions (queue, partition, load) VALUES (1, 0, 1)",
        """INSERT INTO items (seq, state, queue, partition, max_attempts, created_at,
            updated_at, payload)
        SELECT column1, column2, 1, 0, 0, 0, 0, x'' FROM (VALUES (1, 1), (2, 0), (3, 2))
        """,
    ):
        connection.execute(sql)
