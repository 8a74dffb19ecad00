"""Ctrl-C while we wait for somebody: it ends the waiting, the first time already."""

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
            data: bytes = self._buffer.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)
