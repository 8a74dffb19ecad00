"""Saved searches of an office behind a server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deadletter.core.letter import By
from deadletter.office.searches import SearchLine

from .connection import API, Connection, part

if TYPE_CHECKING:
    from .client import Client


class Searches:
    """The saved searches of one office, which everybody shares."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> Sequence[SearchLine]:
        """Return the saved searches, by name."""
        return await self._connection.get(f"{API}/searches", tuple[SearchLine, ...])

    async def save(
        self, name: str, query: str, *, replace: bool = False, reason: str = ""
    ) -> SearchLine:
        """Save a search; raises `Conflict` if the name has another query, unless `replace`."""
        body = {"query": query, "replace": replace, "reason": reason}
        path = f"{API}/searches/{part(name)}"
        return await self._connection.post(path, body, SearchLine, method="PUT")

    async def delete(self, name: str, *, reason: str = "") -> SearchLine:
        """Delete a saved search; return what it was."""
        path = f"{API}/searches/{part(name)}"
        return await self._connection.delete(path, SearchLine, reason=reason)


class RemoteSearches:
    """The saved searches of an office behind a server."""

    def __init__(self, client: "Client") -> None:
        self._searches = client.searches

    async def list(self) -> Sequence[SearchLine]:
        """Return the saved searches, by name."""
        return await self._searches.list()

    async def save(self, name: str, query: str, by: By, *, replace: bool = False) -> SearchLine:
        """Save a search under a name."""
        return await self._searches.save(name, query, replace=replace, reason=by.reason)

    async def delete(self, name: str, by: By) -> SearchLine:
        """Delete a saved search; return what it was."""
        return await self._searches.delete(name, reason=by.reason)
