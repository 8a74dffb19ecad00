"""
A gate that lets one delivery run while nothing else runs in the process.

After a worker died, any of the deliveries it held may have killed it. Each of them runs
alone, so that a deadly one cannot harm the others. All workers of a process share one
`ExclusiveGate`; it also remembers which mailboxes have suspects waiting.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

SHORTEST_PATIENCE: Final = 1.0  # seconds
LONGEST_PATIENCE: Final = 3600.0  # ...unless a handler may take longer
_TICK: Final = 1.0  # seconds between signs of life while waiting


def next_wait(
    patience: float, waited: float, *, alone: bool, time_limit: float | None = None
) -> float:
    """
    Return the seconds to wait for exclusive access the next time.

    That is twice the last limit if it was too short, else twice what was needed. It never
    exceeds twice the time limit, or an hour if that is more.
    """
    wanted = 2 * (waited if alone else patience)
    longest = max(LONGEST_PATIENCE, 2 * (time_limit or 0.0))
    return min(max(wanted, SHORTEST_PATIENCE), longest)


class ExclusiveGate:
    """A gate: many may pass together, or one alone."""

    def __init__(self) -> None:
        self.suspects: set[str] = set()
        self._active = 0
        self._alone: str | None = None
        self._changed = asyncio.Event()

    @property
    def wanted(self) -> bool:
        """Return whether somebody has, or waits for, exclusive access: nothing may start then."""
        return self._alone is not None

    def enter(self, count: int = 1) -> None:
        """Count deliveries that are in flight from now on."""
        self._active += count

    def leave(self, count: int = 1) -> None:
        """Count deliveries that have ended."""
        self._active -= count
        if self._alone is not None:
            self._notify()

    async def until_free(self, within: float) -> None:
        """Wait until nobody has or wants exclusive access, at most `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._alone is not None:
                    await self._changed.wait()

    @asynccontextmanager
    async def alone(
        self,
        who: str,
        *,
        patience: float,
        stop: asyncio.Event | None = None,
        beat: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[bool]:
        """
        Wait until nothing is in flight, and start nothing else while the block runs.

        Yields whether that succeeded within `patience` seconds, before `stop` was set.
        Nothing new starts while it waits, so the wait is limited. `beat` is called every
        second: waiting is a sign of life.
        """
        if self._alone is not None:
            yield False
            return
        self._alone = who
        stopped = stop or asyncio.Event()
        hearing = asyncio.ensure_future(stopped.wait())
        hearing.add_done_callback(lambda _: self._notify())
        try:
            await self._emptied(patience, stopped, beat)
            yield self._active == 0 and not stopped.is_set()
        finally:
            hearing.cancel()
            self._alone = None
            self._notify()

    async def _emptied(
        self, patience: float, stopped: asyncio.Event, beat: Callable[[], None]
    ) -> None:
        """Wait until nothing is in flight, the time is over, or we are stopped."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._active and not stopped.is_set():
            beat()
            left = deadline - loop.time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, _TICK)):
                    await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
