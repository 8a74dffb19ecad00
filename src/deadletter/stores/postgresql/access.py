"""Tokens, sessions and answers in the database."""

from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.access import Answer, Pass, Role, Session, Token, to_the_hour
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.text import shown, stored
from deadletter.ports.features import Clock

from .database import Again, Connection, Database
from .rows import legible, storable

TOKEN: Final = """
id, hash, created_at, created_by, expires_at, last_used_at, name, role, sources,
principal
"""  # noqa: S105 -- columns
SESSION: Final = """
hash, csrf, created_at, expires_at, name, role, sources, principal, token_id
"""
ANSWER: Final = "key, request, status, body, content_type, expires_at"


def token_row(token: Token) -> Sequence[Any]:
    """Return a token as a row."""
    return storable(
        (
            *(token.id, token.hash, token.created_at, token.created_by),
            *(token.expires_at, token.last_used_at, *_pass_row(token.to)),
        )
    )


def session_row(session: Session) -> Sequence[Any]:
    """Return a session as a row."""
    return storable(
        (
            *(session.hash, session.csrf, session.created_at, session.expires_at),
            *(*_pass_row(session.to), session.token_id),
        )
    )


def answer_row(answer: Answer) -> Sequence[Any]:
    """Return an answer as a row."""
    return storable(
        (
            *(answer.key, answer.request, answer.status, answer.body),
            *(answer.content_type, answer.expires_at),
        )
    )


def token_of(row: Any) -> Token:
    """Return a token from a row with the columns `TOKEN`."""
    id_, hash_, created_at, created_by, expires_at, used_at, *to = legible(row)
    return Token(
        id=id_,
        hash=hash_,
        to=_pass(*to),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        last_used_at=used_at,
    )


def session_of(row: Any) -> Session:
    """Return a session from a row with the columns `SESSION`."""
    hash_, csrf, created_at, expires_at, *to, token_id = legible(row)
    return Session(
        hash=hash_,
        to=_pass(*to),
        token_id=token_id,
        csrf=csrf,
        created_at=created_at,
        expires_at=expires_at,
    )


def answer_of(row: Any) -> Answer:
    """Return an answer from a row with the columns `ANSWER`."""
    key, request, status, body, content_type, expires_at = legible(row)
    return Answer(
        key=key,
        request=request,
        status=status,
        body=body,
        content_type=content_type,
        expires_at=expires_at,
    )


def _pass_row(to: Pass) -> Sequence[Any]:
    sources = [stored(source) for source in to.sources]
    return to.name, to.role, sources, to.principal


def _pass(name: str, role: str, sources: Sequence[str], principal: str) -> Pass:
    return Pass(
        name=name,
        role=Role(role),
        sources=tuple(shown(source) for source in sources),
        principal=principal,
    )


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
    """Access for every process that uses the database."""

    def __init__(self, db: Database, *, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def add_token(self, token: Token) -> None:
        """Store a token; raises Conflict if its id or hash exists."""
        if not await self._db.fetch(_ADD, *token_row(token)):
            raise Conflict(f"there is a token {token.id} already")

    async def token(self, hash: str) -> Token | None:
        """Return the token with this hash, or None if it is unknown or revoked."""
        rows = await self._db.fetch(_TOKEN, hash)
        return token_of(rows[0]) if rows else None

    async def tokens(self) -> Sequence[Token]:
        """Return all tokens that are not revoked, by name."""
        return [token_of(row) for row in await self._db.fetch(_BY_NAME)]

    async def used(self, id: str) -> None:
        """Record that a token was used now, to the hour."""
        await self._db.fetch(_USED, to_the_hour(self._clock.now()), stored(id))

    async def revoke(self, id: str) -> bool:
        """Delete a token and its sessions; return whether it existed."""
        return bool(await self._db.fetch(_REVOKE, stored(id)))

    async def open_session(self, session: Session) -> None:
        """Store a session; raises NotFound if its token is gone."""
        if not await self._db.fetch(_OPEN, *session_row(session)):
            raise NotFound(f"there is no token {session.token_id}")

    async def session(self, hash: str) -> Session | None:
        """Return the session with this hash, or None if it is unknown or expired."""
        rows = await self._db.fetch(_SESSION, hash, self._clock.now())
        return session_of(rows[0]) if rows else None

    async def close_session(self, hash: str) -> None:
        """Delete a session."""
        await self._db.fetch(_CLOSE, hash)

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """Claim an idempotency key; return None, or the answer that holds it."""
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
        """Store the answer to a request."""
        await self._db.fetch(_FINISH, *answer_row(answer))

    async def drop_answer(self, key: str) -> None:
        """Release a key: the request failed and may be tried again."""
        await self._db.fetch(_DROP, stored(key))

    async def tidy(self, *, limit: int = 1000) -> int:
        """Delete expired sessions and answers; return how many."""
        now = self._clock.now()
        gone = len(await self._db.fetch(_SESSIONS_OVER, now, limit))
        return gone + len(await self._db.fetch(_ANSWERS_OVER, now, limit - gone))
