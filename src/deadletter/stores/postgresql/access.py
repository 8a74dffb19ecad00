"""Tokens, sessions and answers in the database."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from deadletter.core.text import shown, stored
from deadletter.office.transactions.access import AccessTable, Transaction, TransactionalAccess
from deadletter.ports.features import Clock

from .database import Database, limit_for
from .rows import legible, storable

# ruff: noqa: S608 -- names of tables and columns are constants of ours

T = TypeVar("T")
R = TypeVar("R", bound=Struct)


class PostgresqlAccessOperations:
    """Operations by single statements, with `fetch` of a transaction or of the database."""

    def __init__(self, fetch: Callable[..., Awaitable[list[Any]]]) -> None:
        self._fetch = fetch

    async def find(
        self, table: AccessTable[R], column: str, value: str, *, hold: bool = False
    ) -> R | None:
        """Return the record with this value, locked with `hold`, or None."""
        lock = "FOR UPDATE" if hold else ""
        sql = f"SELECT {_names(table)} FROM deadletter.{table.name} WHERE {column} = $1 {lock}"
        rows = await self._fetch(sql, stored(value))
        return _record(table, rows[0]) if rows else None

    async def find_all(self, table: AccessTable[R]) -> list[R]:
        """Return all records."""
        rows = await self._fetch(f"SELECT {_names(table)} FROM deadletter.{table.name}")
        return [_record(table, row) for row in rows]

    async def insert(self, table: AccessTable[R], record: R) -> bool:
        """Insert a record; return False if a unique column has such a value already."""
        marks = ", ".join(f"${n}" for n in range(1, len(table.columns) + 1))
        sql = (
            f"INSERT INTO deadletter.{table.name} ({_names(table)}) VALUES ({marks})"
            " ON CONFLICT DO NOTHING RETURNING 1"
        )
        return bool(await self._fetch(sql, *_row(table, record)))

    async def update(self, table: AccessTable[R], record: R) -> None:
        """Replace the record with the same key."""
        columns = ", ".join(f"{name} = ${n}" for n, name in enumerate(table.columns, 1))
        key = f"${table.columns.index(table.key) + 1}"
        sql = f"UPDATE deadletter.{table.name} SET {columns} WHERE {table.key} = {key}"
        await self._fetch(sql, *_row(table, record))

    async def delete(self, table: AccessTable[R], column: str, value: str) -> int:
        """Delete the records with this value; return their number."""
        sql = f"DELETE FROM deadletter.{table.name} WHERE {column} = $1 RETURNING 1"
        return len(await self._fetch(sql, stored(value)))

    async def delete_expired(self, table: AccessTable[R], now: datetime, limit: int) -> int:
        """Delete up to `limit` expired records that nobody else holds; return their number."""
        sql = f"""
        WITH gone AS MATERIALIZED (
            SELECT {table.key} AS key FROM deadletter.{table.name} WHERE expires_at <= $1
            ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
        DELETE FROM deadletter.{table.name} WHERE {table.key} = ANY(ARRAY(SELECT key FROM gone))
        RETURNING 1
        """
        return len(await self._fetch(sql, now, limit))


def _names(table: AccessTable[R]) -> str:
    return ", ".join(table.columns)


def _row(table: AccessTable[R], record: R) -> Sequence[Any]:
    row = table.row_of(record)
    return storable(
        [[stored(one) for one in value] if isinstance(value, tuple) else value for value in row]
    )


def _record(table: AccessTable[R], row: Sequence[Any]) -> R:
    return table.record_of(
        [
            tuple(shown(one) for one in value) if isinstance(value, list) else value
            for value in legible(row)
        ]
    )


class PostgresqlAccess(TransactionalAccess):
    """Access for every process that uses the database."""

    def __init__(self, db: Database, clock: Clock) -> None:
        super().__init__(clock)
        self._db = db

    async def write(self, transaction: Transaction[T]) -> T:
        """Run a transaction, again if others were in the way."""
        return await self._db.write(
            lambda c: transaction(PostgresqlAccessOperations(c.fetch)), within=limit_for()
        )

    async def read(self, transaction: Transaction[T]) -> T:
        """Run a transaction of one statement."""
        return await transaction(PostgresqlAccessOperations(self._db.fetch))
