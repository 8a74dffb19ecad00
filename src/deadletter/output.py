"""
Output that never blocks the writer.

A pipe without a reader is full after 64 KB, and the next write would block the process. So
lines that cannot be written immediately wait in a bounded queue, and a separate thread
waits for the reader. When the queue is full, lines are dropped and counted; a notice in the
output shows where and how many.
"""

import os
import select
import socket
import stat
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from io import BufferedIOBase, TextIOWrapper
from threading import Condition, Thread
from typing import Any, Final, Generic, TypeAlias, TypeVar
from weakref import ref

from msgspec import Struct

from deadletter.core.text import many

Item = TypeVar("Item")


class _Entry(Struct, Generic[Item]):
    item: Item
    size: int


class _Gap(Struct):
    """A place where lines are missing."""

    lines: int


class BoundedQueue(Generic[Item]):
    """
    A bounded queue with a daemon thread that passes its items to `write`, in order.

    When `count` items or `size` bytes wait, further items are dropped until half of the
    queue is free again. Then `report` is called with the number of dropped lines. Both
    functions run on the thread and may block; their errors are ignored. `put` never
    blocks. A forked child begins with an empty queue.
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
        self.dropped = 0  # lines in total
        self.dropped_since: float | None = None  # monotonic time of the first dropped line
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
        """Return whether nothing waits or is being written; call it with the lock held."""
        return not self._waiting and not self._is_busy

    def put(self, item: Item, *, size: int, lines: int = 1) -> None:
        """Queue an item for writing, or drop it if the queue is full."""
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
        """Wait until everything is written; return False after `within` seconds."""
        with self.lock:
            return self.lock.wait_for(lambda: self.is_idle, max(0.0, within))

    def renew(self) -> None:
        """Start over in a forked child, which does not have the thread."""
        self.lock = Condition()
        self._waiting.clear()
        self._bytes = 0
        self._is_full = self._is_busy = False
        self._thread = None

    def _lacks_room(self, size: int) -> bool:
        # An item that is larger than the queue is accepted if nothing waits.
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
            with suppress(RuntimeError, MemoryError):  # the thread cannot start now
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
    # A weak reference, because functions registered for forks are never removed.
    def renew() -> None:
        if (found := queue()) is not None:
            found.renew()

    return renew


Notice: TypeAlias = Callable[[int], str]
"""Returns a line, without its line break, that says how many lines were dropped."""

LINES: Final = 10_000  # lines in the queue at most
BYTES: Final = 1 << 20  # bytes in the queue at most
_AGAIN: Final = 0.01  # seconds between two attempts on a descriptor that claims to be writable


def plain_notice(lines: int) -> str:
    """Return the notice about dropped lines for people."""
    count = "1 line was" if lines == 1 else f"{lines} lines were"
    return f"dlq: {count} dropped here because nobody read this output"


class BoundedOutput(BufferedIOBase):
    """
    A stream that writes to a file descriptor without blocking; its owner closes it.

    Data is written immediately if possible, so that the last line before a crash is not
    lost. If the reader has gone away, output is dropped without an error.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        notice: Notice = plain_notice,
        lines: int = LINES,
        size: int = BYTES,
    ) -> None:
        self.name = descriptor  # as for files without a name
        self._descriptor = descriptor
        self._notice = notice
        self._port = _port_of(descriptor)
        self._is_in_line = False  # the last written byte was not a line break
        self._is_over = False  # the reader has gone away
        self._queue = BoundedQueue(
            self._write_all,
            self._write_notice,
            name=f"dlq-output-{descriptor}",
            count=lines,
            size=size,
        )

    @property
    def dropped(self) -> int:
        """Return the number of lines dropped so far."""
        return self._queue.dropped

    @property
    def dropped_since(self) -> float | None:
        """Return the monotonic time of the first dropped line."""
        return self._queue.dropped_since

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor; writing to it directly can block."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        """Write as much as possible now; queue the remainder."""
        piece = bytes(data)
        with self._queue.lock:
            if self._is_over:
                self._queue.drop(_lines(piece))
                return len(piece)
            rest = piece
            if self._port.is_unblocked and self._queue.is_idle:
                with suppress(OSError):
                    rest = piece[self._send(piece) :]
            if rest:
                self._queue.put(rest, size=len(rest), lines=_lines(rest))
        return len(piece)

    def drain(self, within: float) -> bool:
        """Wait until everything is written; return False after `within` seconds."""
        return self._queue.drain(within)

    def close(self) -> None:
        """Release resources; the descriptor stays open."""
        if not self.closed:
            super().close()
            self._port.close()

    def _send(self, piece: bytes) -> int:
        """Write once and return the number of bytes written."""
        sent = self._port.send(piece)
        if sent:
            self._is_in_line = piece[sent - 1 : sent] != b"\n"
        return sent

    def _write_all(self, piece: bytes) -> None:
        """Write everything, waiting for the reader; runs on the thread of the queue."""
        lines = _lines(piece)
        has_waited = False
        while piece and not self._is_over:
            try:
                piece = piece[self._send(piece) :]
                has_waited = False
            except BlockingIOError:
                if has_waited:  # without success
                    time.sleep(_AGAIN)
                self._port.wait()
                has_waited = True
            except BrokenPipeError:
                self._is_over = True
            except OSError:  # such as a full disk: only this line is lost
                break
        if piece:
            self._queue.drop(lines)

    def _write_notice(self, lines: int) -> None:
        begin = "\n" if self._is_in_line else ""
        self._write_all(f"{begin}{self._notice(lines)}\n".encode())


def _lines(piece: bytes) -> int:
    return max(1, piece.count(b"\n"))


class _Port:
    """A descriptor that may block: only the thread of the queue writes to it."""

    is_unblocked = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, piece: bytes) -> int:
        return os.write(self._descriptor, piece)

    def wait(self) -> None:
        """Wait until the descriptor is probably writable."""
        watch = select.poll()
        watch.register(self._descriptor, select.POLLOUT)
        watch.poll()

    def close(self) -> None:
        pass


class _FilePort(_Port):
    """A regular file, which never blocks."""

    is_unblocked = True


class _TwinPort(_Port):
    """A non-blocking descriptor of the same pipe or terminal."""

    is_unblocked = True

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


class _SocketPort(_Port):
    """A socket, such as that of the systemd journal."""

    is_unblocked = True

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(True)

    def send(self, piece: bytes) -> int:
        return self._socket.send(piece, socket.MSG_DONTWAIT)

    def close(self) -> None:
        self._socket.close()


def _port_of(descriptor: int) -> _Port:
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return _FilePort(descriptor)
    if stat.S_ISSOCK(kind):
        return _SocketPort(descriptor)
    own = unblocked_twin(descriptor)
    return _Port(descriptor) if own is None else _TwinPort(own)


def write_now(descriptor: int, data: bytes) -> None:
    """Write as much as possible without waiting."""
    port = _port_of(descriptor)
    if port.is_unblocked:
        with suppress(OSError):
            port.send(data)


def unblocked_twin(descriptor: int) -> int | None:
    """
    Return a new non-blocking descriptor of the same pipe or terminal, or None.

    O_NONBLOCK on the descriptor itself would affect every process that shares it, such as
    the shell. Opening the file again avoids that (on Linux).
    """
    if sys.platform != "linux":
        return None
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_APPEND
    try:
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # the terminal of another user, or no /proc
        return None


LAST_WORDS: Final = 1.0  # seconds that an ending process waits for its readers

_outputs: Final[list[BoundedOutput]] = []


def never_block(notice: Callable[[str], Notice] = lambda name: plain_notice) -> None:
    """
    Make `sys.stdout` and `sys.stderr` bounded outputs.

    Streams without a file descriptor do not change. `notice` returns, for the name of a
    stream, the function that describes dropped lines. `sys.__stdout__` and
    `sys.__stderr__` can still block.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, TextIOWrapper):
            continue
        if isinstance(stream.buffer, BoundedOutput):
            continue
        try:
            descriptor = stream.fileno()
        except OSError:  # closed, or without a descriptor
            continue
        stream.flush()
        output = BoundedOutput(descriptor, notice=notice(name))
        bounded = TextIOWrapper(
            output,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=True,  # so that whole lines are written or dropped
        )
        _outputs.append(output)
        setattr(sys, name, bounded)


def drain(*, within: float = LAST_WORDS) -> bool:
    """Wait until the bounded streams are written; return False after `within` seconds."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(getattr(stream, "buffer", None), BoundedOutput):
            stream.flush()  # an incomplete line
    until = time.monotonic() + within
    unwritten = [one for one in _outputs if not one.drain(until - time.monotonic())]
    return not unwritten


def dropped_lines() -> int:
    """Return the number of lines dropped so far because nobody read them."""
    return sum(one.dropped for one in _outputs)


def dropped_note(now: datetime) -> str | None:
    """Return a sentence for people about dropped lines; None if there are none."""
    since = [one.dropped_since for one in _outputs if one.dropped_since is not None]
    if not since:
        return None
    lines = many(dropped_lines(), "line")
    first = now - timedelta(seconds=time.monotonic() - min(since))
    return f"{lines} dropped since {first:%Y-%m-%d %H:%M:%S} UTC because nobody read the output"
