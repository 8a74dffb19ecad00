"""PostgreSQL: messages are sent within transactions of the application, with every driver."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import connection as django_connection
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from borrowed_checks import (
    Opened,
    check_commit_and_rollback,
    check_kills,
    check_many_transactions,
    check_other_database,
    check_sums,
    check_waiting_receiver,
    in_mailbox,
)
from borrowed_rig import POSTGRESQL, use_django
from cli.conftest import Command, dlq
from deadletter import App, ConfigError, Unavailable
from deadletter.ports import Reconciles
from deadletter.sync import SyncApp
from deadletter.testing.fakes import FakeClock
from docs.reading import ROOT, blocks
from engines.forgery_rig import unused
from engines.postgresql_time import a_database, own_database
from servers import Server

__all__ = ["dlq", "own_database"]

PAGE = ROOT / "docs" / "transactional-send.md"


@pytest.fixture(params=POSTGRESQL)
def opened(request: pytest.FixtureRequest) -> Opened:
    return POSTGRESQL[request.param]


async def test_sent_if_and_only_if_committed(own_database: str, opened: Opened) -> None:
    await check_commit_and_rollback(own_database, opened, unused("orders"))


async def test_the_commit_wakes_a_receiver(own_database: str, opened: Opened) -> None:
    assert await check_waiting_receiver(own_database, opened, unused("orders")) < 1.5


async def test_another_database_is_refused(
    own_database: str, postgresql_server: Server, opened: Opened
) -> None:
    await check_other_database(own_database, postgresql_server.url, opened)


@pytest.fixture
async def url(postgresql_server: Server) -> AsyncIterator[str]:
    """A database of one test."""
    async with a_database(postgresql_server.url) as url:
        yield url


async def test_a_thousand_transactions(url: str, dlq: Command) -> None:
    await check_many_transactions(url, POSTGRESQL["asyncpg"], dlq, count=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("driver", POSTGRESQL)
async def test_ten_thousand_transactions(url: str, dlq: Command, driver: str) -> None:
    await check_many_transactions(url, POSTGRESQL[driver], dlq, count=10_000)


async def test_kills_at_any_moment(url: str, dlq: Command) -> None:
    drivers = islice(cycle(POSTGRESQL), 20)
    await check_kills(url, drivers, POSTGRESQL["asyncpg"], dlq)


@pytest.fixture
async def app(own_database: str) -> AsyncIterator[App]:
    async with App(own_database) as app:
        yield app


@pytest.fixture
async def connection(own_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(own_database)
    yield connection
    await connection.close()


@pytest.fixture
async def other(own_database: str, connection: Any) -> AsyncIterator[Any]:
    """A connection that counts in the same rows as the first, when it sends by itself."""
    async with AsyncExitStack() as stack:
        for _ in range(200):
            other = await asyncpg.connect(own_database)
            stack.push_async_callback(other.close)
            if (other.get_server_pid() - connection.get_server_pid()) % 16 == 0:
                yield other
                return
            await other.close()
        pytest.fail("no process of the server has a fitting number")


_ROWS = """
SELECT id, body, extra, sent_at, expires_at, due - sent_at < '31 s' AS due, span, crc, mark,
    attempts, spared, suspect, alone, token, leased, first_at, history
FROM deadletter.messages WHERE mailbox = (SELECT id FROM deadletter.mailboxes WHERE name = $1)
ORDER BY seq
"""
_SLOW = """
CREATE OR REPLACE FUNCTION pg_temp.slow() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
CREATE TRIGGER slow BEFORE INSERT ON deadletter.messages
    FOR EACH ROW EXECUTE FUNCTION pg_temp.slow();
