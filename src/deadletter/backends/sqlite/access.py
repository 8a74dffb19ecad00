"""Tokens, sessions and answers in the file."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.access import Answer, Session, Token, to_the_hour
from deadletter.core.errors import Conflict, NotFound

from .access_rows import (
    ANSWER,
    SESSION,
    TOKEN,
    answer_of,
    answer_row,
    session_of,
    session_row,
    token_of,
    token_row,
)
from .engine import Database
from .rows import micros
from .sql import Row, storable

# ruff: noqa: S608 -- all SQL here is made of constants
_ADD: Final = f"""
INSERT INTO access_tokens ({TOKEN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_TOKEN: Final = f"SELECT {TOKEN} FROM access_tokens WHERE hash = ?"
_BY_NAME: Final = f"SELECT {TOKEN} FROM access_tokens ORDER BY name, id"
_USED: Final = "UPDATE access_tokens SET last_used_at = ? WHERE id = ?"
_REVOKE: Final = "DELETE FROM access_tokens WHERE id = ?"
_CLOSE_ALL: Final = "DELETE FROM access_sessions WHERE token_id = ?"

_OPEN: Final = f"""
INSERT INTO access_sessions ({SESSION})
SELECT ?, ?, ?, ?, ?, ?, ?, ?, id FROM access_tokens WHERE id = ?
"""
_SESSION: Final = f"""
SELECT {SESSION} FROM access_sessions WHERE hash = ? AND expires_at > ?
"""
_CLOSE: Final = "DELETE FROM access_sessions WHERE hash = ?"

_ANSWER: Final = f"SELECT {ANSWER} FROM access_answers WHERE key = ?"
_WRITE: Final = f"""
INSERT INTO access_answers ({ANSWER}) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET request = excluded.request, status = excluded.status,
    body = excluded.body, content_type = excluded.content_type,
    expires_at = excluded.expires_at
"""
_BEGIN: Final = f"{_WRITE} WHERE access_answers.expires_at <= ?"
_FINISH: Final = f"""{_WRITE}
WHERE access_answers.status IS NULL AND access_answers.request = excluded.request
"""
_DROP: Final = "DELETE FROM access_answers WHERE key = ?"

_OVER: Final = """
DELETE FROM {table} WHERE {key} IN (
    SELECT {key} FROM {table} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)
"""
_SESSIONS_OVER: Final = _OVER.format(table="access_sessions", key="hash")
_ANSWERS_OVER: Final = _OVER.format(table="access_answers", key="key")


class SqliteAccess:
    """Who may come in, for every process that opens the file."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add_token(self, token: Token) -> None:
        """Keep a token; an id or hash that is there already is a Conflict."""
        if not await self._changed(_ADD, token_row(token)):
            raise Conflict(f"there is a token {token.id} already")

    async def token(self, hash: str) -> Token | None:
        """The token with this hash, unless it was revoked."""
        rows = await self._fetch(_TOKEN, (hash,))
        return token_of(rows[0]) if rows else None

    async def tokens(self) -> Sequence[Token]:
        """All that have not been revoked, by name."""
        return [token_of(row) for row in await self._fetch(_BY_NAME)]

    async def used(self, id: str) -> None:
        """It was used now; remembered to the hour."""
        hour = to_the_hour(self._db.clock.now())
        await self._changed(_USED, (micros(hour), id))

    async def revoke(self, id: str) -> bool:
        """Forget a token and the sessions opened with it; whether it was there."""

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute(_CLOSE_ALL, (id,))
            return connection.execute(_REVOKE, (id,)).rowcount > 0

        return await self._db.write(work)

    async def open_session(self, session: Session) -> None:
        """Somebody signed in; with a token that is gone, NotFound."""
        if not await self._changed(_OPEN, session_row(session)):
            raise NotFound(f"there is no token {session.token_id}")

    async def session(self, hash: str) -> Session | None:
        """The session with this hash, unless it is over."""
        rows = await self._fetch(_SESSION, (hash, self._now()))
        return session_of(rows[0]) if rows else None

    async def close_session(self, hash: str) -> None:
        """Somebody signed out."""
        await self._changed(_CLOSE, (hash,))

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """Claim an idempotency key: None if it is ours now, else what is there."""
        row = storable(answer_row(answer))

        def work(connection: sqlite3.Connection) -> Any:
            if connection.execute(_BEGIN, (*row, self._now())).rowcount:
                return None
            return connection.execute(_ANSWER, row[:1]).fetchone()

        found = await self._db.write(work)
        return None if found is None else answer_of(found)

    async def finish_answer(self, answer: Answer) -> None:
        """Remember what was answered."""
        await self._changed(_FINISH, answer_row(answer))

    async def drop_answer(self, key: str) -> None:
        """Let a key go: the request failed in a way worth trying again."""
        await self._changed(_DROP, (key,))

    async def tidy(self, *, limit: int = 1000) -> int:
        """Forget sessions and answers whose time is over."""
        gone = await self._changed(_SESSIONS_OVER, (self._now(), limit))
        return gone + await self._changed(_ANSWERS_OVER, (self._now(), limit - gone))

    async def _changed(self, sql: str, values: Row) -> int:
        values = storable(values)
        return await self._db.write(lambda c: c.execute(sql, values).rowcount)

    async def _fetch(self, sql: str, values: Row = ()) -> list[Any]:
        return await self._db.read(lambda c: c.execute(sql, values).fetchall())

    def _now(self) -> int:
        return micros(self._db.clock.now())
