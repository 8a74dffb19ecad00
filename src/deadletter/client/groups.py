"""Groups behind a server: what broke, by cause, and how each cause stands."""

from collections.abc import Sequence
from datetime import datetime

from deadletter.core.letter import GroupStatus
from deadletter.core.variants import Variants
from deadletter.office.group_merging import Regrouped, RuleLine
from deadletter.office.groups import GroupLine, GroupPage

from .connection import API, Connection, part


class Groups:
    """The groups of one office."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self,
        *,
        source: str | None = None,
        status: GroupStatus | None = None,
        everything: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        """Groups, those with most open letters first; `after` of the page continues."""
        return await self._connection.get(
            f"{API}/groups",
            GroupPage,
            source=source,
            status=status,
            everything=everything,
            limit=limit,
            after=after,
        )

    async def get(self, name: str) -> GroupLine:
        """One group, by its fingerprint or the beginning of it."""
        return await self._connection.get(f"{API}/groups/{part(name)}", GroupLine)

    async def variants(self, name: str) -> Variants:
        """What the letters of a group have in common, and in what they differ."""
        return await self._connection.get(
            f"{API}/groups/{part(name)}/variants", Variants
        )

    async def say(
        self,
        name: str,
        status: GroupStatus,
        *,
        owner: str | None = None,
        until: datetime | None = None,
        version: str = "",
        reason: str = "",
    ) -> GroupLine:
        """Say how a group stands: ongoing, snoozed, resolved or muted."""
        said = {
            "status": status,
            "owner": owner,
            "until": until,
            "version": version,
            "reason": reason,
        }
        path = f"{API}/groups/{part(name)}/standing"
        return await self._connection.post(path, said, GroupLine, method="PUT")

    async def merge(self, into: str, *others: str, reason: str = "") -> Regrouped:
        """Merge other groups into one; letters to come follow."""
        asked = {"others": list(others), "reason": reason}
        path = f"{API}/groups/{part(into)}/merge"
        return await self._connection.post(path, asked, Regrouped)

    async def split(self, name: str, query: str, *, reason: str = "") -> Regrouped:
        """Make letters of a group that a search finds a group of their own."""
        asked = {"query": query, "reason": reason}
        path = f"{API}/groups/{part(name)}/split"
        return await self._connection.post(path, asked, Regrouped)

    async def undo(self, name: str, *, reason: str = "") -> Regrouped:
        """Take back the last merge or split of a group."""
        path = f"{API}/groups/{part(name)}/undo"
        return await self._connection.post(path, {"reason": reason}, Regrouped)

    async def rules(self) -> Sequence[RuleLine]:
        """Merges and splits that letters to come follow."""
        return await self._connection.get(f"{API}/group-rules", tuple[RuleLine, ...])
