"""
Connections of applications to their databases, one adapter for each driver.

They are recognised by the names of their classes, so that no driver is imported, or needed,
that the application does not use itself.
"""

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, TypeAlias

from deadletter.core.errors import ConfigError
from deadletter.ports.transactions import Dialect, Rows

# One place translates parameters. Engines write `$1` for PostgreSQL and `?` for SQLite.


class Paramstyle(Enum):
    """How a driver wants parameters."""

    NATIVE = "$1 or ?, as the engines write them"
    PYFORMAT = "%(p1)s"
    FORMAT = "%s"


Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]

_NUMBERED: Final = re.compile(r"\$(\d+)")


def translated(sql: str, values: Sequence[Any], style: Paramstyle) -> tuple[str, Parameters]:
    """Return a statement and its values as a driver takes them."""
    if style is Paramstyle.NATIVE or not values:
        return sql, tuple(values)
    sql = sql.replace("%", "%%")
    if style is Paramstyle.FORMAT:
        return sql.replace("?", "%s"), tuple(values)
    named = {f"p{number}": value for number, value in enumerate(values, 1)}
    return _NUMBERED.sub(r"%(p\1)s", sql), named


# What a driver says of its transaction.

_IDLE: Final = 0  # of libpq: connected, and in no transaction
_LEGACY: Final = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, since Python 3.12
_BEGIN: Final = "BEGIN IMMEDIATE"  # a transaction that begins by reading may not get to write


def must_begin(driver: Any) -> bool:
    """
    Return whether a transaction is still to be begun, by us.

    False if one is open, or begins by itself with the next statement. Raises ConfigError if
    each statement would be committed by itself.
    """
    is_open = False
    match _home(driver):
        case "sqlite3" | "aiosqlite":
            if not driver.in_transaction and _begins_by_itself(driver):
                return True
            is_open = driver.in_transaction
        case "psycopg":
            is_open = driver.info.transaction_status != _IDLE or not driver.autocommit
        case "asyncpg":
            is_open = driver.is_in_transaction()
        case home:
            raise ConfigError(
                f"connection= is a connection of {home}, which is not supported: use asyncpg or"
                " psycopg 3 for PostgreSQL, sqlite3 or aiosqlite for SQLite"
            )
    if not is_open:
        raise ConfigError(
            "connection= is in no transaction, so that each statement would be committed by"
            " itself: begin one before you send, and commit it when your own changes are made"
            " (asyncpg and psycopg: connection.transaction(); Django: transaction.atomic();"
            ' sqlite3: connection.execute("BEGIN IMMEDIATE"); SQLAlchemy: no AUTOCOMMIT)'
        )
    return False


def _begins_by_itself(driver: Any) -> bool:
    """Return whether a connection of sqlite3 begins transactions before it writes."""
    connection = getattr(driver, "_conn", driver)  # in one of aiosqlite
    mode = getattr(connection, "autocommit", _LEGACY)
    return mode == _LEGACY and driver.isolation_level is not None


class SyncConnection(ABC):
    """A connection that blocks, used on the thread that it is called on."""

    dialect: Dialect

    @abstractmethod
    def driver(self) -> object:
        """Return the driver's own connection."""

    @abstractmethod
    def fetch(self, sql: str, *values: Any) -> Rows:
        """Run one statement; return its rows."""

    def enter(self) -> None:
        """Make sure that a transaction is open; raise ConfigError if none can be."""
        if must_begin(self.driver()):
            self.fetch(_BEGIN)


class AsyncConnection(ABC):
    """A connection that is awaited, used on its own event loop."""

    dialect: Dialect

    @abstractmethod
    async def driver(self) -> object:
        """Return the driver's own connection."""

    @abstractmethod
    async def fetch(self, sql: str, *values: Any) -> Rows:
        """Run one statement; return its rows."""

    async def enter(self) -> None:
        """Make sure that a transaction is open; raise ConfigError if none can be."""
        if must_begin(await self.driver()):
            await self.fetch(_BEGIN)


class _Sqlite3(SyncConnection):
    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def driver(self) -> object:
        return self._connection

    def fetch(self, sql: str, *values: Any) -> Rows:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # the application's own may return anything
        return cursor.execute(sql, values).fetchall()


class _Aiosqlite(AsyncConnection):
    dialect: Dialect = "sqlite"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def driver(self) -> object:
        return self._connection

    async def fetch(self, sql: str, *values: Any) -> Rows:
        async with self._connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(sql, values)
            rows: Rows = await cursor.fetchall()
            return rows


def _tuples(_: object) -> type[tuple[Any, ...]]:
    """Have psycopg return rows as tuples, whatever the application's own rows are."""
    return tuple


class _Psycopg(SyncConnection):
    dialect: Dialect = "postgresql"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def driver(self) -> object:
        return self._connection

    def fetch(self, sql: str, *values: Any) -> Rows:
        with self._connection.cursor(row_factory=_tuples) as cursor:
            cursor.execute(*translated(sql, values, Paramstyle.PYFORMAT))
            return cursor.fetchall() if cursor.description else []


class _AsyncPsycopg(AsyncConnection):
    dialect: Dialect = "postgresql"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def driver(self) -> object:
        return self._connection

    async def fetch(self, sql: str, *values: Any) -> Rows:
        async with self._connection.cursor(row_factory=_tuples) as cursor:
            await cursor.execute(*translated(sql, values, Paramstyle.PYFORMAT))
            return await cursor.fetchall() if cursor.description else []


