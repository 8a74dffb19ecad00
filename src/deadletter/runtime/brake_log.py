"""
Writing down when the brake is open, and hearing what people say to that.

The brake works whether or not the office can be reached; this only tells of it.
"""

import asyncio
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from deadletter.core.brake_window import BrakeWindow, is_released
from deadletter.core.errors import BackendError
from deadletter.ports import Clock, LetterStore

from .braking import Braking
from .reach import Calls

EVERY: Final = 2.0  # seconds between two looks while the brake is open
LOOKED_AT: Final = 100  # earlier windows of the mailbox, for what was released
LAST_WORD: Final = 3.0  # seconds to write the end when the worker stops


class BrakeLog:
    """Keeps the windows of one mailbox's brake in the office."""

    def __init__(
        self,
        braking: Braking,
        letters: LetterStore,
        mailbox: str,
        *,
        calls: Calls,
        clock: Clock,
    ) -> None:
        self._braking = braking
        self._letters = letters
        self._mailbox = mailbox
        self._calls = calls
        self._clock = clock
        self._written: BrakeWindow | None = None  # as the office has it

    async def run(self) -> None:
        """Write whatever changes, until cancelled."""
        changed = self._braking.changed
        while True:
            await changed.wait()
            changed.clear()
            while self._is_behind() or self._braking.is_open:
                with suppress(BackendError):  # whoever settles says so
                    await self._write()
                with suppress(TimeoutError):
                    async with asyncio.timeout(EVERY):
                        await changed.wait()
                    changed.clear()

    async def end(self) -> None:
        """Write that nothing is held any more, if the office can be reached."""
        self._braking.stop()
        if not self._is_behind():
            return
        with suppress(BackendError, TimeoutError):  # it is shown as without news
            async with asyncio.timeout(LAST_WORD):
                await self._write()

    def _is_behind(self) -> bool:
        return bool(self._braking.ended) or self._braking.window != self._written

    async def _write(self) -> None:
        while self._braking.ended:
            await self._save(self._braking.ended[0])
            del self._braking.ended[0]
        window = self._braking.window
        if window is None:
            return
        is_new = self._written is None or self._written.id != window.id
        if window.closed_at is None:
            window = replace(window, seen_at=self._clock.now())
        kept = await self._save(window)
        self._written = self._braking.window
        if self._braking.is_open and (
            kept.release is not None or (is_new and await self._was_released(window))
        ):
            self._braking.release()

    async def _save(self, window: BrakeWindow) -> BrakeWindow:
        return await self._calls.limited("office", self._letters.save_window(window))

    async def _was_released(self, window: BrakeWindow) -> bool:
        asked = self._letters.windows(mailbox=self._mailbox, limit=LOOKED_AT)
        earlier = await self._calls.limited("office", asked)
        return is_released(earlier, window.kind, window.cause, self._clock.now())
