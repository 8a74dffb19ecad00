"""
Transactions on tokens, sessions and answers to idempotent requests.

A store implements `AccessOperations` over three tables, and runs the transactions of
`TransactionalAccess`. A transaction checks everything before it changes anything, so
that a store without rollback can run it as well.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from deadletter.core.access import Answer, Identity, Role, Session, Token, to_the_hour
from deadletter.core.errors import Conflict, NotFound
from deadletter.ports.features import Clock

T = TypeVar("T")
R = TypeVar("R", bound=Struct)


class AccessTable(Generic[R]):
    """A table: its columns, and how a record becomes a row of plain values."""

    times: ClassVar[frozenset[str]] = frozenset({"created_at", "expires_at", "last_used_at"})

    def __init__(self, name: str, kind: type[R], *unique: str) -> None:
        """
        Describe a table of records of a `kind`.

        `unique` are the columns in which no value occurs twice. The first one is the key.
        """
        self.name = name
        self.key = unique[0]
        self.unique = unique
        self._kind = kind
        self._own = tuple(name for name in kind.__struct_fields__ if name != "to")
        self._has_pass = "to" in kind.__struct_fields__
        self.columns = self._own + (Identity.__struct_fields__ if self._has_pass else ())

    def row_of(self, record: R) -> list[Any]:
        """Return a record as a row: texts, times, bytes, numbers; sources are a tuple."""
        row = [getattr(record, name) for name in self._own]
        if self._has_pass:
            to: Identity = record.to  # type: ignore[attr-defined]
            row += [to.name, to.role.value, to.sources, to.principal]
        return row

    def record_of(self, row: Sequence[Any]) -> R:
        """Return the record of a row."""
        values = dict(zip(self.columns, row, strict=True))
        own = {name: values[name] for name in self._own}
        if self._has_pass:
            own["to"] = Identity(
                name=values["name"],
                role=Role(values["role"]),
                sources=tuple(values["sources"]),
                principal=values["principal"],
            )
        return self._kind(**own)


TOKENS: Final = AccessTable("access_tokens", Token, "id", "hash")
SESSIONS: Final = AccessTable("access_sessions", Session, "hash")
ANSWERS: Final = AccessTable("access_answers", Answer, "key")


class AccessOperations(Protocol):
    """Operations that a store runs inside one transaction; columns are named by constants."""

    async def find(
        self, table: AccessTable[R], column: str, value: str, *, hold: bool = False
    ) -> R | None:
        """
        Return the record with this value in a unique column, or None.

        With `hold` nobody else changes or deletes it before the end of the transaction.
        """

    async def find_all(self, table: AccessTable[R]) -> list[R]:
        """Return all records."""

    async def insert(self, table: AccessTable[R], record: R) -> bool:
        """Insert a record; return False if a unique column has such a value already."""

    async def update(self, table: AccessTable[R], record: R) -> None:
        """Replace the record with the same key."""

    async def delete(self, table: AccessTable[R], column: str, value: str) -> int:
        """Delete the records with this value; return their number."""

    async def delete_expired(self, table: AccessTable[R], now: datetime, limit: int) -> int:
        """Delete up to `limit` expired records; return their number."""


Transaction: TypeAlias = Callable[[AccessOperations], Coroutine[Any, Any, T]]


class TransactionalAccess(ABC):
    """Tokens, sessions and answers, as `AccessStore` describes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @abstractmethod
    async def write(self, transaction: Transaction[T]) -> T:
        """Run a transaction; return once it is durable."""

    @abstractmethod
    async def read(self, transaction: Transaction[T]) -> T:
        """Run a transaction of one operation that changes nothing."""

    async def add_token(self, token: Token) -> None:
        """Store a token; raises Conflict if its id or hash exists."""
        if not await self.write(lambda store: store.insert(TOKENS, token)):
            raise Conflict(f"token {token.id} exists already: issue a new one instead")

    async def token(self, hash: str) -> Token | None:
        """Return the token with this hash, or None if it is unknown or revoked."""
        return await self.read(lambda store: store.find(TOKENS, "hash", hash))

    async def tokens(self) -> Sequence[Token]:
        """Return all tokens that are not revoked, by name."""
        found = await self.read(lambda store: store.find_all(TOKENS))
        return sorted(found, key=lambda token: (token.to.name, token.id))

    async def used(self, id: str) -> None:
        """Record that a token was used now, to the hour."""
        hour = to_the_hour(self._clock.now())
        await self.write(lambda store: _mark_used(store, id, hour))

    async def revoke(self, id: str) -> bool:
        """Delete a token and its sessions; return whether it existed."""
        return await self.write(lambda store: _revoke(store, id))

    async def open_session(self, session: Session) -> None:
        """Store a session; raises NotFound if its token is gone."""
        await self.write(lambda store: _open_session(store, session))

    async def session(self, hash: str) -> Session | None:
        """Return the session with this hash, or None if it is unknown or expired."""
        found = await self.read(lambda store: store.find(SESSIONS, "hash", hash))
        is_open = found is not None and found.expires_at > self._clock.now()
        return found if is_open else None

    async def sessions(self) -> Sequence[Session]:
        """Return all sessions that have not expired, latest first."""
        now = self._clock.now()
        found = await self.read(lambda store: store.find_all(SESSIONS))
        return sorted(
            (session for session in found if session.expires_at > now),
            key=lambda session: (session.created_at, session.hash),
            reverse=True,
        )

    async def put_token(self, token: Token) -> None:
        """Store a token, or replace the one with its id; sessions with other rights end."""
        if not await self.write(lambda store: _put_token(store, token)):
            raise Conflict(f"token {token.id} cannot be stored: its hash exists already")

    async def close_session(self, hash: str) -> None:
        """Delete a session."""
        await self.write(lambda store: store.delete(SESSIONS, "hash", hash))

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """Claim an idempotency key; return None, or the answer that holds it."""
        now = self._clock.now()
        return await self.write(lambda store: _begin_answer(store, answer, now))

    async def finish_answer(self, answer: Answer) -> None:
        """Store the answer to a request."""
        await self.write(lambda store: _finish_answer(store, answer))

    async def drop_answer(self, key: str) -> None:
        """Release a key: the request failed and may be tried again."""
        await self.write(lambda store: store.delete(ANSWERS, "key", key))

    async def tidy(self, *, limit: int = 1000) -> int:
        """Delete expired sessions and answers; return how many."""
        now = self._clock.now()
        return await self.write(lambda store: _tidy(store, now, limit))


