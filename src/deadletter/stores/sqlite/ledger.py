"""The idempotency ledger in the file."""

import sqlite3
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from deadletter.core.text import stored
from deadletter.office.transactions.ledger import Ended, Entry, LedgerOperations, Name, StoredLedger
from deadletter.office.transactions.operations import run_now
from deadletter.ports.engine import LedgerState

from .engine import Database
from .sql import micros, seconds

T = TypeVar("T")

_CHUNK: Final = 100  # keys in one statement

_FIND: Final = """
SELECT json_group_array(json_array(mailbox, key, generation, state,
    iif(state = 'processing', holder, ''), token, hex(digests), due <= ?))
FROM (VALUES {rows}) AS asked CROSS JOIN ledger
ON mailbox = asked.column1 AND key = asked.column2
"""
# Digests are 16 bytes each; what is NULL is not known.
_WRITE: Final = """
INSERT INTO ledger (mailbox, key, generation, state, holder, token, due, digests)
VALUES {rows}
ON CONFLICT (mailbox, key) DO UPDATE SET generation = excluded.generation,
    state = excluded.state, holder = excluded.holder, token = excluded.token,
    due = excluded.due, expires_at = NULL, digests = excluded.digests
"""
_IN_USE: Final = """
SELECT EXISTS (SELECT 1 FROM json_each(?) CROSS JOIN ledger ON mailbox = value)
"""
_FINISH: Final = """
UPDATE ledger SET state = given.column4, expires_at = ?
FROM (VALUES {rows}) AS given
WHERE mailbox = given.column1 AND key = given.column2 AND token = given.column3
AND state IN ('processing', given.column4)
"""
_FORGET: Final = """
DELETE FROM ledger WHERE (mailbox, key) IN (
    SELECT mailbox, key FROM ledger WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)
"""

_LEFT: Final = """
SELECT mailbox, key, token FROM ledger WHERE state = 'processing' AND due <= ? LIMIT ?
"""
# By its token: whoever has taken it up meanwhile has another one.
_FORGET_LEFT: Final = """
DELETE FROM ledger
WHERE mailbox = ? AND key = ? AND token = ? AND state = 'processing'
"""

_Row: TypeAlias = tuple[str, str, int, LedgerState, str, int, str, int]
_rows: Final = msgspec.json.Decoder(list[_Row]).decode


class SqliteLedger(StoredLedger):
    """Idempotency keys in the file."""

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db

    async def transact(self, work: Callable[[LedgerOperations], Coroutine[Any, Any, T]]) -> T:
        """Run operations in one transaction, on the writer's thread."""
        return await self._db.write(
            lambda c: run_now(work(_Operations(c, self._now()))), brief=True
        )

    async def find(self, names: Collection[Name]) -> dict[Name, Entry]:
        """Return the entries of keys."""
        return await self._db.read(lambda c: _find(c, names, self._now()))

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether there is an entry of any of these mailboxes."""
        names = msgspec.json.encode([stored(name) for name in mailboxes]).decode()
        return await self._db.read(lambda c: bool(c.execute(_IN_USE, (names,)).fetchone()[0]))

    async def delete_expired(self, limit: int) -> int:
        """Delete finished keys whose time to live is over; return their number."""
        values = (self._now(), limit)
        return await self._db.write(lambda c: c.execute(_FORGET, values).rowcount)

    async def delete_abandoned(self, age: float, limit: int) -> int:
        """Delete claims whose lease ran out `age` seconds ago; return their number."""
        # Claims have no index of their own, because every message would pay for
        # it. So they are sought where that keeps nobody from writing.
        values = (self._now() - seconds(age), limit)
        found = await self._db.read(lambda c: c.execute(_LEFT, values).fetchall())
        if not found:
            return 0
        return await self._db.write(lambda c: c.executemany(_FORGET_LEFT, found).rowcount)

    def _now(self) -> int:
        return micros(self._db.clock.now())


class _Operations:
    """One transaction of a connection; none of them ever waits."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now

    async def claim_new(self, claims: Mapping[Name, Entry], lease: float) -> dict[Name, Entry]:
        """Return the entries of keys."""
        return _find(self._connection, claims, self._now)

    async def write(
        self, claims: Mapping[Name, Entry], found: Mapping[Name, Entry], lease: float
    ) -> Collection[Name]:
        """Write claims; return their keys."""
        due = self._now + seconds(lease)
        rows = [
            (*name, one.generation, "processing", one.holder, one.token, due, one.digests)
            for name, one in claims.items()
        ]
        for values in _chunks(rows):
            self._connection.execute(_sql(_WRITE, 8, len(values) // 8), values)
        return claims.keys()

    async def finish(self, ended: Sequence[Ended], ttl: float) -> Collection[Ended]:
        """Write outcomes of claims that still have their token; return those that had."""
        expires_at = self._now + seconds(ttl)
        changed = 0
        for values in _chunks([(*name, token, state) for name, token, state in ended]):
            statement = _sql(_FINISH, 4, len(values) // 4)
            changed += self._connection.execute(statement, (expires_at, *values)).rowcount
        if changed == len(ended):
            return ended
        # A token is never given twice, so what carries ours and our state was ours.
        found = _find(self._connection, {name for name, _, _ in ended}, self._now)
        return {(name, entry.token, entry.state) for name, entry in found.items()}


def _find(connection: sqlite3.Connection, names: Iterable[Name], now: int) -> dict[Name, Entry]:
    found: dict[Name, Entry] = {}
    for values in _chunks([*names]):
        statement = _sql(_FIND, 2, len(values) // 2)
        (packed,) = connection.execute(statement, (now, *values)).fetchone()
        for mailbox, key, generation, state, holder, token, digests, is_lapsed in _rows(packed):
            known = bytes.fromhex(digests) if digests else None
            found[mailbox, key] = Entry(generation, state, holder, token, known, is_lapsed == 1)
    return found


def _chunks(rows: Sequence[Sequence[Any]]) -> Iterable[list[Any]]:
    for start in range(0, len(rows), _CHUNK):
        yield [value for row in rows[start : start + _CHUNK] for value in row]


@cache
def _sql(template: str, columns: int, rows: int) -> str:
    row = "(" + ", ".join("?" * columns) + ")"
    return template.format(rows=", ".join([row] * rows))
