"""
Watching that something gets done, not only that the loop turns.

A worker that could take messages, and whose mailbox has some, takes them. One that
does not for long has lost its way to the broker without noticing, or itself: first
it says so and makes its connections anew, then it starts again, then its process
ends. Time is counted in looks, so that a process that was paused is not blamed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from deadletter.core.errors import BackendError
from deadletter.ports import Broker, Counting, Reconnecting

from .reach import Calls

EVERY: Final = 5.0  # seconds between two looks
_ASK: Final = 3  # looks without anything taken, after which we ask what is there
_STALLED: Final = 6  # ...after which it is said, and the connections are made anew
_RESTART: Final = 12  # ...after which it starts again, and the next time ends

Count: TypeAlias = Callable[[], Awaitable[int]]


class NoProgress(Exception):
    """The loop gets nothing done, and has to start again."""


class Hopeless(Exception):
    """Starting again has not helped: the process has to end."""


class Progress:
    """What one worker has taken lately, and what it could have."""

    def __init__(
        self,
        mailbox: str,
        broker: Broker,
        *,
        calls: Calls,
        is_free: Callable[[], bool],
        unstarted: Callable[[], int],
    ) -> None:
        self._mailbox = mailbox
        self._broker = broker
        self._calls = calls
        self._is_free = is_free  # whether it may take something now
        self._unstarted = unstarted  # what it has taken, and not begun with
        self._taken = 0
        self._seen = 0
        self._looks = 0  # in which something was there, and nothing was taken
        self._waiting = 0  # looks in which something was not begun with
        self._ready = 0
        self._restarts = 0

    def taken(self, count: int) -> None:
        """Note that messages were received."""
        self._taken += count
        self._restarts = 0

    def complaint(self) -> str | None:
        """Why nothing gets done; None when something does, or there is nothing."""
        if self._looks >= _STALLED:
            seconds = self._looks * EVERY
            return f"stalled: {self._ready} ready, nothing claimed for {seconds:.0f} s"
        if self._waiting >= _STALLED:
            seconds = self._waiting * EVERY
            return f"stalled: what was claimed has not begun for {seconds:.0f} s"
        return None

    async def run(self) -> None:
        """Look now and then until cancelled; raises when nothing helps."""
        self._looks = self._waiting = 0
        while True:
            await asyncio.sleep(EVERY)
            self._waiting = self._waiting + 1 if self._unstarted() else 0
            moved, self._seen = self._taken != self._seen, self._taken
            if moved or not self._is_free() or not await self._is_something_there():
                self._looks = 0
            else:
                self._looks += 1
            if self._looks == _STALLED and isinstance(self._broker, Reconnecting):
                await self._broker.reconnect()
            if max(self._looks, self._waiting) >= _RESTART:
                self._give_up()

    async def _is_something_there(self) -> bool:
        """Whether the mailbox has something; not asked before it is worth it."""
        if not isinstance(self._broker, Counting):
            return False
        if self._looks < _ASK:
            return True
        try:
            counting = self._broker.ready(self._mailbox)
            self._ready = await self._calls.limited("count", counting)
        except BackendError:
            return False  # others say that it is out of reach
        return self._ready > 0

    def _give_up(self) -> None:
        why = self.complaint() or "stalled"
        self._restarts += 1
        raise Hopeless(why) if self._restarts > 1 else NoProgress(why)