"""
_SHARDS = """
SELECT shard FROM deadletter.tally
WHERE mailbox = (SELECT id FROM deadletter.mailboxes WHERE name = $1) AND fate = 'sent'
ORDER BY shard
"""


async def test_rows_are_those_of_an_ordinary_send(own_database: str, connection: Any) -> None:
    mailbox = unused("orders")
    options: dict[str, Any] = {
        "id": "o-1",
        "key": "customer-7",
        "delay": 30,
        "max_attempts": 3,
        "expires_in": 60,
        "idempotency_key": "i-1",
        "reply_to": "answers",
        "headers": {"tenant": "eu"},
    }
    async with App(own_database, clock=FakeClock(datetime.now(UTC))) as app:
        await app.send(mailbox, {"n": 1}, **options)
        async with connection.transaction():
            await app.send(mailbox, {"n": 1}, connection=connection, **options)
        await check_sums(app)

    ordinary, borrowed = await connection.fetch(_ROWS, mailbox)
    assert borrowed == ordinary


async def test_large_batches_are_sent_whole_or_not_at_all(app: App, connection: Any) -> None:
    mailbox = unused("frames")
    frames = [bytes(6_000_000)] * 4  # more than one statement takes
    async with connection.transaction():
        await app.send_many(mailbox, frames, connection=connection)
    transaction = connection.transaction()
    await transaction.start()
    await app.send_many(mailbox, frames, connection=connection)
    await transaction.rollback()

    assert len(await connection.fetch(_ROWS, mailbox)) == 4
    await check_sums(app)


async def test_a_cancelled_batch_leaves_nothing(app: App, connection: Any) -> None:
    """Also where the application goes on with its transaction."""
    mailbox = unused("frames")
    await app.send(mailbox, b"before")
    frames = [bytes(6_000_000)] * 8
    async with connection.transaction():
        await connection.execute(_SLOW)
        sending = asyncio.create_task(app.send_many(mailbox, frames, connection=connection))
        done, _ = await asyncio.wait([sending], timeout=1.0)
        assert not done
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await connection.execute("DROP TRIGGER slow ON deadletter.messages")

    assert len(await connection.fetch(_ROWS, mailbox)) == 1
    await check_sums(app)


async def test_open_transactions_do_not_wait_for_each_other(
    app: App, connection: Any, other: Any
) -> None:
    """Nor does an ordinary send; afterwards, sweeps add up what was counted apart."""
    mailbox = unused("orders")
    await app.send(mailbox, {"n": 0})
    async with asyncio.timeout(20), connection.transaction():
        await app.send(mailbox, {"n": 1}, connection=connection)
        for n in range(2, 40):  # of any shard
            async with other.transaction():
                await app.send(mailbox, {"n": n}, connection=other)
        await app.send(mailbox, {"n": 40})
        await app.send(mailbox, {"n": 41}, connection=connection)
    await check_sums(app)
    assert sum(row[0] < 0 for row in await connection.fetch(_SHARDS, mailbox)) == 39

    await (await app.engine()).broker.sweep()

    assert all(row[0] >= 0 for row in await connection.fetch(_SHARDS, mailbox))
    await check_sums(app)
    assert await in_mailbox(app, mailbox) == list(range(42))


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_stricter_transactions_do_not_fail_beside_others(
    app: App, connection: Any, other: Any, isolation: str
) -> None:
    mailbox = unused("orders")
    await app.send(mailbox, {"n": 0})
    async with connection.transaction(isolation=isolation):
        await connection.fetch("SELECT 1")  # takes the snapshot
        for n in range(1, 5):
            async with other.transaction(isolation=isolation):
                await app.send(mailbox, {"n": n}, connection=other)
        await app.send(mailbox, {"n": 5})
        await app.send(mailbox, {"n": 6}, connection=connection)

    assert await in_mailbox(app, mailbox) == list(range(7))
    await check_sums(app)


async def test_a_mailbox_younger_than_the_snapshot_is_told(app: App, connection: Any) -> None:
    mailbox = unused("new")
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.fetch("SELECT 1")
    with pytest.raises(Unavailable, match="run the transaction again"):
        await app.send(mailbox, {"n": 1}, connection=connection)
    await transaction.rollback()
    async with connection.transaction(isolation="repeatable_read"):
        await app.send(mailbox, {"n": 2}, connection=connection)

    assert await in_mailbox(app, mailbox) == [2]


async def test_another_key_of_the_sums_is_noticed(
    own_database: str, app: App, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dlq audit rekey` of another process, between two sends of this one."""
    mailbox = unused("orders")
    await app.send(mailbox, {"n": 1})
    monkeypatch.setenv("DLQ_SIGNING_KEYS", "a key that is long enough to be one of ours")
    async with App(own_database) as keyed, connection.transaction():
        await keyed.send(mailbox, {"n": 2}, connection=connection)
    async with App(own_database) as keyed:
        broker = (await keyed.engine()).broker
        assert isinstance(broker, Reconciles)
        await keyed.send(mailbox, {"n": 3})  # it knows the mailbox with its old sums
        assert await broker.rekey() > 0
        async with connection.transaction():
            await keyed.send(mailbox, {"n": 4}, connection=connection)
        await check_sums(keyed)


