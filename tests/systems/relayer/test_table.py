"""The transaction table: its schema step by step, and who may change what."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from deadletter import ConfigError, Failure, Trouble
from deadletter.system import SystemClock
from relayer.database import Database, open_database
from relayer.table import Table
from relayer.values import RelayMessage, Status
from servers import Server
from servers.fixtures import needing_postgresql

BUSY = Failure(trouble=Trouble.TRANSIENT, code="HTTP_503", error_type="", text="busy")


@pytest.fixture(params=["sqlite", needing_postgresql()])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that nobody has used."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/table.db"
    server: Server = request.getfixturevalue("postgresql_server")
    name = f"relayer_{uuid4().hex}"
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    base, _, query = server.url.partition("?")
    return f"{base.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = await open_database(url)
    yield database
    await database.close()


@pytest.fixture
async def table(database: Database) -> Table:
    await database.migrate()
    return Table(database, SystemClock())


def message(id: str = "t-1", *, wish: bool | None = None) -> RelayMessage:
    return RelayMessage(
        transaction_id=id, type="direct", request={"to": "0x"}, retry_on_failure=wish
    )


async def old_row(database: Database, id: str, more: str = "", value: str = "") -> None:
    await database.run(
        "INSERT INTO transactions (id, type, request, status, created_at, updated_at"
        f"{more}) VALUES (?1, 'direct', '{{}}', 'queued', ?2, ?2{value})",
        id,
        SystemClock().now().isoformat(),
    )


async def test_rows_from_before_the_field_mean_no_retry(database: Database) -> None:
    assert await database.migrate(up_to=1) == 1
    await old_row(database, "older")
    assert await database.migrate(up_to=2) == 1
    await old_row(database, "null", ", retry_on_failure", ", NULL")
    await old_row(database, "wished", ", retry_on_failure", ", TRUE")
    wish = "SELECT id, retry_on_failure FROM transactions ORDER BY id"
    before = {row[0]: row[1] for row in await database.run(wish)}

    await database.migrate()

    after = {row[0]: row[1] for row in await database.run(wish)}
    assert before["null"] is None  # the column is nullable
    assert after == {"null": False, "older": False, "wished": True}
    told = await Table(database, SystemClock()).get("null")
    assert told is not None
    assert told.retry_on_failure is False


async def test_a_row_that_does_not_say_means_no_retry(database: Database) -> None:
    await database.migrate()
    await old_row(database, "t-1")

    (row,) = await database.run("SELECT retry_on_failure FROM transactions")

    assert row[0] is not None
    assert not row[0]


async def test_migrations_are_applied_once_whoever_comes(url: str) -> None:
    databases = [await open_database(url) for _ in range(3)]
    try:
        applied = await asyncio.gather(*(one.migrate() for one in databases))
    finally:
        for one in databases:
            await one.close()

    assert sorted(applied) == [0, 0, 4]


async def test_a_transaction_is_written_once(table: Table) -> None:
    await table.add(message(wish=True))
    again = await table.add(message(wish=False))

    assert (again.status, again.retry_on_failure) == (Status.PENDING, True)
    assert await table.get("another") is None


async def test_late_news_changes_nothing(table: Table) -> None:
    await table.add(message())
    assert await table.begin(message(), generation=0)
    await table.queued("t-1")  # the API comes late

    told = await table.get("t-1")
    assert told is not None
    assert told.status is Status.PROCESSING


async def test_failed_transactions_stay_failed_until_replayed(table: Table) -> None:
    await table.add(message())
    await table.begin(message(), generation=0)
    assert await table.fail("t-1", BUSY)

    assert not await table.fail("t-1", BUSY)
    assert not await table.begin(message(), generation=0)
    assert not await table.heard("t-1", Status.MINED, hash="0x1", error=None)
    assert await table.begin(message(), generation=1)
    await table.fail("t-1", BUSY)
    assert not await table.begin(message(), generation=1)


async def test_the_chain_may_be_faster_than_the_answer(table: Table) -> None:
    await table.add(message())
    await table.begin(message(), generation=0)
    assert await table.heard("t-1", Status.CONFIRMED, hash="0x1", error=None)
    await table.submitted("t-1", "r-1")

    told = await table.get("t-1")
    assert told is not None
    assert (told.status, told.relayer_id, told.hash) == (Status.CONFIRMED, "r-1", "0x1")
    assert not await table.fail("t-1", BUSY)


async def test_submitted_transactions_stay_failed_only_if_reverted(table: Table) -> None:
    for id_ in ("given-up", "reverted"):
        await table.add(message(id_))
        await table.begin(message(id_), generation=0)
    await table.fail("given-up", BUSY)
    await table.heard("reverted", Status.FAILED, hash="0x1", error="reverted")

    await table.submitted("given-up", "r-1")
    await table.submitted("reverted", "r-2")

    given_up, reverted = await table.get("given-up"), await table.get("reverted")
    assert given_up is not None
    assert reverted is not None
    assert (given_up.status, given_up.error_code) == (Status.SUBMITTED, None)
    assert (reverted.status, reverted.error_message) == (Status.FAILED, "reverted")


async def test_another_database_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///.*not mysql"):
        await open_database("mysql://root:secret@host/db")
