"""Tokens of a server's callers: made, listed, revoked through it."""

from datetime import datetime

from msgspec import structs

from deadletter.core.access import IssuedToken, Pass, TokenView

from .connection import API, Connection, part


class Tokens:
    """The tokens of one office; for administrators."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[TokenView]:
        """The tokens there are, by name; never what they are known by."""
        return await self._connection.get(f"{API}/tokens", list[TokenView])

    async def issue(
        self, to: Pass, *, expires_at: datetime | None = None, reason: str = ""
    ) -> IssuedToken:
        """
        Make a token. It is shown in this answer and never again.

        One whose answer got lost is a Conflict that names it: revoke it, its secret
        is not kept.
        """
        said = {**structs.asdict(to), "expires_at": expires_at, "reason": reason}
        del said["principal"]  # the server chooses it
        return await self._connection.post(f"{API}/tokens", said, IssuedToken)

    async def revoke(self, id: str, *, reason: str = "") -> None:
        """End a token and every session opened with it, everywhere, at once."""
        await self._connection.send(
            "DELETE",
            f"{API}/tokens/{part(id)}",
            params={"reason": reason},
            again=True,
        )
