"""A bounded queue between many that must not wait and one thread that may."""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Generic, TypeVar
from weakref import ref

from msgspec import Struct

Item = TypeVar("Item")


class _Entry(Struct, Generic[Item]):
    item: Item
    size: int


class _Gap(Struct):
    """A place where lines are missing."""

    lines: int


class BoundedQueue(Generic[Item]):
    """
    Items for a daemon thread that hands them to `write`, one after the other.

    When `count` items or `size` bytes wait, further ones are dropped until half of
    the room is free again; at that place `report` is called with their number of
    lines. Both run on the thread and may block; what they raise is ignored. Whoever
    puts never waits. A child made by fork begins with an empty queue.
    """

    def __init__(
        self,
        write: Callable[[Item], object],
        report: Callable[[int], object],
        *,
        name: str,
        count: int,
        size: int,
    ) -> None:
        self.dropped = 0  # lines, all in all
        self.dropped_since: float | None = None  # when the first was, monotonic
        self._write = write
        self._report = report
        self._name = name
        self._count = count
        self._size = size
        self.lock = Condition()
        self._waiting: deque[_Entry[Item] | _Gap] = deque()
        self._bytes = 0
        self._is_full = False
        self._is_busy = False
        self._thread: Thread | None = None
        os.register_at_fork(after_in_child=_renewal(ref(self)))

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being written; asked with the lock."""
        return not self._waiting and not self._is_busy

    def put(self, item: Item, *, size: int, lines: int = 1) -> None:
        """Have it written, or drop it."""
        with self.lock:
            if self._is_full or self._lacks_room(size) or not self._has_thread():
                self._is_full = bool(self._waiting)
                self._miss(lines)
                return
            self._waiting.append(_Entry(item, size))
            self._bytes += size
            self.lock.notify_all()

    def drop(self, lines: int) -> None:
        """Count lines that were lost elsewhere."""
        with self.lock:
            self._count_dropped(lines)

    def drain(self, within: float) -> bool:
        """Wait until all is written; False if it is not after `within` seconds."""
        with self.lock:
            return self.lock.wait_for(lambda: self.is_idle, max(0.0, within))

    def renew(self) -> None:
        """Begin anew, in a process that has our memory but not our thread."""
        self.lock = Condition()
        self._waiting.clear()
        self._bytes = 0
        self._is_full = self._is_busy = False
        self._thread = None

    def _lacks_room(self, size: int) -> bool:
        # One item that is larger than all the room has a chance when nothing waits.
        is_crowded = self._bytes + size > self._size and bool(self._waiting)
        return is_crowded or len(self._waiting) >= self._count

    def _count_dropped(self, lines: int) -> None:
        self.dropped += lines
        if self.dropped_since is None:
            self.dropped_since = time.monotonic()

    def _miss(self, lines: int) -> None:
        self._count_dropped(lines)
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, _Gap):
            last.lines += lines
        elif last is not None:
            self._waiting.append(_Gap(lines))

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = Thread(target=self._run, name=self._name, daemon=True)
            with suppress(RuntimeError, MemoryError):  # no room for one, for now
                thread.start()
                self._thread = thread
        return self._thread is not None

    def _run(self) -> None:
        while True:
            with self.lock:
                self._is_busy = False
                if not self._waiting:
                    self._is_full = False
                    self.lock.notify_all()
                while not self._waiting:
                    self.lock.wait()
                self._is_busy = True
                entry = self._waiting.popleft()
                if isinstance(entry, _Entry):
                    self._bytes -= entry.size
                if 2 * self._bytes <= self._size:
                    self._is_full &= 2 * len(self._waiting) > self._count
            with suppress(Exception):
                if isinstance(entry, _Gap):
                    self._report(entry.lines)
                else:
                    self._write(entry.item)


def _renewal(queue: "ref[BoundedQueue[Item]]") -> Callable[[], None]:
    # By a weak reference: what is registered for forks is registered for ever.
    def renew() -> None:
        if (found := queue()) is not None:
            found.renew()

    return renew
