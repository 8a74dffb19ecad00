"""Who may come in, and what they were told: tokens, sessions, answers."""

from collections.abc import Sequence
from typing import Protocol

from deadletter.core.access import Answer, Session, Token


class AccessStore(Protocol):
    """
    Tokens, sessions and answers, shared by all servers of one office.

    A change is seen by the next request anywhere: nothing is cached for long.
    """

    async def add_token(self, token: Token) -> None:
        """Keep a token; an id or hash that is there already is a Conflict."""

    async def token(self, hash: str) -> Token | None:
        """The token with this hash, unless it was revoked."""

    async def tokens(self) -> Sequence[Token]:
        """All that have not been revoked, by name."""

    async def used(self, id: str) -> None:
        """It was used now; remembered to the hour."""

    async def revoke(self, id: str) -> bool:
        """Forget a token and the sessions opened with it; whether it was there."""

    async def open_session(self, session: Session) -> None:
        """Somebody signed in; NotFound if the token they did it with is gone."""

    async def session(self, hash: str) -> Session | None:
        """The session with this hash, unless it is over."""

    async def close_session(self, hash: str) -> None:
        """Somebody signed out."""

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """
        Claim an idempotency key: None if it is ours now, else what is there.

        Keys whose time is over are free again.
        """

    async def finish_answer(self, answer: Answer) -> None:
        """Remember what was answered."""

    async def drop_answer(self, key: str) -> None:
        """Let a key go: the request failed in a way worth trying again."""

    async def tidy(self, *, limit: int = 1000) -> int:
        """Forget sessions and answers whose time is over."""
