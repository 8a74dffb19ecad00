"""The server's API, as methods."""

from collections.abc import AsyncGenerator
from typing import Any, BinaryIO

from msgspec import Struct

from deadletter.core.letter import AuditEntry
from deadletter.office.archive import SealCheck
from deadletter.office.stats import Stats
from deadletter.office.taking_in import TakenIn

from .connection import API, Connected, Connection, decoded
from .events import Happening, listen
from .groups import Groups
from .letters import Letters
from .mailboxes import Queues
from .outages import Outages
from .replays import Replays
from .tokens import Tokens


class Acts(Struct, frozen=True, kw_only=True):
    """Some of the audit, oldest first; `after` continues it."""

    entries: tuple[AuditEntry, ...]
    after: int | None = None


class Client(Connected):
    """
    One office behind a server.

    What the server cannot do right now is asked again after a while, and what changes
    something carries an idempotency key, so that it is done once. Errors are those of
    `deadletter.core.errors`, with the server's words.
    """

    def __init__(self, url: str, *, token: str | None = None, **how: Any) -> None:
        connection = Connection(url, token=token, **how)
        super().__init__(connection)
        self.letters = Letters(connection)
        self.groups = Groups(connection)
        self.replays = Replays(connection)
        self.queues = Queues(connection)
        self.outages = Outages(connection)
        self.tokens = Tokens(connection)

    async def stats(self) -> Stats:
        """Mailboxes, letters by state and source, and arrivals of late."""
        return await self._connection.get(f"{API}/stats", Stats)

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Acts:
        """What was done, oldest first, from the entry behind `after`."""
        return await self._connection.get(
            f"{API}/audit", Acts, target=target, after=after, limit=limit
        )

    async def export(
        self,
        query: str,
        out: BinaryIO,
        *,
        limit: int | None = None,
        reason: str = "",
    ) -> int:
        """
        Write whole letters into a file, one JSON line each; return how many.

        Raises `Unavailable` if the last line is missing or does not match: what was
        written then is not a whole archive.
        """
        seal = SealCheck()
        params = {"query": query, "limit": limit, "reason": reason}
        async with self._connection.stream(f"{API}/export", params=params) as response:
            async for chunk in response.aiter_bytes():
                seal.feed(chunk)
                out.write(chunk)
        return seal.letters()

    async def import_(
        self,
        lines: bytes,
        *,
        archive: str = "request",
        reason: str = "",
        salvage: bool = False,
        dry_run: bool = False,
    ) -> TakenIn:
        """
        Take in an archive that `export` wrote; letters there already stay as they are.

        The server checks all of it first and takes nothing of a damaged one, unless
        `salvage` asks for the letters that are intact. With `dry_run` it only checks.
        """
        wish = {"salvage": salvage, "dry_run": dry_run}
        response = await self._connection.send(
            "POST",
            f"{API}/import",
            params={"archive": archive, "reason": reason, **wish},
            content=lines,
            headers={"content-type": "application/x-ndjson"},
            again=True,  # taking in the same again is fine
        )
        return decoded(response, TakenIn)

    def events(self, *, after: int | None = None) -> AsyncGenerator[Happening]:
        """What happens, as it happens, for as long as one listens."""
        return listen(self._connection, after)
