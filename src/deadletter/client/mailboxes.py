"""Mailboxes behind a server."""

from typing import Any

from msgspec import Struct, structs

from deadletter.ports import QueueInfo, QueueOptions

from .connection import API, Connection, part


class Deleted(Struct, frozen=True, kw_only=True):
    """A mailbox that is gone, and how many messages went with it."""

    mailbox: str
    purged: int


class Queues:
    """The mailboxes of one engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[QueueInfo]:
        """All mailboxes and what is in them, by name."""
        return await self._connection.get(f"{API}/queues", list[QueueInfo])

    async def get(self, name: str) -> QueueInfo:
        """One mailbox and what is in it."""
        return await self._connection.get(f"{API}/queues/{part(name)}", QueueInfo)

    async def create(self, options: QueueOptions, *, reason: str = "") -> QueueOptions:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        said = {**structs.asdict(options), "reason": reason}
        return await self._connection.post(f"{API}/queues", said, QueueOptions)

    async def update(
        self, name: str, changes: dict[str, Any], *, reason: str = ""
    ) -> QueueOptions:
        """Change some of a mailbox's options; the others stay as they are."""
        path = f"{API}/queues/{part(name)}"
        said = {**changes, "reason": reason}
        return await self._connection.post(path, said, QueueOptions, method="PATCH")

    async def delete(
        self, name: str, *, force: bool = False, reason: str = ""
    ) -> Deleted:
        """Delete a mailbox and the messages in it. Letters that came from it stay."""
        return await self._connection.delete(
            f"{API}/queues/{part(name)}", Deleted, force=force, reason=reason
        )
