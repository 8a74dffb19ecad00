"""The tokens of a server's callers, handed out through it or here beside it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Protocol

from msgspec import structs

from deadletter.assembly.serving import footing
from deadletter.core.access import IssuedToken, Pass, TokenView
from deadletter.core.letter import By
from deadletter.web.auth.keys import Keys
from deadletter.web.auth.views import issued, view

from .desk import Desk


class SomeKeys(Protocol):
    """Tokens, wherever they are handed out."""

    async def list(self) -> Sequence[TokenView]:
        """The tokens there are, by name."""

    async def issue(
        self, to: Pass, by: By, *, expires_at: datetime | None
    ) -> IssuedToken:
        """A new token, shown this once."""

    async def revoke(self, id: str, by: By) -> None:
        """End a token and its sessions, everywhere, now."""


@asynccontextmanager
async def opened_keys(desk: Desk, *, make: bool = False) -> AsyncIterator[SomeKeys]:
    """The tokens of the server that is named, or of the one with these settings."""
    if desk.server is not None:
        from .remote_keys import remote_keys  # noqa: PLC0415 -- needs an extra

        async with remote_keys(desk.server, desk.token) as remote:
            yield remote
        return
    if not make:
        desk.check_file()
    # Whether or not it asks for them.
    serve = structs.replace(desk.settings.serve, access="on")
    async with footing(
        structs.replace(desk.settings, serve=serve),
        url=desk.given_url,
        office=desk.given_office,
        clock=desk.clock,
        dice=desk.dice,
    ) as ground:
        assert ground.access is not None  # it is on
        yield _LocalKeys(Keys(ground.access, ground.letters, desk.clock))


class _LocalKeys:
    """Tokens of an engine that is open here; no token is needed."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def list(self) -> Sequence[TokenView]:
        return [view(token) for token in await self._keys.list()]

    async def issue(
        self, to: Pass, by: By, *, expires_at: datetime | None
    ) -> IssuedToken:
        return issued(*await self._keys.issue(to, by, expires_at=expires_at))

    async def revoke(self, id: str, by: By) -> None:
        await self._keys.revoke(id, by)