async def _mark_used(store: AccessOperations, id: str, hour: datetime) -> None:
    token = await store.find(TOKENS, "id", id, hold=True)
    if token is not None and token.last_used_at != hour:
        await store.update(TOKENS, replace(token, last_used_at=hour))


async def _revoke(store: AccessOperations, id: str) -> bool:
    # Held first: a session that is being opened either is there by now, or finds no token.
    if await store.find(TOKENS, "id", id, hold=True) is None:
        return False
    await store.delete(SESSIONS, "token_id", id)
    return await store.delete(TOKENS, "id", id) > 0


async def _put_token(store: AccessOperations, token: Token) -> bool:
    while (known := await store.find(TOKENS, "id", token.id, hold=True)) is None:
        if await store.insert(TOKENS, token):
            return True
        if await store.find(TOKENS, "hash", token.hash) is not None:
            return False
    if known.to != token.to:
        await store.delete(SESSIONS, "token_id", token.id)
    await store.update(TOKENS, token)
    return True


async def _open_session(store: AccessOperations, session: Session) -> None:
    if await store.find(TOKENS, "id", session.token_id, hold=True) is None:
        raise NotFound(f"token {session.token_id} was revoked: sign in with another token")
    await store.insert(SESSIONS, session)


async def _begin_answer(store: AccessOperations, answer: Answer, now: datetime) -> Answer | None:
    while not await store.insert(ANSWERS, answer):
        holder = await store.find(ANSWERS, "key", answer.key, hold=True)
        if holder is None:
            continue  # dropped since the insert
        if holder.expires_at > now:
            return holder
        await store.update(ANSWERS, answer)
        break
    return None


async def _finish_answer(store: AccessOperations, answer: Answer) -> None:
    while (holder := await store.find(ANSWERS, "key", answer.key, hold=True)) is None:
        if await store.insert(ANSWERS, answer):
            return
    if (holder.request, holder.status) == (answer.request, None):
        await store.update(ANSWERS, answer)


async def _tidy(store: AccessOperations, now: datetime, limit: int) -> int:
    deleted = await store.delete_expired(SESSIONS, now, limit)
    return deleted + await store.delete_expired(ANSWERS, now, limit - deleted)
