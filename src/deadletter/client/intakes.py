"""Intakes of a server: dead queues of other systems that it takes letters from."""

from collections.abc import Sequence

from deadletter.core.intakes import IntakeStatus, Sighting

from .connection import API, Connection, part


class Intakes:
    """The intakes that the settings of a server name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> Sequence[IntakeStatus]:
        """Return all intakes, in the order of the settings."""
        return await self._connection.get(f"{API}/intakes", tuple[IntakeStatus, ...])

    async def look(self, name: str, *, limit: int = 10) -> Sequence[Sighting]:
        """Return the first messages as the letters that they would become; all stay."""
        path = f"{API}/intakes/{part(name)}/look"
        return await self._connection.post(path, {"limit": limit}, tuple[Sighting, ...])

    async def take(self, name: str, *, limit: int | None = None, reason: str = "") -> IntakeStatus:
        """Take in messages, by default all; the server goes on if that takes long."""
        body = {"limit": limit, "reason": reason}
        return await self._act(name, "take", body)

    async def follow(self, name: str, *, reason: str = "") -> IntakeStatus:
        """Take in what arrives from now on."""
        return await self._act(name, "follow", {"reason": reason})

    async def stop(self, name: str, *, reason: str = "") -> IntakeStatus:
        """Stop following, or taking."""
        return await self._act(name, "stop", {"reason": reason})

    async def _act(self, name: str, act: str, body: object) -> IntakeStatus:
        path = f"{API}/intakes/{part(name)}/{act}"
        return await self._connection.post(path, body, IntakeStatus)
