"""
Applications with a connection of their own, one for each driver, that send within transactions.

Each keeps rows in a table `shop_orders` beside the mailboxes: a row stands for a commit.
"""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import aiosqlite
import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connection as django_connection
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from deadletter import App
from deadletter.sync import SyncApp

T = TypeVar("T")

MAKE: Final = "CREATE TABLE IF NOT EXISTS shop_orders (n integer PRIMARY KEY)"
_NUMBERS: Final = "SELECT n FROM shop_orders ORDER BY n"
_INSERT: Final = "INSERT INTO shop_orders VALUES ({})"  # a number of ours


class Shop(ABC):
    """An application with one connection."""

    connection: object

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    async def run(self, sql: str) -> None: ...

    @abstractmethod
    async def numbers(self) -> list[int]:
        """Return the rows that were committed, in order; ends its transaction."""

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...

    async def send(self, app: App, mailbox: str, *bodies: object, **options: Any) -> list[str]:
        """Send within the transaction, as an application with this driver does."""
        return await app.send_many(mailbox, bodies, connection=self.connection, **options)

    async def order(self, app: App, n: int, *, commits: bool, mailbox: str = "orders") -> None:
        """Write a row and send a message, then commit, or roll back."""
        await self.begin()
        await self.run(_INSERT.format(n))
        await self.send(app, mailbox, {"n": n})
        await (self.commit() if commits else self.rollback())


