"""The store of tokens, sessions and answers to idempotent requests."""

from collections.abc import Sequence
from typing import Protocol

from deadletter.core.access import Answer, Session, Token


class AccessStore(Protocol):
    """
    Tokens, sessions and answers, shared by all servers of one office.

    The next request anywhere sees a change: nothing is cached for long.
    """

    async def add_token(self, token: Token) -> None:
        """Store a token; raises Conflict if its id or hash exists."""

    async def token(self, hash: str) -> Token | None:
        """Return the token with this hash, or None if it is unknown or revoked."""

    async def tokens(self) -> Sequence[Token]:
        """Return all tokens that are not revoked, by name."""

    async def used(self, id: str) -> None:
        """Record that a token was used now, to the hour."""

    async def revoke(self, id: str) -> bool:
        """Delete a token and its sessions; return whether it existed."""

    async def open_session(self, session: Session) -> None:
        """Store a session; raises NotFound if its token is gone."""

    async def session(self, hash: str) -> Session | None:
        """Return the session with this hash, or None if it is unknown or expired."""

    async def close_session(self, hash: str) -> None:
        """Delete a session."""

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """
        Claim an idempotency key; return None, or the answer that holds it.

        Expired keys can be claimed again.
        """

    async def finish_answer(self, answer: Answer) -> None:
        """Store the answer to a request."""

    async def drop_answer(self, key: str) -> None:
        """Release a key: the request failed and may be tried again."""

    async def tidy(self, *, limit: int = 1000) -> int:
        """Delete expired sessions and answers; return how many."""
