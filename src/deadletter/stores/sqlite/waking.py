"""
Waking those who wait for a message.

Whoever sends in this process rings at once. What other processes send is noticed
by one thread that looks at the file's change counter while somebody waits, and
also knows when the next delayed message is due.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from deadletter.core.errors import BackendError
from deadletter.ports.features import Clock

from .connection import Link
from .sql import micros

_TICK: Final = 0.025  # seconds between two looks
_SECOND: Final = 1_000_000  # microseconds

_NEXT_DUE: Final = """
SELECT due FROM messages WHERE mailbox = ? AND token IS NULL AND suspect = 0
ORDER BY due LIMIT 1
"""
_NEXT_SUSPECT: Final = """
SELECT due FROM messages WHERE mailbox = ? AND token IS NULL AND suspect = 1
ORDER BY due LIMIT 1
"""


class Bell:
    """Rings once, on the event loop of the one who waits for it."""

    def __init__(self, mailbox: int, *, alone: bool) -> None:
        self.mailbox = mailbox
        self.alone = alone
        self.due: int | None = None  # of the next message, when it is known
        self.looked = False
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def question(self, now: int) -> tuple[str, tuple[int, ...]]:
        """Return the query for the time of the next message."""
        return (_NEXT_SUSPECT if self.alone else _NEXT_DUE), (self.mailbox,)

    def ring(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 -- not an error
        """Until it rings, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._rung.wait()


class Waking:
    """All who wait on one file, in this process."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._bells: set[Bell] = set()
        self._changed = threading.Condition()
        self._stopped = False
        self._version = -1
        self._thread: threading.Thread | None = None

    @contextmanager
    def bell(self, mailbox: int, *, alone: bool) -> Iterator[Bell]:
        """A bell that rings when there may be something in the mailbox, even now."""
        bell = Bell(mailbox, alone=alone)
        self.add(bell)
        try:
            yield bell
        finally:
            self.discard(bell)

    def add(self, bell: Bell) -> None:
        """Have it rung when there may be something, until it is discarded."""
        with self._changed:
            self._bells.add(bell)
            self._start()
            self._changed.notify()

    def discard(self, bell: Bell) -> None:
        """Nobody waits for it any more."""
        with self._changed:
            self._bells.discard(bell)

    def ring(self, mailbox: int) -> None:
        """Something was put into the mailbox by this process."""
        if not self._bells:
            return
        with self._changed:
            bells = [bell for bell in self._bells if bell.mailbox == mailbox]
        for bell in bells:
            bell.ring()

    def stop(self) -> None:
        """End the thread. Blocks."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._link.drop()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._watch, name="deadletter-waking", daemon=True
            )
            self._thread.start()

    def _watch(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                if not self._stopped and not any(not b.looked for b in self._bells):
                    self._changed.wait(pause if self._bells else None)
                if self._stopped:
                    return
                bells = list(self._bells)
            pause = self._look(bells)

    def _look(self, bells: list[Bell]) -> float:
        """Ring for what is due; how long to wait until the next look."""
        now = micros(self._clock.now())
        try:
            self._ask(bells, now)
        except (sqlite3.Error, BackendError) as error:
            # Whoever waits finds out for himself when he tries to receive.
            self._link.failed(error)
            self._version = -1  # another connection counts from elsewhere
            return _TICK
        pause = _TICK
        for bell in bells:
            if bell.due is None:
                continue
            if bell.due <= now:
                bell.due = None
                bell.ring()
            else:
                pause = min(pause, (bell.due - now) / _SECOND)
        return pause

    def _ask(self, bells: list[Bell], now: int) -> None:
        connection = self._link.get()
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        for bell in bells:
            if version != self._version or not bell.looked:
                found = connection.execute(*bell.question(now)).fetchone()
                bell.due = None if found is None else int(found[0])
                bell.looked = True
        self._version = version