class _SyncShop(Shop):
    """With a driver that blocks: all of it happens on one thread."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._sync: SyncApp | None = None  # of its own, on another loop than that of the test

    async def there(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def send(self, app: App, mailbox: str, *bodies: object, **options: Any) -> list[str]:
        sync = self._sync = self._sync or SyncApp(app.url)
        return await self.there(
            lambda: sync.send_many(mailbox, bodies, connection=self.connection, **options)
        )

    async def close(self) -> None:
        if self._sync is not None:
            await asyncio.to_thread(self._sync.close)


class _Dbapi(_SyncShop):
    """sqlite3 or psycopg."""

    connection: Any

    def __init__(self, thread: ThreadPoolExecutor, connection: Any) -> None:
        super().__init__(thread)
        self.connection = connection

    async def begin(self) -> None:
        pass  # with the first statement that writes

    async def run(self, sql: str) -> None:
        await self.there(lambda: self.connection.execute(self.text(sql)))

    async def numbers(self) -> list[int]:
        rows = await self.there(lambda: self.connection.execute(self.text(_NUMBERS)).fetchall())
        await self.commit()
        return [row[0] for row in rows]

    def text(self, sql: str) -> Any:
        return sql

    async def commit(self) -> None:
        await self.there(self.connection.commit)

    async def rollback(self) -> None:
        await self.there(self.connection.rollback)


class _SqlAlchemy(_Dbapi):
    def text(self, sql: str) -> Any:
        return sqlalchemy.text(sql)


class _Django(_SyncShop):
    def __init__(self, thread: ThreadPoolExecutor) -> None:
        super().__init__(thread)
        self.connection = django_connection

    async def begin(self) -> None:
        self._atomic = transaction.atomic()
        await self.there(self._atomic.__enter__)

    async def run(self, sql: str) -> None:
        def running() -> None:
            with django_connection.cursor() as cursor:
                cursor.execute(sql)

        await self.there(running)

    async def numbers(self) -> list[int]:
        def running() -> list[int]:
            with django_connection.cursor() as cursor:
                cursor.execute(_NUMBERS)
                return [row[0] for row in cursor.fetchall()]

        return await self.there(running)

    async def commit(self) -> None:
        await self.there(lambda: self._atomic.__exit__(None, None, None))

    async def rollback(self) -> None:
        error = RuntimeError("roll back")
        await self.there(lambda: self._atomic.__exit__(RuntimeError, error, None))


class _Asyncpg(Shop):
    def __init__(self, connection: Any) -> None:
        self.connection: Any = connection

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def run(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def numbers(self) -> list[int]:
        return [row[0] for row in await self.connection.fetch(_NUMBERS)]

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


class _AsyncDbapi(Shop):
    """aiosqlite or psycopg."""

    def __init__(self, connection: Any) -> None:
        self.connection: Any = connection

    async def begin(self) -> None:
        pass

    async def run(self, sql: str) -> None:
        await self.connection.execute(sql)

    async def numbers(self) -> list[int]:
        rows = await (await self.connection.execute(_NUMBERS)).fetchall()
        await self.connection.commit()
        return [row[0] for row in rows]

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()


class _AsyncSqlAlchemy(_AsyncDbapi):
    async def run(self, sql: str) -> None:
        await self.connection.execute(sqlalchemy.text(sql))

    async def numbers(self) -> list[int]:
        rows = (await self.connection.execute(sqlalchemy.text(_NUMBERS))).fetchall()
        await self.connection.commit()
        return [row[0] for row in rows]


@contextmanager
def _thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


@asynccontextmanager
async def _blocking(
    kind: Callable[[ThreadPoolExecutor, Any], _SyncShop], connect: Callable[[], Any]
) -> AsyncIterator[Shop]:
    with _thread() as thread:
        shop = kind(thread, await asyncio.wrap_future(thread.submit(connect)))
        yield shop
        await shop.there(shop.connection.close)  # type: ignore[attr-defined]
        await shop.close()


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Shop]:
    async with _blocking(_Dbapi, lambda: psycopg.connect(url)) as shop:
        yield shop


@asynccontextmanager
async def _sqlite3(url: str) -> AsyncIterator[Shop]:
    async with _blocking(_Dbapi, lambda: sqlite3.connect(_file(url), timeout=30)) as shop:
        yield shop


@asynccontextmanager
async def _sqlalchemy(url: str) -> AsyncIterator[Shop]:
    engine = sqlalchemy.create_engine(_sqlalchemy_url(url, "psycopg", "pysqlite"))
    async with _blocking(_SqlAlchemy, engine.connect) as shop:
        yield shop
    engine.dispose()


@asynccontextmanager
async def _sqlalchemy_session(url: str) -> AsyncIterator[Shop]:
    engine = sqlalchemy.create_engine(_sqlalchemy_url(url, "psycopg", "pysqlite"))
    async with _blocking(_SqlAlchemy, lambda: Session(engine)) as shop:
        yield shop
    engine.dispose()


@asynccontextmanager
async def _django(url: str) -> AsyncIterator[Shop]:
    use_django(url)
    with _thread() as thread:
        shop = _Django(thread)
        yield shop
        await shop.there(lambda: django_connection.close())  # noqa: PLW0108 -- of that thread
        await shop.close()


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Shop]:
    connection = await asyncpg.connect(url)
    yield _Asyncpg(connection)
    await connection.close()


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Shop]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        yield _Asyncpg(connection)


@asynccontextmanager
async def _async_psycopg(url: str) -> AsyncIterator[Shop]:
    connection = await psycopg.AsyncConnection.connect(url)
    yield _AsyncDbapi(connection)
    await connection.close()


@asynccontextmanager
async def _aiosqlite(url: str) -> AsyncIterator[Shop]:
    async with aiosqlite.connect(_file(url), timeout=30) as connection:
        yield _AsyncDbapi(connection)


@asynccontextmanager
async def _async_sqlalchemy(url: str) -> AsyncIterator[Shop]:
    engine = create_async_engine(_sqlalchemy_url(url, "asyncpg", "aiosqlite"))
    async with engine.connect() as connection:
        yield _AsyncSqlAlchemy(connection)
    await engine.dispose()


@asynccontextmanager
async def _async_sqlalchemy_session(url: str) -> AsyncIterator[Shop]:
    engine = create_async_engine(_sqlalchemy_url(url, "asyncpg", "aiosqlite"))
    async with AsyncSession(engine) as session:
        yield _AsyncSqlAlchemy(session)
    await engine.dispose()


@asynccontextmanager
async def _async_sqlalchemy_psycopg(url: str) -> AsyncIterator[Shop]:
    engine = create_async_engine(_sqlalchemy_url(url, "psycopg", "aiosqlite"))
    async with engine.connect() as connection:
        yield _AsyncSqlAlchemy(connection)
    await engine.dispose()


POSTGRESQL: Final = {
    "asyncpg": _asyncpg,
    "asyncpg-pool": _asyncpg_pool,
    "psycopg": _psycopg,
    "psycopg-async": _async_psycopg,
    "sqlalchemy": _sqlalchemy,
    "sqlalchemy-session": _sqlalchemy_session,
    "sqlalchemy-asyncpg": _async_sqlalchemy,
    "sqlalchemy-asyncpg-session": _async_sqlalchemy_session,
    "sqlalchemy-psycopg-async": _async_sqlalchemy_psycopg,
    "django": _django,
}
SQLITE: Final = {
    "sqlite3": _sqlite3,
    "aiosqlite": _aiosqlite,
    "sqlalchemy": _sqlalchemy,
    "sqlalchemy-session": _sqlalchemy_session,
    "sqlalchemy-aiosqlite": _async_sqlalchemy,
    "sqlalchemy-aiosqlite-session": _async_sqlalchemy_session,
    "django": _django,
}


def use_django(url: str) -> None:
    """Have `django.db.connection` lead to a database; the process has one Django."""
    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    parts = sqlalchemy.make_url(url)
    if parts.drivername == "sqlite":
        given = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(_file(url))}
    else:
        given = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.database,
            "USER": parts.username,
            "PASSWORD": parts.password,
            "HOST": parts.host,
            "PORT": parts.port,
        }
    connections.settings["default"] = connections.configure_settings({"default": given})["default"]


def _file(url: str) -> Path:
    return Path(url.partition("?")[0].removeprefix("sqlite:///"))


def _sqlalchemy_url(url: str, postgresql: str, sqlite: str) -> str:
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}+{sqlite if scheme == 'sqlite' else postgresql}://{rest}"
