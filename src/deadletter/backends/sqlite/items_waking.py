"""Telling those who wait for items of a queue."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from .engine import Database
from .waking import Bell, Waking

# Something is there now, or nothing is known of when.
_WAITING: Final = """
SELECT 0 FROM lease_partitions AS p WHERE p.queue = ? AND EXISTS (
    SELECT 1 FROM items WHERE items.queue = p.queue AND items.partition = p.partition
    AND state = 0 AND held = 0 AND seq >= p.head AND (due IS NULL OR due > ?))
LIMIT 1
"""


class ItemBell(Bell):
    """Rings when another process has put something into a queue."""

    def __init__(self, queue: int, tell: Callable[[], None]) -> None:
        super().__init__(queue, alone=False)
        self._tell = tell

    def question(self, now: int) -> tuple[str, tuple[int, ...]]:
        """What to ask the file for something to lease."""
        return _WAITING, (self.mailbox, now)

    def ring(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._tell)


class Readiness:
    """
    Who is told when a queue may have something to lease.

    The file is watched for queues of which somebody has asked in vain.
    """

    def __init__(self, db: Database) -> None:
        self._waking = Waking(db.reader(), db.clock)
        self._tell: list[Callable[[str], None]] = []
        self._bells: dict[str, ItemBell] = {}

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with the names of queues."""
        self._tell.append(tell)

    def tell(self, names: Iterable[str]) -> None:
        """These queues may have something to lease."""
        for name in names:
            bell = self._bells.pop(name, None)
            if bell is not None:
                self._waking.discard(bell)
            for tell in self._tell:
                tell(name)

    def watch(self, name: str, queue: int) -> None:
        """Somebody has asked this queue in vain."""
        if self._tell and name not in self._bells:
            bell = ItemBell(queue, lambda: self.tell([name]))
            self._bells[name] = bell
            self._waking.add(bell)

    def stop(self) -> None:
        """Stop watching. Blocks."""
        self._waking.stop()