class _Asyncpg(AsyncConnection):
    dialect: Dialect = "postgresql"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def driver(self) -> object:
        # What a pool lends is a new object each time, around the same connection.
        return getattr(self._connection, "_con", self._connection)

    async def fetch(self, sql: str, *values: Any) -> Rows:
        rows: Rows = await self._connection.fetch(sql, *values)
        return rows


_SQLALCHEMY_STYLES: Final = {
    "qmark": Paramstyle.NATIVE,
    "numeric_dollar": Paramstyle.NATIVE,
    "pyformat": Paramstyle.PYFORMAT,
}


class _SqlAlchemy(SyncConnection):
    """
    A Connection, or a Session, whose connection is the one of its transaction.

    All statements go through it: SQLAlchemy begins with the first one, and only then commits.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        self.dialect, self._style = _spoken(given)

    def driver(self) -> object:
        driver: object = self._connection().connection.driver_connection
        return driver

    def fetch(self, sql: str, *values: Any) -> Rows:
        statement, parameters = translated(sql, values, self._style)
        result = self._connection().exec_driver_sql(statement, parameters or None)
        return result.fetchall() if result.returns_rows else []

    def _connection(self) -> Any:
        given = self._given
        return given.connection() if hasattr(given, "get_bind") else given


class _AsyncSqlAlchemy(AsyncConnection):
    """As above, awaited."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.dialect, self._style = _spoken(given)

    async def driver(self) -> object:
        raw = await (await self._connection()).get_raw_connection()
        driver: object = raw.driver_connection
        return driver

    async def enter(self) -> None:
        if _home(await self.driver()) == "asyncpg":
            await self.fetch("SELECT 1")  # with which SQLAlchemy begins for asyncpg
        await super().enter()

    async def fetch(self, sql: str, *values: Any) -> Rows:
        statement, parameters = translated(sql, values, self._style)
        connection = await self._connection()
        result = await connection.exec_driver_sql(statement, parameters or None)
        return result.fetchall() if result.returns_rows else []

    async def _connection(self) -> Any:
        given = self._given
        return await given.connection() if hasattr(given, "get_bind") else given


class _Django(SyncConnection):
    """`django.db.connection`, or another of `django.db.connections`."""

    _STYLES: ClassVar[dict[Dialect, Paramstyle]] = {
        "postgresql": Paramstyle.PYFORMAT,
        "sqlite": Paramstyle.FORMAT,
    }

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.dialect = _dialect(connection.vendor)

    def driver(self) -> object:
        self._connection.ensure_connection()
        driver: object = self._connection.connection
        return driver

    def fetch(self, sql: str, *values: Any) -> Rows:
        with self._connection.cursor() as cursor:
            statement, parameters = translated(sql, values, self._STYLES[self.dialect])
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []


def _spoken(given: Any) -> tuple[Dialect, Paramstyle]:
    """Return which SQL a connection or session of SQLAlchemy takes, and with which parameters."""
    dialect = (given.get_bind() if hasattr(given, "get_bind") else given).dialect
    style = _SQLALCHEMY_STYLES.get(dialect.paramstyle)
    if style is None:
        raise ConfigError(
            f"connection= uses {dialect.driver} through SQLAlchemy, which is not supported: use"
            " postgresql+asyncpg, postgresql+psycopg, sqlite or sqlite+aiosqlite"
        )
    return _dialect(dialect.name), style


def _dialect(name: str) -> Dialect:
    if name == "postgresql":
        return "postgresql"
    if name == "sqlite":
        return "sqlite"
    raise ConfigError(
        f"connection= leads to {name}: messages can be sent within transactions of PostgreSQL and"
        " of SQLite, to mailboxes in the same database"
    )


_SYNC: Final[dict[tuple[str, str], type[Any]]] = {
    ("sqlite3", "Connection"): _Sqlite3,
    ("psycopg", "Connection"): _Psycopg,
    ("sqlalchemy", "Connection"): _SqlAlchemy,
    ("sqlalchemy", "Session"): _SqlAlchemy,
    ("sqlalchemy", "scoped_session"): _SqlAlchemy,
    ("django", "ConnectionProxy"): _Django,
    ("django", "BaseDatabaseWrapper"): _Django,
}
_ASYNC: Final[dict[tuple[str, str], type[Any]]] = {
    ("aiosqlite", "Connection"): _Aiosqlite,
    ("psycopg", "AsyncConnection"): _AsyncPsycopg,
    ("asyncpg", "Connection"): _Asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _Asyncpg,
    ("sqlalchemy", "AsyncConnection"): _AsyncSqlAlchemy,
    ("sqlalchemy", "AsyncSession"): _AsyncSqlAlchemy,
    ("sqlalchemy", "async_scoped_session"): _AsyncSqlAlchemy,
}


def adapter(connection: Any) -> SyncConnection | AsyncConnection:
    """Return the adapter of a connection; raise ConfigError for anything else."""
    for kind in type(connection).__mro__:
        name = kind.__module__.partition(".")[0], kind.__name__
        found = _SYNC.get(name) or _ASYNC.get(name)
        if found is not None:
            adapted: SyncConnection | AsyncConnection = found(connection)
            return adapted
    kind = type(connection)
    raise ConfigError(
        f"connection= is a {kind.__module__}.{kind.__qualname__}: give an open connection of"
        " asyncpg, psycopg 3, sqlite3, aiosqlite or Django, or a connection or session of"
        " SQLAlchemy 2"
    )


def _home(driver: object) -> str:
    """Return the package that a driver's connection comes from."""
    homes = [kind.__module__.partition(".")[0] for kind in type(driver).__mro__]
    known = {"sqlite3", "aiosqlite", "psycopg", "asyncpg"}
    return next((home for home in homes if home in known), homes[0])
