"""Tokens, sessions and answers in the file."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from itertools import count
from secrets import randbits
from typing import Any, Final

import msgspec

from deadletter.core.access import Answer, Pass, Role, Session, Token, to_the_hour
from deadletter.core.errors import Conflict, NotFound

from .engine import Database
from .sql import Row, micros, shown, storable, when

TOKEN: Final = """
id, hash, created_at, created_by, expires_at, last_used_at, name, role, sources,
principal
"""  # noqa: S105 -- columns
SESSION: Final = """
hash, csrf, created_at, expires_at, name, role, sources, principal, token_id
"""
ANSWER: Final = "key, request, status, body, content_type, expires_at"

_sources: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def token_row(token: Token) -> Row:
    """Return a token as a row."""
    return (
        *(token.id, token.hash, micros(token.created_at), token.created_by),
        *(_micros(token.expires_at), _micros(token.last_used_at)),
        *_pass_row(token.to),
    )


def session_row(session: Session) -> Row:
    """Return a session as a row."""
    return (
        *(session.hash, session.csrf),
        *(micros(session.created_at), micros(session.expires_at)),
        *(*_pass_row(session.to), session.token_id),
    )


def _pass_row(to: Pass) -> Row:
    sources = msgspec.json.encode(to.sources).decode()
    return to.name, to.role, sources, to.principal


def _pass(name: str | bytes, role: str, sources: str, principal: str) -> Pass:
    return Pass(name=shown(name), role=Role(role), sources=_sources(sources), principal=principal)


def token_of(row: Row) -> Token:
    """Return a token from a row with the columns `TOKEN`."""
    id_, hash_, created_at, created_by, expires_at, last_used_at, *to = row
    return Token(
        id=id_,
        hash=hash_,
        to=_pass(*to),
        created_at=when(created_at),
        created_by=shown(created_by),
        expires_at=_when(expires_at),
        last_used_at=_when(last_used_at),
    )


def session_of(row: Row) -> Session:
    """Return a session from a row with the columns `SESSION`."""
    hash_, csrf, created_at, expires_at, *to, token_id = row
    return Session(
        hash=hash_,
        to=_pass(*to),
        token_id=token_id,
        csrf=csrf,
        created_at=when(created_at),
        expires_at=when(expires_at),
    )


def answer_row(answer: Answer) -> Row:
    """Return an answer as a row."""
    return (
        *(answer.key, answer.request, answer.status, answer.body),
        *(answer.content_type, micros(answer.expires_at)),
    )


def answer_of(row: Row) -> Answer:
    """Return an answer from a row with the columns `ANSWER`."""
    key, request, status, body, content_type, expires_at = row
    return Answer(
        key=shown(key),
        request=shown(request),
        status=status,
        body=body,
        content_type=shown(content_type),
        expires_at=when(expires_at),
    )


def _micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def _when(at: int | None) -> datetime | None:
    return None if at is None else when(at)


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
    """Access for every process that opens the file."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add_token(self, token: Token) -> None:
        """Store a token; raises Conflict if its id or hash exists."""
        if not await self._changed(_ADD, token_row(token)):
            raise Conflict(f"there is a token {token.id} already")

    async def token(self, hash: str) -> Token | None:
        """Return the token with this hash, or None if it is unknown or revoked."""
        rows = await self._fetch(_TOKEN, (hash,))
        return token_of(rows[0]) if rows else None

    async def tokens(self) -> Sequence[Token]:
        """Return all tokens that are not revoked, by name."""
        return [token_of(row) for row in await self._fetch(_BY_NAME)]

    async def used(self, id: str) -> None:
        """Record that a token was used now, to the hour."""
        hour = to_the_hour(self._db.clock.now())
        await self._changed(_USED, (micros(hour), id))

    async def revoke(self, id: str) -> bool:
        """Delete a token and its sessions; return whether it existed."""

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute(_CLOSE_ALL, (id,))
            return connection.execute(_REVOKE, (id,)).rowcount > 0

        return await self._db.write(work)

    async def open_session(self, session: Session) -> None:
        """Store a session; raises NotFound if its token is gone."""
        if not await self._changed(_OPEN, session_row(session)):
            raise NotFound(f"there is no token {session.token_id}")

    async def session(self, hash: str) -> Session | None:
        """Return the session with this hash, or None if it is unknown or expired."""
        rows = await self._fetch(_SESSION, (hash, self._now()))
        return session_of(rows[0]) if rows else None

    async def close_session(self, hash: str) -> None:
        """Delete a session."""
        await self._changed(_CLOSE, (hash,))

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """Claim an idempotency key; return None, or the answer that holds it."""
        row = storable(answer_row(answer))

        def work(connection: sqlite3.Connection) -> Any:
            if connection.execute(_BEGIN, (*row, self._now())).rowcount:
                return None
            return connection.execute(_ANSWER, row[:1]).fetchone()

        found = await self._db.write(work)
        return None if found is None else answer_of(found)

    async def finish_answer(self, answer: Answer) -> None:
        """Store the answer to a request."""
        await self._changed(_FINISH, answer_row(answer))

    async def drop_answer(self, key: str) -> None:
        """Release a key: the request failed and may be tried again."""
        await self._changed(_DROP, (key,))

    async def tidy(self, *, limit: int = 1000) -> int:
        """Delete expired sessions and answers; return how many."""
        gone = await self._changed(_SESSIONS_OVER, (self._now(), limit))
        return gone + await self._changed(_ANSWERS_OVER, (self._now(), limit - gone))

    async def _changed(self, sql: str, values: Row) -> int:
        values = storable(values)
        return await self._db.write(lambda c: c.execute(sql, values).rowcount)

    async def _fetch(self, sql: str, values: Row = ()) -> list[Any]:
        return await self._db.read(lambda c: c.execute(sql, values).fetchall())

    def _now(self) -> int:
        return micros(self._db.clock.now())


class Tokens:
    """
    Unique numbers that fit SQLite's integers.

    Each process counts up from a place of its own, drawn from 2^40; it is not
    drawn from the dice handed in, since seeded ones would repeat themselves.
    """

    def __init__(self) -> None:
        self._numbers = count(randbits(40) << 22)

    def next(self) -> int:
        """Return a number that was never returned before. Safe from any thread."""
        return next(self._numbers)
