"""Tokens, sessions and answers in memory."""

from collections.abc import Sequence

from msgspec.structs import replace

from deadletter.core.access import Answer, Session, Token, to_the_hour
from deadletter.core.errors import Conflict, NotFound
from deadletter.ports.features import Clock


class MemoryAccess:
    """Access of one process."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._tokens: dict[str, Token] = {}  # by id
        self._sessions: dict[str, Session] = {}  # by hash
        self._answers: dict[str, Answer] = {}  # by key

    async def add_token(self, token: Token) -> None:
        """Store a token; raises Conflict if its id or hash exists."""
        for other in self._tokens.values():
            if token.id == other.id or token.hash == other.hash:
                raise Conflict(f"there is a token {other.id} already")
        self._tokens[token.id] = token

    async def token(self, hash: str) -> Token | None:
        """Return the token with this hash, or None if it is unknown or revoked."""
        return next((t for t in self._tokens.values() if t.hash == hash), None)

    async def tokens(self) -> Sequence[Token]:
        """Return all tokens that are not revoked, by name."""
        return sorted(self._tokens.values(), key=lambda t: (t.to.name, t.id))

    async def used(self, id: str) -> None:
        """Record that a token was used now, to the hour."""
        token = self._tokens.get(id)
        if token is not None:
            hour = to_the_hour(self._clock.now())
            self._tokens[id] = replace(token, last_used_at=hour)

    async def revoke(self, id: str) -> bool:
        """Delete a token and its sessions; return whether it existed."""
        theirs = [s.hash for s in self._sessions.values() if s.token_id == id]
        for hash_ in theirs:
            del self._sessions[hash_]
        return self._tokens.pop(id, None) is not None

    async def open_session(self, session: Session) -> None:
        """Store a session; raises NotFound if its token is gone."""
        if session.token_id not in self._tokens:
            raise NotFound(f"there is no token {session.token_id}")
        self._sessions[session.hash] = session

    async def session(self, hash: str) -> Session | None:
        """Return the session with this hash, or None if it is unknown or expired."""
        session = self._sessions.get(hash)
        if session is None or session.expires_at <= self._clock.now():
            return None
        return session

    async def close_session(self, hash: str) -> None:
        """Delete a session."""
        self._sessions.pop(hash, None)

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """Claim an idempotency key; return None, or the answer that holds it."""
        there = self._answers.get(answer.key)
        if there is not None and there.expires_at > self._clock.now():
            return there
        self._answers[answer.key] = answer
        return None

    async def finish_answer(self, answer: Answer) -> None:
        """Store the answer to a request."""
        there = self._answers.get(answer.key)
        if there is None or (there.request, there.status) == (answer.request, None):
            self._answers[answer.key] = answer

    async def drop_answer(self, key: str) -> None:
        """Release a key: the request failed and may be tried again."""
        self._answers.pop(key, None)

    async def tidy(self, *, limit: int = 1000) -> int:
        """Delete expired sessions and answers; return how many."""
        now = self._clock.now()
        sessions = [h for h, s in self._sessions.items() if s.expires_at <= now]
        for hash_ in sessions[:limit]:
            del self._sessions[hash_]
        gone = len(sessions[:limit])
        answers = [k for k, a in self._answers.items() if a.expires_at <= now]
        for key in answers[: limit - gone]:
            del self._answers[key]
        return gone + len(answers[: limit - gone])
