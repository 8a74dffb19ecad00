"""Outages behind a server."""

from deadletter.office.outages import Outage, Released

from .connection import API, Connection


class Outages:
    """Times that mailboxes were held back by the brake."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> list[Outage]:
        """List the latest ones, the latest first."""
        return await self._connection.get(
            f"{API}/outages",
            list[Outage],
            mailbox=mailbox,
            open=only_open or None,
            limit=limit,
        )

    async def release(self, mailbox: str, *, reason: str = "") -> Released:
        """Tell a mailbox's workers to go on."""
        said = {"mailbox": mailbox, "reason": reason}
        return await self._connection.post(f"{API}/outages/release", said, Released)
