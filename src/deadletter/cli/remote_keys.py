"""Tokens that are handed out through a server, to an administrator of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from deadletter.client import Client
from deadletter.core.access import IssuedToken, Pass, TokenView
from deadletter.core.letter import By

from .servers import server


@asynccontextmanager
async def remote_keys(url: str, token: str | None) -> AsyncIterator["RemoteKeys"]:
    """The tokens of a server."""
    async with server(url, token) as client:
        yield RemoteKeys(client)


class RemoteKeys:
    """Tokens of a server. Who hands them out is who the token is."""

    def __init__(self, client: Client) -> None:
        self._tokens = client.tokens

    async def list(self) -> Sequence[TokenView]:
        return await self._tokens.list()

    async def issue(
        self, to: Pass, by: By, *, expires_at: datetime | None
    ) -> IssuedToken:
        return await self._tokens.issue(to, expires_at=expires_at, reason=by.reason)

    async def revoke(self, id: str, by: By) -> None:
        await self._tokens.revoke(id, reason=by.reason)
