"""Tokens, sessions and answers in memory."""

from collections import defaultdict
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from deadletter.office.transactions.access import AccessTable, Transaction, TransactionalAccess
from deadletter.office.transactions.operations import run_now
from deadletter.ports.features import Clock

T = TypeVar("T")
R = TypeVar("R", bound=Struct)


class MemoryAccessOperations:
    """Operations on records in dictionaries."""

    def __init__(self) -> None:
        self._tables: defaultdict[str, dict[str, Any]] = defaultdict(dict)  # records by key

    async def find(
        self, table: AccessTable[R], column: str, value: str, *, hold: bool = False
    ) -> R | None:
        """Return the record with this value in a unique column, or None."""
        return next((one for one in await self.find_all(table) if _has(one, column, value)), None)

    async def find_all(self, table: AccessTable[R]) -> list[R]:
        """Return all records."""
        return list(self._tables[table.name].values())

    async def insert(self, table: AccessTable[R], record: R) -> bool:
        """Insert a record; return False if a unique column has such a value already."""
        for column in table.unique:
            if await self.find(table, column, getattr(record, column)) is not None:
                return False
        await self.update(table, record)
        return True

    async def update(self, table: AccessTable[R], record: R) -> None:
        """Replace the record with the same key."""
        self._tables[table.name][getattr(record, table.key)] = record

    async def delete(self, table: AccessTable[R], column: str, value: str) -> int:
        """Delete the records with this value; return their number."""
        gone = [one for one in await self.find_all(table) if _has(one, column, value)]
        return self._remove(table, gone)

    async def delete_expired(self, table: AccessTable[R], now: datetime, limit: int) -> int:
        """Delete up to `limit` expired records; return their number."""
        gone = [one for one in await self.find_all(table) if getattr(one, "expires_at") <= now]  # noqa: B009
        return self._remove(table, gone[:limit])

    def _remove(self, table: AccessTable[R], records: list[R]) -> int:
        for record in records:
            del self._tables[table.name][getattr(record, table.key)]
        return len(records)


def _has(record: Struct, column: str, value: str) -> bool:
    return bool(getattr(record, column) == value)


class MemoryAccess(TransactionalAccess):
    """Access of one process."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._operations = MemoryAccessOperations()

    async def write(self, transaction: Transaction[T]) -> T:
        """Run a transaction; nothing else runs in between."""
        return run_now(transaction(self._operations))

    read = write
