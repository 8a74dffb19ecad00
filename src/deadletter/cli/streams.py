"""Standard streams: encodings, readers that have gone away, logs and interrupts."""

import codecs
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from typing import Any, BinaryIO, Final, TextIO

import msgspec

from deadletter.output import Notice, drain, never_block, plain_notice
from deadletter.ports import Clock

_ESCAPES: Final = "deadletter.escapes"
_FAIL: Final = {"strict", "surrogateescape"}


def escape_unencodable(*streams: TextIO) -> None:
    """Escape characters that the encoding of a stream cannot represent."""
    codecs.register_error(_ESCAPES, _escaped)
    for stream in streams:
        if not isinstance(stream, TextIOWrapper) or stream.errors not in _FAIL:
            continue
        if not codecs.lookup(stream.encoding).name.startswith("utf"):
            stream.reconfigure(errors=_ESCAPES)


@contextmanager
def restored_streams() -> Iterator[None]:
    """Restore the standard streams at the end; wait briefly for slow readers."""
    before = sys.stdout, sys.stderr
    try:
        yield
    finally:
        if before != (sys.stdout, sys.stderr):
            drain()
            sys.stdout, sys.stderr = before


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Escape a character as JSON does, so that documents stay valid."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return "".join(f"\\u{pair.hex()}" for pair in pairs), error.end


def never_wait(clock: Clock, *, as_json: bool) -> None:
    """Drop lines instead of waiting for a reader, until this run of `dlq` ends."""

    def document(lines: int) -> str:
        fields = {"at": clock.now(), "level": "warning", "event": "lines-dropped"}
        return msgspec.json.encode({**fields, "lines": lines}).decode()

    def notice(name: str) -> Notice:
        return document if as_json and name == "stdout" else plain_notice

    never_block(notice)


@contextmanager
def interruptible() -> Iterator[None]:
    """
    Let an interrupt end a blocking read in the block.

    Otherwise asyncio would only cancel its task, which does not end the read.
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
    """Leave interrupts to a child process that uses the terminal in the block."""
    before = signal.getsignal(signal.SIGINT)
    if not _is_ours(before):
        yield
        return
    # A child inherits ignored signals, but not handled ones.
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for_keys() -> None:
    """
    Wait until something is typed, if standard input is a terminal.

    A read that begins just after an interrupt does not notice it: Python handles the
    interrupt only when the read has ended. This function notices both, in any order.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and sys.stdin.isatty()):
        return
    try:
        keys = sys.stdin.fileno()
    except OSError:  # standard input is replaced by an object without a descriptor
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
    """Return standard input as bytes; an interrupt ends a waiting read."""
    return BufferedReader(_InterruptibleInput())


def _is_ours(handler: object) -> bool:
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and handler not in {signal.SIG_IGN, None}


class _InterruptibleInput(RawIOBase):
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
