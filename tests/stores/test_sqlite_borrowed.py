"""SQLite: messages are sent within transactions of the application, with every driver."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker

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
from borrowed_rig import MAKE, SQLITE
from cli.conftest import Command, dlq
from deadletter import App, ConfigError, Unavailable
from deadletter.core.errors import StoreLost
from deadletter.ports import QueueOptions
from deadletter.sync import SyncApp
from deadletter.testing.fakes import FakeClock

__all__ = ["dlq"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture(params=SQLITE)
def opened(request: pytest.FixtureRequest) -> Opened:
    return SQLITE[request.param]


@pytest.fixture
def connection(url: str, file: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file with mailboxes."""
    with SyncApp(url) as app:
        app.send("others", {"n": 0})
    with closing(sqlite3.connect(file)) as connection:
        yield connection


async def test_sent_if_and_only_if_committed(url: str, opened: Opened) -> None:
    await check_commit_and_rollback(url, opened, "orders")


async def test_the_commit_wakes_a_receiver(url: str, opened: Opened) -> None:
    assert await check_waiting_receiver(url, opened, "orders") < 1.5


async def test_another_file_is_refused(url: str, tmp_path: Path, opened: Opened) -> None:
    await check_other_database(url, f"sqlite:///{tmp_path}/other.db", opened)


