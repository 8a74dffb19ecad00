"""The idempotency ledger in the file."""

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from deadletter.core.text import stored
from deadletter.ports.engine import LedgerClaim, LedgerKey, LedgerState, refused_claim, standing

from .engine import Database
from .sql import Tokens, micros, seconds

_CHUNK: Final = 100  # keys in one statement

# A claim is given for a new generation, after a failure, when an earlier claim
# has run out, and to the message that holds it already: delivered again, its
# earlier worker is fenced. Digests are 16 bytes each; what is NULL is not known.
_BEGIN: Final = """
INSERT INTO ledger (mailbox, key, generation, state, holder, token, due, digests)
VALUES {rows}
ON CONFLICT (mailbox, key) DO UPDATE SET generation = excluded.generation,
    state = excluded.state, holder = excluded.holder, token = excluded.token,
    due = excluded.due, expires_at = NULL,
    digests = CASE
        WHEN excluded.generation > ledger.generation
        THEN substr(CAST(ledger.digests || excluded.digests AS BLOB), -64)
        WHEN length(ledger.digests) > 16
        THEN CAST(substr(ledger.digests, 1, length(ledger.digests) - 16)
            || excluded.digests AS BLOB)
        ELSE excluded.digests END
WHERE excluded.generation > ledger.generation
OR excluded.generation = ledger.generation AND (
    ledger.state IN ('failed', 'dead_lettered')
    OR ledger.state = 'processing' AND (
        ledger.due <= ? OR ledger.holder = excluded.holder AND excluded.holder <> ''
        AND ifnull(substr(ledger.digests, -16) = excluded.digests, 1)))
"""
_STANDING: Final = """
SELECT json_group_array(json_array(asked.column1, generation, state, token,
    CASE WHEN state <> 'processing' THEN hex(digests) END))
FROM (VALUES {rows}) AS asked CROSS JOIN ledger
ON mailbox = asked.column2 AND key = asked.column3
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

# Generation, state, token; and, once it is finished, digests in hex.
_Standing: TypeAlias = tuple[int, LedgerState, int, str | None]
_standing: Final = msgspec.json.Decoder(list[tuple[int, int, LedgerState, int, str | None]]).decode


class SqliteLedger:
    """Idempotency keys in the file."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tokens = Tokens()

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """Claim keys for processing, in one transaction."""
        if not keys:
            return []
        tokens = [self._tokens.next() for _ in keys]
        by = seconds(lease)
        found = await self._db.write(lambda c: _begin(c, keys, tokens, self._now(), by), brief=True)
        return [
            LedgerClaim(key, True, found[i][1], token)
            if found[i][2] == token
            else refused_claim(key, found[i][1], _digests(found[i]))
            for i, (key, token) in enumerate(zip(keys, tokens, strict=True))
        ]

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record outcomes; return for each whether the claim was still valid."""
        if not outcomes:
            return []
        life = seconds(ttl)
        return await self._db.write(
            lambda c: _finish(c, outcomes, expires_at=self._now() + life), brief=True
        )

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """Return the states of keys without claiming them."""
        found = await self._db.read(lambda c: _look(c, keys))
        return [
            standing(key, *found[i][:2], _digests(found[i])) if i in found else None
            for i, key in enumerate(keys)
        ]

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether there is an entry of any of these mailboxes."""
        names = msgspec.json.encode([stored(name) for name in mailboxes]).decode()
        return await self._db.read(lambda c: bool(c.execute(_IN_USE, (names,)).fetchone()[0]))

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """Delete expired keys and abandoned claims; return how many."""
        values = (self._now(), limit)
        gone = await self._db.write(lambda c: c.execute(_FORGET, values).rowcount)
        if abandoned is None or gone >= limit:
            return gone
        return gone + await self._forget_left(seconds(abandoned), limit - gone)

    async def _forget_left(self, age: int, limit: int) -> int:
        # Claims have no index of their own, because every message would pay for
        # it. So they are sought where that keeps nobody from writing.
        values = (self._now() - age, limit)
        found = await self._db.read(lambda c: c.execute(_LEFT, values).fetchall())
        if not found:
            return 0
        return await self._db.write(lambda c: c.executemany(_FORGET_LEFT, found).rowcount)

    def _now(self) -> int:
        return micros(self._db.clock.now())


def _begin(
    connection: sqlite3.Connection,
    keys: Sequence[LedgerKey],
    tokens: Sequence[int],
    now: int,
    lease: int,
) -> dict[int, _Standing]:
    due = now + lease
    rows = [
        (key.mailbox, key.key, key.generation, "processing", key.holder, token, due, key.digest)
        for key, token in zip(keys, tokens, strict=True)
    ]
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        values: list[Any] = [value for row in chunk for value in row]
        connection.execute(_sql(_BEGIN, 8, len(chunk)), [*values, now])
    return _look(connection, keys)


def _look(connection: sqlite3.Connection, keys: Sequence[LedgerKey]) -> dict[int, _Standing]:
    """Return the entries of keys by their place in `keys`; missing keys are left out."""
    found: dict[int, _Standing] = {}
    for start in range(0, len(keys), _CHUNK):
        chunk = keys[start : start + _CHUNK]
        values: list[Any] = []
        for place, key in enumerate(chunk, start):
            values += (place, key.mailbox, key.key)
        (packed,) = connection.execute(_sql(_STANDING, 3, len(chunk)), values).fetchone()
        found.update((row[0], row[1:]) for row in _standing(packed))
    return found


def _finish(
    connection: sqlite3.Connection,
    outcomes: Sequence[tuple[LedgerClaim, LedgerState]],
    *,
    expires_at: int,
) -> list[bool]:
    changed = 0
    for start in range(0, len(outcomes), _CHUNK):
        chunk = outcomes[start : start + _CHUNK]
        values: list[Any] = [expires_at]
        for claim, state in chunk:
            values += (claim.key.mailbox, claim.key.key, claim.token, state)
        changed += connection.execute(_sql(_FINISH, 4, len(chunk)), values).rowcount
    if changed == len(outcomes):
        return [True] * changed
    # A token is never given twice, so what carries ours and our state was ours.
    found = _look(connection, [claim.key for claim, _ in outcomes])
    return [
        i in found and found[i][1:3] == (state, claim.token)
        for i, (claim, state) in enumerate(outcomes)
    ]


def _digests(standing: _Standing) -> bytes | None:
    return bytes.fromhex(standing[3]) if standing[3] else None


@cache
def _sql(template: str, columns: int, rows: int) -> str:
    row = "(" + ", ".join("?" * columns) + ")"
    return template.format(rows=", ".join([row] * rows))
