"""Groups behind a server: what broke, by cause, and how each cause stands."""

from datetime import datetime

from deadletter.core.letter import GroupStatus
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
