"""Tokens, sessions and answers in the file."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from deadletter.office.transactions.access import AccessTable, Transaction, TransactionalAccess
from deadletter.office.transactions.operations import run_now

from .engine import Database
from .sql import micros, shown, storable, stored, when

# ruff: noqa: S608 -- names of tables and columns are constants of ours

T = TypeVar("T")
R = TypeVar("R", bound=Struct)


class SqliteAccessOperations:
    """Operations inside one transaction; none of them waits."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def find(
        self, table: AccessTable[R], column: str, value: str, *, hold: bool = False
    ) -> R | None:
        """Return the record with this value; a write transaction holds the whole file."""
        sql = f"SELECT {_names(table)} FROM {table.name} WHERE {column} = ?"
        row = self._connection.execute(sql, (stored(value),)).fetchone()
        return None if row is None else _record(table, row)

    async def find_all(self, table: AccessTable[R]) -> list[R]:
        """Return all records."""
        rows = self._connection.execute(f"SELECT {_names(table)} FROM {table.name}")
        return [_record(table, row) for row in rows]

    async def insert(self, table: AccessTable[R], record: R) -> bool:
        """Insert a record; return False if a unique column has such a value already."""
        marks = ", ".join("?" * len(table.columns))
        sql = f"INSERT INTO {table.name} ({_names(table)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        return self._change(sql, *_row(table, record)) > 0

    async def update(self, table: AccessTable[R], record: R) -> None:
        """Replace the record with the same key."""
        columns = ", ".join(f"{name} = ?" for name in table.columns)
        self._change(
            f"UPDATE {table.name} SET {columns} WHERE {table.key} = ?",
            *_row(table, record),
            stored(getattr(record, table.key)),
        )

    async def delete(self, table: AccessTable[R], column: str, value: str) -> int:
        """Delete the records with this value; return their number."""
        return self._change(f"DELETE FROM {table.name} WHERE {column} = ?", stored(value))

    async def delete_expired(self, table: AccessTable[R], now: datetime, limit: int) -> int:
        """Delete up to `limit` expired records; return their number."""
        return self._change(
            f"DELETE FROM {table.name} WHERE {table.key} IN (SELECT {table.key}"
            f" FROM {table.name} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)",
            micros(now),
            limit,
        )

    def _change(self, sql: str, *values: Any) -> int:
        return self._connection.execute(sql, values).rowcount


def _names(table: AccessTable[R]) -> str:
    return ", ".join(table.columns)


def _row(table: AccessTable[R], record: R) -> Sequence[Any]:
    return storable([_stored(value) for value in table.row_of(record)])


def _stored(value: Any) -> Any:
    match value:
        case datetime():
            return micros(value)
        case tuple():
            return msgspec.json.encode(value).decode()
    return value


def _record(table: AccessTable[R], row: Sequence[Any]) -> R:
    return table.record_of([_shown(*one) for one in zip(table.columns, row, strict=True)])


def _shown(column: str, value: Any) -> Any:
    if column in AccessTable.times:
        return None if value is None else when(value)
    if column == "sources":
        return msgspec.json.decode(value)
    return value if column == "body" else shown(value)


class SqliteAccess(TransactionalAccess):
    """Access for every process that opens the file."""

    def __init__(self, db: Database) -> None:
        super().__init__(db.clock)
        self._db = db

    async def write(self, transaction: Transaction[T]) -> T:
        """Run a transaction on the writer thread."""
        return await self._db.write(lambda c: run_now(transaction(SqliteAccessOperations(c))))

    async def read(self, transaction: Transaction[T]) -> T:
        """Run a transaction on a reader's snapshot."""
        return await self._db.read(lambda c: run_now(transaction(SqliteAccessOperations(c))))
