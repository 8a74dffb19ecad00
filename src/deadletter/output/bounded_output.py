"""A file descriptor that can be written to without ever waiting for its reader."""

import os
import select
import socket
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from io import BufferedIOBase
from typing import Any, Final, TypeAlias

from .bounded_queue import BoundedQueue

Notice: TypeAlias = Callable[[int], str]
"""Gives the line, without its end, that says how many lines were dropped."""

LINES: Final = 10_000  # that wait at most
BYTES: Final = 1 << 20  # of them
_AGAIN: Final = 0.01  # seconds between two tries on what says that it is writable


def plain_notice(lines: int) -> str:
    """Say that lines are missing, to a person."""
    said = "1 line was" if lines == 1 else f"{lines} lines were"
    return f"dlq: {said} dropped here because nobody read this output"


class BoundedOutput(BufferedIOBase):
    """
    A file descriptor to write to, which stays its owner's.

    What can be written at once is, so that the last line before a crash is not
    lost. The end of the reader is not an error: what is written then is dropped.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        notice: Notice = plain_notice,
        lines: int = LINES,
        size: int = BYTES,
    ) -> None:
        self.name = descriptor  # as files without a name have it
        self._descriptor = descriptor
        self._notice = notice
        self._port = _port_of(descriptor)
        self._is_in_line = False  # the last byte written was not the end of one
        self._is_over = False  # the reader is gone for good
        self._queue = BoundedQueue(
            self._write_all,
            self._write_notice,
            name=f"dlq-output-{descriptor}",
            count=lines,
            size=size,
        )

    @property
    def dropped(self) -> int:
        """Lines that were dropped so far."""
        return self._queue.dropped

    @property
    def dropped_since(self) -> float | None:
        """When the first of them was, by the monotonic clock."""
        return self._queue.dropped_since

    def writable(self) -> bool:
        """Say yes."""
        return True

    def fileno(self) -> int:
        """The descriptor; what is written there is not bounded."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a terminal is at the other end."""
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        """Write now what can be written, the rest when there is a reader."""
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
        """Wait until everything is written; False if time ran out."""
        return self._queue.drain(within)

    def close(self) -> None:
        """Let go of what is ours; the descriptor stays open."""
        if not self.closed:
            super().close()
            self._port.close()

    def _send(self, piece: bytes) -> int:
        """Write once; how much of it."""
        sent = self._port.send(piece)
        if sent:
            self._is_in_line = piece[sent - 1 : sent] != b"\n"
        return sent

    def _write_all(self, piece: bytes) -> None:
        """Write it on the thread of the queue, however long the reader takes."""
        lines = _lines(piece)
        has_waited = False
        while piece and not self._is_over:
            try:
                piece = piece[self._send(piece) :]
                has_waited = False
            except BlockingIOError:
                if has_waited:  # for nothing
                    time.sleep(_AGAIN)
                self._port.wait()
                has_waited = True
            except BrokenPipeError:
                self._is_over = True
            except OSError:  # a full disk, say: this line is lost, the next may not be
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
        """Wait until it can be written to, more or less."""
        watch = select.poll()
        watch.register(self._descriptor, select.POLLOUT)
        watch.poll()

    def close(self) -> None:
        pass


class _FilePort(_Port):
    """A file: writing to it waits for nobody."""

    is_unblocked = True


class _TwinPort(_Port):
    """A descriptor of our own that never blocks."""

    is_unblocked = True

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


class _SocketPort(_Port):
    """A socket, as systemd gives one for its journal."""

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
    """Write what can be written without waiting, if anything."""
    port = _port_of(descriptor)
    if port.is_unblocked:
        with suppress(OSError):
            port.send(data)


def unblocked_twin(descriptor: int) -> int | None:
    """
    A new descriptor of the same pipe or terminal that never blocks; None: no way.

    Setting O_NONBLOCK on the descriptor itself would set it for every process that
    has it, a shell among them. Opening the file anew does not (Linux).
    """
    if sys.platform != "linux":
        return None
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_APPEND
    try:
        return os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # somebody else's terminal, or no /proc
        return None
