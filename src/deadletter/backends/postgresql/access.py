"""Tokens, sessions and answers in the database."""

from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.access import Answer, Session, Token, to_the_hour
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.escaping import stored
from deadletter.ports.time import Clock

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
from .database import Again, Database
from .pool import Connection

# ruff: noqa: S608 -- all SQL here is made of constants
_ADD: Final = f"""
INSERT INTO deadletter.access_tokens ({TOKEN})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING RETURNING 1
"""
_TOKEN: Final = f"SELECT {TOKEN} FROM deadletter.access_tokens WHERE hash = $1"
_BY_NAME: Final = f"SELECT {TOKEN} FROM deadletter.access_tokens ORDER BY name, id"
_USED: Final = "UPDATE deadletter.access_tokens SET last_used_at = $1 WHERE id = $2"
# Its sessions go with it, see the table.
_REVOKE: Final = "DELETE FROM deadletter.access_tokens WHERE id = $1 RETURNING 1"

# The lock waits for whoever is revoking the token just now, and then finds it gone.
_OPEN: Final = f"""
INSERT INTO deadletter.access_sessions ({SESSION})
SELECT $1, $2, $3, $4, $5, $6, $7, $8, id FROM deadletter.access_tokens WHERE id = $9
FOR KEY SHARE RETURNING 1
"""
_SESSION: Final = f"""
SELECT {SESSION} FROM deadletter.access_sessions WHERE hash = $1 AND expires_at > $2
"""
_CLOSE: Final = "DELETE FROM deadletter.access_sessions WHERE hash = $1"

_ANSWER: Final = f"SELECT {ANSWER} FROM deadletter.access_answers WHERE key = $1"
_WRITE: Final = f"""
INSERT INTO deadletter.access_answers AS a ({ANSWER}) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (key) DO UPDATE SET request = excluded.request, status = excluded.status,
    body = excluded.body, content_type = excluded.content_type,
    expires_at = excluded.expires_at
"""
_BEGIN: Final = f"{_WRITE} WHERE a.expires_at <= $7 RETURNING 1"
_FINISH: Final = f"{_WRITE} WHERE a.status IS NULL AND a.request = excluded.request"
_DROP: Final = "DELETE FROM deadletter.access_answers WHERE key = $1"

_OVER: Final = """
WITH gone AS MATERIALIZED (
    SELECT {key} AS id FROM deadletter.{table} WHERE expires_at <= $1
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
DELETE FROM deadletter.{table} WHERE {key} = ANY(ARRAY(SELECT id FROM gone)) RETURNING 1
"""
_SESSIONS_OVER: Final = _OVER.format(table="access_sessions", key="hash")
_ANSWERS_OVER: Final = _OVER.format(table="access_answers", key="key")


class PostgresqlAccess:
    """Who may come in, for every process that uses the database."""

    def __init__(self, db: Database, *, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def add_token(self, token: Token) -> None:
        """Keep a token; an id or hash that is there already is a Conflict."""
        if not await self._db.fetch(_ADD, *token_row(token)):
            raise Conflict(f"there is a token {token.id} already")

    async def token(self, hash: str) -> Token | None:
        """The token with this hash, unless it was revoked."""
        rows = await self._db.fetch(_TOKEN, hash)
        return token_of(rows[0]) if rows else None

    async def tokens(self) -> Sequence[Token]:
        """All that have not been revoked, by name."""
        return [token_of(row) for row in await self._db.fetch(_BY_NAME)]

    async def used(self, id: str) -> None:
        """It was used now; remembered to the hour."""
        await self._db.fetch(_USED, to_the_hour(self._clock.now()), stored(id))

    async def revoke(self, id: str) -> bool:
        """Forget a token and the sessions opened with it; whether it was there."""
        return bool(await self._db.fetch(_REVOKE, stored(id)))

    async def open_session(self, session: Session) -> None:
        """Somebody signed in; with a token that is gone, NotFound."""
        if not await self._db.fetch(_OPEN, *session_row(session)):
            raise NotFound(f"there is no token {session.token_id}")

    async def session(self, hash: str) -> Session | None:
        """The session with this hash, unless it is over."""
        rows = await self._db.fetch(_SESSION, hash, self._clock.now())
        return session_of(rows[0]) if rows else None

    async def close_session(self, hash: str) -> None:
        """Somebody signed out."""
        await self._db.fetch(_CLOSE, hash)

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """Claim an idempotency key: None if it is ours now, else what is there."""
        row = answer_row(answer)

        async def work(connection: Connection) -> Any:
            if await connection.fetch(_BEGIN, *row, self._clock.now()):
                return None
            there = await connection.fetchrow(_ANSWER, row[0])
            if there is None:  # dropped in between
                raise Again
            return there

        found = await self._db.write(work)
        return None if found is None else answer_of(found)

    async def finish_answer(self, answer: Answer) -> None:
        """Remember what was answered."""
        await self._db.fetch(_FINISH, *answer_row(answer))

    async def drop_answer(self, key: str) -> None:
        """Let a key go: the request failed in a way worth trying again."""
        await self._db.fetch(_DROP, stored(key))

    async def tidy(self, *, limit: int = 1000) -> int:
        """Forget sessions and answers whose time is over."""
        now = self._clock.now()
        gone = len(await self._db.fetch(_SESSIONS_OVER, now, limit))
        return gone + len(await self._db.fetch(_ANSWERS_OVER, now, limit - gone))
