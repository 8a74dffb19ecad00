"""Ctrl-C while we wait for somebody: it ends the waiting, the first time already."""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO


@contextmanager
def interruptible() -> Iterator[None]:
    """
    Let an interrupt end what blocks in here.

    asyncio would only cancel its task then, which a read does not notice.
    """
    before = signal.getsignal(signal.SIGINT)
    if not _is_ours(before):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def left_to_child() -> Iterator[None]:
    """Leave interrupts to a program that has the terminal meanwhile."""
    before = signal.getsignal(signal.SIGINT)
    if not _is_ours(before):
        yield
        return
    # Unlike what is ignored, what is handled is not passed on to a child.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for_keys() -> None:
    """
    Wait until something is typed, where standard input is a terminal.

    A read that begins just after an interrupt does not notice it: Python handles the
    interrupt only when the read has ended. This notices both, in either order.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and sys.stdin.isatty()):
        return
    try:
        keys = sys.stdin.fileno()
    except OSError:  # replaced by something that only reads
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        select.select([keys, reader], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def standard_input() -> BinaryIO:
    """The bytes of standard input; waiting for more of them can be interrupted."""
    return BufferedReader(_Standard())


def _is_ours(handler: object) -> bool:
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and handler not in {signal.SIG_IGN, None}


class _Standard(RawIOBase):
    def __init__(self) -> None:
        self._buffer: Any = sys.stdin.buffer

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.stdin.fileno()

    def readinto(self, buffer: Any) -> int:
        with interruptible():
            wait_for_keys()
            data: bytes = self._buffer.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)
