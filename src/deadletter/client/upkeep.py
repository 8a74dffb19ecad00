"""Upkeep of an office behind a server: checks, verify, retention, tests of alerts."""

import asyncio
from typing import Final

from deadletter.office.doctor import Check
from deadletter.office.upkeep import AlertTest, RetentionDue, RetentionRun, RunState, VerifyRun

from .connection import API, Connection

_POLL: Final = 0.5  # seconds


class Upkeep:
    """The upkeep of one office. Verify and retention go on in the server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def checks(self) -> list[Check]:
        """Check for common problems; each text says what to do."""
        return await self._connection.get(f"{API}/checks", list[Check])

    async def start_verify(self) -> VerifyRun:
        """Start to check that no message was lost; raises `Conflict` during another run."""
        return await self._connection.post(f"{API}/verify", {}, VerifyRun)

    async def verification(self) -> VerifyRun:
        """Return the run of verify in progress, or the last one with its findings."""
        return await self._connection.get(f"{API}/verify", VerifyRun)

    async def verify(self) -> VerifyRun:
        """Run verify and wait for its end."""
        run = await self.start_verify()
        while run.state is RunState.RUNNING:
            await asyncio.sleep(_POLL)
            run = await self.verification()
        return run

    async def retention(self) -> RetentionDue:
        """Count the letters whose retention has ended; delete nothing."""
        return await self._connection.get(f"{API}/retention", RetentionDue)

    async def run_retention(
        self, *, expect: int | None = None, force: bool = False, reason: str = ""
    ) -> RetentionRun:
        """Start to delete letters whose retention has ended; `retention` tells how it goes."""
        body = {"expect": expect, "force": force, "reason": reason}
        return await self._connection.post(f"{API}/retention", body, RetentionRun)

    async def test_alerts(self, *, reason: str = "") -> list[AlertTest]:
        """Send a test notice to each target of the alerts."""
        body = {"reason": reason}
        return await self._connection.post(f"{API}/alerts/test", body, list[AlertTest])
