"""
Running one delivery while nothing else runs, in the whole process.

After a worker died, any of the deliveries it held may have killed it. Run alone,
the guilty one can only take itself along. All workers of a process share one
`Solitude`; it also remembers which mailboxes have suspects waiting.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Solitude:
    """A gate: many may pass together, or one alone."""

    def __init__(self) -> None:
        self.suspects: set[str] = set()
        self._active = 0
        self._alone: str | None = None
        self._changed = asyncio.Event()

    @property
    def wanted(self) -> bool:
        """Whether somebody is, or waits to be, alone: then nothing may start."""
        return self._alone is not None

    def enter(self, count: int = 1) -> None:
        """So many deliveries are in flight from now on."""
        self._active += count

    def leave(self, count: int = 1) -> None:
        """...and have ended."""
        self._active -= count
        if self._alone is not None:
            self._notify()

    async def until_free(self, within: float) -> None:
        """Wait until nobody is, or wants to be, alone; but no longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._alone is not None:
                    await self._changed.wait()

    @asynccontextmanager
    async def alone(self, who: str, *, patience: float) -> AsyncIterator[bool]:
        """
        Wait until nothing is in flight, and keep it so.

        Says whether that came true within `patience` seconds. Nothing new starts
        meanwhile, so one long handler must not hold up everybody.
        """
        if self._alone is not None:
            yield False
            return
        self._alone = who
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while self._active:
                        await self._changed.wait()
            yield self._active == 0
        finally:
            self._alone = None
            self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