async def test_a_snapshot_from_before_another_key_is_run_again(
    own_database: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of one mailbox would otherwise be made with two keys."""
    mailbox = unused("orders")
    async with App(own_database) as plain:
        await plain.send(mailbox, {"n": 1})
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.fetch("SELECT 1")
        monkeypatch.setenv("DLQ_SIGNING_KEYS", "a key that is long enough to be one of ours")
        async with App(own_database) as keyed:
            broker = (await keyed.engine()).broker
            assert isinstance(broker, Reconciles)
            assert await broker.rekey() > 0
            with pytest.raises(asyncpg.SerializationError):
                await plain.send(mailbox, {"n": 2}, connection=connection)
            await transaction.rollback()
            await check_sums(keyed)


async def test_a_mailbox_is_not_deleted_under_a_transaction(app: App, connection: Any) -> None:
    mailbox = unused("orders")
    broker = (await app.engine()).broker
    transaction = connection.transaction()
    await transaction.start()
    await app.send(mailbox, {"n": 1}, connection=connection)
    deleting = asyncio.create_task(broker.delete(mailbox, force=True))
    done, _ = await asyncio.wait([deleting], timeout=0.5)
    assert not done
    await transaction.commit()

    assert await deleting == 1  # the message is counted as purged
    await check_sums(app)


async def test_a_deleted_mailbox_is_made_anew(app: App, connection: Any) -> None:
    mailbox = unused("orders")
    await app.send(mailbox, {"n": 1})
    await (await app.engine()).broker.delete(mailbox, force=True)
    async with connection.transaction():
        await app.send(mailbox, {"n": 2}, connection=connection)

    assert await in_mailbox(app, mailbox) == [2]


async def test_statements_of_their_own_are_no_transaction(
    own_database: str, app: App, connection: Any
) -> None:
    engine = sqlalchemy.create_engine(
        own_database.replace("://", "+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with pytest.raises(ConfigError, match="in no transaction"):
        await app.send("orders", b"1", connection=connection)
    with closing(psycopg.connect(own_database, autocommit=True)) as sync:
        with pytest.raises(ConfigError, match="in no transaction"):
            await app.send("orders", b"1", connection=sync)
        mailbox = unused("orders")
        with sync.transaction():
            await app.send(mailbox, {"n": 1}, connection=sync)
        assert await in_mailbox(app, mailbox) == [1]
    with engine.connect() as sync, pytest.raises(ConfigError, match="in no transaction"):
        await app.send("orders", b"1", connection=sync)
    engine.dispose()
    await asyncio.to_thread(_django_without_a_transaction, own_database)


def _django_without_a_transaction(url: str) -> None:
    use_django(url)
    try:
        with SyncApp(url) as app, pytest.raises(ConfigError, match=r"transaction\.atomic"):
            app.send("orders", b"1", connection=django_connection)
    finally:
        django_connection.close()


async def test_an_sqlite_connection_is_refused(app: App) -> None:
    refused = pytest.raises(ConfigError, match="leads to sqlite, but the mailboxes are in postg")
    with closing(sqlite3.connect(":memory:")) as sqlite, refused:
        await app.send("orders", b"1", connection=sqlite)


def test_threads_share_a_sync_app(own_database: str) -> None:
    """As those of a web server do, each with a connection of its own."""
    mailbox = unused("orders")

    def sell(first: int) -> None:
        with psycopg.connect(own_database) as connection:
            for n in range(first, first + 20):
                shop.send(mailbox, {"n": n}, connection=connection)
                connection.rollback() if n % 2 else connection.commit()

    with SyncApp(own_database) as shop, ThreadPoolExecutor(8) as threads:
        list(threads.map(sell, range(0, 160, 20)))
        assert shop.call(in_mailbox(shop.app, mailbox)) == list(range(0, 160, 2))
        shop.call(check_sums(shop.app))


async def test_a_savepoint_takes_its_messages_back(own_database: str, app: App) -> None:
    mailbox = unused("orders")
    engine = create_async_engine(own_database.replace("://", "+asyncpg://"))
    async with AsyncSession(engine) as session, session.begin():
        await app.send(mailbox, {"n": 1}, connection=session)
        nested = await session.begin_nested()
        await app.send(mailbox, {"n": 2}, connection=session)
        await nested.rollback()
        await app.send(mailbox, {"n": 3}, connection=session)
    await engine.dispose()

    assert await in_mailbox(app, mailbox) == [1, 3]
    await check_sums(app)


_ANOTHER_USER = """
CREATE ROLE clerk LOGIN PASSWORD 'of-the-shop';
GRANT USAGE ON SCHEMA deadletter TO clerk;
GRANT SELECT, UPDATE ON deadletter.mailboxes TO clerk;
GRANT SELECT, INSERT ON deadletter.messages TO clerk;
GRANT SELECT, INSERT, UPDATE ON deadletter.tally TO clerk;
"""


async def test_another_user_may_send_with_the_permissions_of_the_page(
    own_database: str, app: App, connection: Any
) -> None:
    mailbox = unused("orders")
    await connection.execute(_ANOTHER_USER)
    host = own_database.rpartition("@")[2]
    clerk = await asyncpg.connect(f"postgresql://clerk:of-the-shop@{host}")
    try:
        async with clerk.transaction():
            await app.send_many(mailbox, [{"n": 1}, {"n": 2}], connection=clerk)
    finally:
        await clerk.close()
        await connection.execute("DROP OWNED BY clerk; DROP ROLE clerk")

    assert await in_mailbox(app, mailbox) == [1, 2]
    await check_sums(app)


async def test_the_functions_of_the_page_send(
    own_database: str, app: App, connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page itself runs on SQLite."""
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {"App": App}
    code = [one.text for one in blocks(PAGE.read_text()) if one.language == "python"]
    for text in code:
        if "asyncio.run" not in text:
            exec(text, page)
    await connection.execute("CREATE TABLE orders (amount integer)")
    use_django(own_database)
    engine = create_async_engine(own_database.replace("://", "+asyncpg://"))

    def blocking() -> None:
        with SyncApp(own_database) as shop:
            page["order_with_psycopg"](shop, own_database, 1)
            page["order_with_django"](shop, 2)
        django_connection.close()

    await asyncio.to_thread(blocking)
    async with asyncpg.create_pool(own_database, min_size=1) as pool:
        await page["order_with_asyncpg"](app, pool, 3)
    async with AsyncSession(engine) as session:
        await page["order_with_sqlalchemy"](app, session, 4)
    await engine.dispose()

    assert await connection.fetchval("SELECT array_agg(amount) FROM orders") == [1, 2, 3, 4]
    source = (await app.engine()).broker.source("orders")
    received = await source.receive(limit=10, wait=1.0, lease=10.0)
    assert [json.loads(one.message.body)["amount"] for one in received] == [1, 2, 3, 4]