async def test_a_thousand_transactions(url: str, dlq: Command) -> None:
    await check_many_transactions(url, SQLITE["sqlite3"], dlq, count=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("driver", SQLITE)
async def test_ten_thousand_transactions(url: str, dlq: Command, driver: str) -> None:
    await check_many_transactions(url, SQLITE[driver], dlq, count=10_000)


@pytest.mark.slow
async def test_kills_at_any_moment(url: str, dlq: Command) -> None:
    drivers = islice(cycle(SQLITE), 20)
    await check_kills(url, drivers, SQLITE["aiosqlite"], dlq)


def _rows(file: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM messages ORDER BY seq")]


async def test_rows_are_those_of_an_ordinary_send(url: str, file: Path) -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    options: dict[str, Any] = {
        "id": "o-1",
        "key": "customer-7",
        "delay": 30,
        "max_attempts": 3,
        "expires_in": 60,
        "idempotency_key": "i-1",
        "reply_to": "answers",
        "headers": {"tenant": "eu"},
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    async with App(url, clock=FakeClock(moment)) as app:
        await app.send("orders", {"n": 1}, **options)
        with closing(sqlite3.connect(file)) as connection:
            await app.send("orders", {"n": 1}, connection=connection, **options)
            connection.commit()
        await check_sums(app)

    ordinary, borrowed = _rows(file)
    assert ordinary.pop("seq") != borrowed.pop("seq")
    assert borrowed == ordinary


async def test_the_expiry_of_the_mailbox_holds(url: str, file: Path) -> None:

    async with App(url, clock=FakeClock(datetime(2026, 3, 1, tzinfo=UTC))) as app:
        await (await app.engine()).broker.create(QueueOptions(name="orders", expire_after=5))
        await app.send("orders", b"1")
        with closing(sqlite3.connect(file)) as connection:
            await app.send("orders", b"2", connection=connection)
            connection.commit()

    ordinary, borrowed = _rows(file)
    assert borrowed["expires_at"] == ordinary["expires_at"] is not None


async def test_a_failed_send_leaves_the_transaction_as_it_was(
    url: str, connection: sqlite3.Connection
) -> None:
    connection.execute(MAKE)
    connection.execute(
        "CREATE TRIGGER full BEFORE INSERT ON messages WHEN NEW.id = 'o-150'"
        " BEGIN SELECT raise(FAIL, 'no more'); END"
    )
    connection.commit()
    async with App(url) as app:
        connection.execute("INSERT INTO shop_orders VALUES (1)")
        many = [({"n": n}, {"id": f"o-{n}"}) for n in range(200)]
        with pytest.raises(sqlite3.IntegrityError, match="no more"):
            await app.send_many("orders", many, connection=connection)
        await app.send("orders", {"n": 7}, connection=connection)
        connection.commit()

        assert await in_mailbox(app) == [7]
        await check_sums(app)
    assert connection.execute("SELECT n FROM shop_orders").fetchall() == [(1,)]


async def test_a_statement_of_its_own_is_no_transaction(url: str, file: Path) -> None:
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    async with App(url) as app:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            with pytest.raises(ConfigError, match=r"in no transaction.*BEGIN IMMEDIATE"):
                await app.send("orders", b"1", connection=connection)
            connection.execute("BEGIN")
            await app.send("orders", {"n": 1}, connection=connection)
            connection.execute("COMMIT")
        async with aiosqlite.connect(file, isolation_level=None) as connection:
            with pytest.raises(ConfigError, match="in no transaction"):
                await app.send("orders", b"2", connection=connection)
        refused = pytest.raises(ConfigError, match="in no transaction")
        with engine.connect() as connection, refused:
            await app.send("orders", b"3", connection=connection)
        assert await in_mailbox(app) == [1]
    engine.dispose()


async def test_what_cannot_be_a_connection_is_refused(url: str, tmp_path: Path) -> None:
    async with App(url) as app:
        with pytest.raises(ConfigError, match=r"connection= is a builtins\.str: give an open"):
            await app.send("orders", b"1", connection="shop.db")
        with closing(sqlite3.connect(":memory:")) as connection:
            with pytest.raises(ConfigError, match="a database in memory"):
                await app.send("orders", b"1", connection=connection)
            connection.execute("ATTACH ? AS shop", (str(tmp_path / "shop.db"),))
            with pytest.raises(ConfigError, match=r"attached as 'shop'.*not atomic"):
                await app.send("orders", b"1", connection=connection)
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match="memory cannot send within a transaction"):
            await app.send("orders", b"1", connection=connection)


def test_awaited_connections_are_for_the_app(url: str) -> None:
    connection = aiosqlite.core.Connection(lambda: sqlite3.connect(":memory:"), 64)
    with SyncApp(url) as app, pytest.raises(ConfigError, match=r"await app\.send"):
        app.send("orders", b"1", connection=connection)


def test_a_temporary_table_does_not_catch_messages(
    url: str, connection: sqlite3.Connection
) -> None:
    for name in ("messages", "mailboxes"):
        connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM main.{name}")
    with SyncApp(url) as app:
        app.send("orders", {"n": 1}, connection=connection)
        connection.commit()
    assert connection.execute("SELECT count(*) FROM main.messages").fetchone() == (2,)
    assert connection.execute("SELECT count(*) FROM temp.messages").fetchone() == (1,)


def test_settings_of_the_connection_do_not_matter(url: str, connection: sqlite3.Connection) -> None:
    connection.row_factory = lambda cursor, row: "a row"
    connection.text_factory = bytes
    with SyncApp(url) as app:
        app.send("orders", {"n": 1}, connection=connection)
        connection.commit()
        assert app.call(in_mailbox(app.app)) == [1]
        app.call(check_sums(app.app))


def test_a_file_that_was_migrated_meanwhile_is_left_alone(
    url: str, connection: sqlite3.Connection
) -> None:
    with SyncApp(url) as app:
        app.send("orders", {"n": 1}, connection=connection)
        connection.commit()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 1}")
        with pytest.raises(Unavailable, match="another version has migrated it"):
            app.send("new", {"n": 2}, connection=connection)
        connection.commit()
        connection.execute(f"PRAGMA user_version = {version}")
    assert connection.execute("SELECT count(*) FROM messages").fetchone() == (2,)
    assert connection.execute("SELECT count(*) FROM mailboxes").fetchone() == (2,)


def test_a_removed_file_is_not_written(
    url: str, file: Path, connection: sqlite3.Connection
) -> None:
    with SyncApp(url) as app:
        app.send("orders", {"n": 1})
        away = file.rename(file.with_suffix(".away"))
        with pytest.raises(StoreLost, match="was removed"):
            app.send("orders", {"n": 2}, connection=connection)
        away.rename(file)


async def test_sums_with_another_key_add_up(
    url: str, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App(url) as app:  # makes its sums without a key
        await app.send("orders", {"n": 1}, connection=connection)
        connection.commit()
    monkeypatch.setenv("DLQ_SIGNING_KEYS", "a key that is long enough to be one of ours")
    async with App(url) as app:
        await app.send("orders", {"n": 2}, connection=connection)
        await app.send("mails", {"n": 3}, connection=connection)
        connection.commit()
        await check_sums(app)


async def test_a_file_of_an_application_takes_mailboxes_in(url: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(MAKE)
        connection.commit()
        with pytest.raises(ConfigError, match=r"it holds 'shop_orders'.*\?shared=true"):
            async with App(url):
                pass
        async with App(f"{url}?shared=true") as app:
            connection.execute("INSERT INTO shop_orders VALUES (1)")
            await app.send("orders", {"n": 1}, connection=connection)
            connection.commit()
    async with App(url) as app:  # it is known from then on
        assert await in_mailbox(app) == [1]


async def test_a_table_of_our_name_is_left_alone(url: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE messages (text)")
        connection.commit()
        with pytest.raises(ConfigError, match="table messages already exists"):
            async with App(f"{url}?shared=true"):
                pass
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("messages",)]


async def test_handlers_work_while_a_transaction_is_open(url: str, file: Path) -> None:
    """Writes of the worker wait for the transaction, and go on after it."""
    app = App(url)
    handled: list[int] = []
    stop = asyncio.Event()

    @app.handler("orders")
    async def handle(order: dict[str, int]) -> None:
        handled.append(order["n"])
        if len(handled) == 20:
            stop.set()

    async with app, aiosqlite.connect(file, timeout=30) as connection:
        working = asyncio.create_task(app.work(stop))
        for n in range(0, 20, 2):
            await app.send("orders", {"n": n})
            await app.send("orders", {"n": n + 1}, connection=connection)
            await asyncio.sleep(0.01)
            await connection.commit()
        async with asyncio.timeout(30):
            await working
        await check_sums(app)
    assert sorted(handled) == list(range(20))


async def test_one_id_is_handled_once_and_another_body_becomes_a_letter(
    url: str, connection: sqlite3.Connection
) -> None:
    app = App(url)
    handled: list[int] = []

    @app.handler("orders", idempotent=True)
    async def handle(order: dict[str, int]) -> None:
        handled.append(order["n"])

    async with app:
        await app.send("orders", {"n": 1}, id="o-1")
        await app.send("orders", {"n": 1}, id="o-1", connection=connection)
        await app.send("orders", {"n": 2}, id="o-1", connection=connection)
        await app.send("orders", {"n": 3}, id="o-3", connection=connection)
        await app.send("orders", {"n": 3}, id="o-3", connection=connection)
        connection.commit()
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        office = await app.office()
        async with asyncio.timeout(30):
            while not (page := await office.letters.search("")).heads or len(handled) < 2:  # noqa: ASYNC110 -- of a store
                await asyncio.sleep(0.02)
        stop.set()
        await working
        await check_sums(app)
    assert sorted(handled) == [1, 3]
    assert [(one.message_id, one.reason) for one in page.heads] == [("o-1", "id-conflict")]


def test_an_interrupted_call_says_so(url: str, connection: sqlite3.Connection) -> None:
    class Interrupting(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            raise KeyboardInterrupt

    other = sqlite3.connect(url.removeprefix("sqlite:///"), factory=Interrupting)
    with closing(other), SyncApp(url) as app:
        with pytest.raises(KeyboardInterrupt):
            app.send("orders", b"1", connection=other)
        app.send("orders", {"n": 2}, connection=connection)
        connection.commit()
        assert app.call(in_mailbox(app.app)) == [2]


def test_a_call_that_takes_too_long_is_undone(url: str, connection: sqlite3.Connection) -> None:
    class Slow(sqlite3.Connection):
        def cursor(self, *given: Any) -> Any:
            if self.in_transaction:
                time.sleep(0.2)
            return super().cursor(*given)

    slow = sqlite3.connect(url.removeprefix("sqlite:///"), factory=Slow)
    with closing(slow), SyncApp(url, timeout=0.5) as app:
        app.call(app.app.engine())
        with pytest.raises(Unavailable, match=r"no answer within 0\.5 seconds"):
            app.send("orders", b"1", connection=slow)
        slow.commit()
    assert connection.execute("SELECT name, sent FROM mailboxes").fetchall() == [("others", 1)]
    assert connection.execute("SELECT count(*) FROM messages").fetchone() == (1,)


async def test_handlers_send_within_transactions_as_well(
    url: str, tmp_path: Path, connection: sqlite3.Connection
) -> None:
    """The office may be elsewhere: only the mailbox has to be in the file."""
    app = App(url, office=f"sqlite:///{tmp_path}/office.db")

    @app.handler("orders")
    async def handle(order: dict[str, int]) -> None: ...

    async with app:
        await handle.send({"n": 1}, connection=connection)
        await handle.send_many([{"n": 2}], connection=connection)
        connection.rollback()
        await handle.send_many([{"n": 3}], connection=connection)
        await app.send_many("orders", [], connection=connection)
        connection.commit()
        assert await in_mailbox(app) == [3]


async def test_scoped_sessions(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    aengine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
    session = scoped_session(sessionmaker(engine))
    asession = async_scoped_session(async_sessionmaker(aengine), asyncio.current_task)
    async with App(url) as app:
        await app.send("orders", {"n": 1}, connection=session)
        session.commit()
        session.remove()
        await app.send("orders", {"n": 2}, connection=asession)
        await asession.commit()
        await asession.remove()
        assert await in_mailbox(app) == [1, 2]
    engine.dispose()
    await aengine.dispose()


async def test_a_later_delivery(url: str, connection: sqlite3.Connection) -> None:
    async with App(url) as app:
        later = datetime.now(UTC) + timedelta(hours=1)
        await app.send("orders", {"n": 1}, at=later, connection=connection)
        await app.send("orders", {"n": 2}, connection=connection)
        connection.commit()
        assert await in_mailbox(app) == [2]
