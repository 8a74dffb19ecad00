"""
The process in which an isolated handler runs.

    python -m deadletter.runtime.isolation_child FD

It is told over a socket which handler to load, then runs it on one delivery at a
time, and ends when the socket does: its worker is gone, or has no more use for it.
"""

import asyncio
import contextlib
import importlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import reduce
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final

from deadletter.core.errors import ConfigError
from deadletter.core.message import Delivery
from deadletter.output import drain, never_block

from .deliveries import ClaimedDelivery, HandlerNote
from .handlers import JSON, Context, encode, encode_result, is_async, typed
from .isolation_wire import (
    LENGTH,
    Answer,
    Ask,
    Beat,
    Done,
    Hello,
    Ready,
    Request,
    UnusableHandler,
    describe,
    frame,
    length,
    read_request,
)
from .lifeline import signal_when_orphaned

_BEATS_APART: Final = 0.1  # seconds; a handler may beat as often as it likes


class SystemClock:
    """The time of this process."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class Line:
    """
    Our end of the socket.

    A thread listens, so that the end of our worker is noticed even while the
    handler is at work: what it does then no longer counts, and it must not go on
    beside the next one.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._sending = Lock()
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._is_busy = False
        Thread(target=self._listen, name="dlq-line", daemon=True).start()

    def __iter__(self) -> Iterator[Request]:
        while (request := self._requests.get()) is not None:
            yield request
            self._is_busy = False

    def send(self, answer: Answer) -> None:
        with self._sending:
            self._socket.sendall(frame(answer))

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while head := self._read(LENGTH):
                request = read_request(self._read(length(head)))
                self._is_busy = True
                self._requests.put(request)
        if self._is_busy:
            os._exit(0)
        self._requests.put(None)

    def _read(self, size: int) -> bytes:
        chunks = []
        while size:
            chunk = self._socket.recv(min(size, 1 << 20))
            if not chunk:
                return b""
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


class Remote(ClaimedDelivery):
    """A delivery held by a worker elsewhere, who hears of our signs of life."""

    __slots__ = ("_line",)

    def __init__(self, delivery: Delivery, line: Line) -> None:
        super().__init__(delivery, 0.0)
        self._line = line

    def beat(self, now: float) -> None:
        if now - self.beaten >= _BEATS_APART:
            self.beaten = now
            self._line.send(Beat())

    def note(self, noted: HandlerNote) -> None:
        self._line.send(noted)


def serve(line: Line) -> None:
    """Load the handler, then run it as often as we are asked to."""
    run: Callable[[Remote], object] | None = None
    with asyncio.Runner() as runner:
        for request in line:
            match request:
                case Hello():
                    try:
                        run = _runnable(request, runner)
                    except BaseException as error:  # noqa: BLE001 -- modules may do anything
                        line.send(UnusableHandler(_why_unfit(request, error)))
                        return
                    line.send(Ready())
                case Ask(delivery, wants_result) if run is not None:
                    _answer(line, run, delivery, wants_result=wants_result)


def _answer(
    line: Line, run: Callable[[Remote], object], delivery: Delivery, *, wants_result: bool
) -> None:
    try:
        value = run(Remote(delivery, line))
        if value is None:
            line.send(Done())
        elif delivery.message.reply_to is not None:
            line.send(Done(*encode(value)))
        else:
            result = encode_result(value) if wants_result else None
            line.send(Done() if result is None else Done(result, JSON))
    except BaseException as error:  # noqa: BLE001 -- handlers may raise anything
        line.send(describe(error))


def _runnable(hello: Hello, runner: asyncio.Runner) -> Callable[[Remote], object]:
    sys.path[:] = hello.path
    function = load(hello.target)
    handler = typed(function)
    clock = SystemClock()
    if hello.memory_limit is not None:
        _limit_memory(hello.memory_limit)

    def run_here(held: Remote) -> object:
        Context(held, clock).enter()
        return handler(held.delivery)

    async def run_there(held: Remote) -> object:
        Context(held, clock).enter()
        return await handler(held.delivery)

    if is_async(function):
        return lambda held: runner.run(run_there(held))
    return run_here


def load(target: str) -> Callable[..., Any]:
    """Return what `module:attribute` names."""
    module, _, attributes = target.partition(":")
    found = reduce(getattr, attributes.split("."), importlib.import_module(module))
    if not callable(found):
        raise ConfigError(f"{target} is not a function")
    return found


def _limit_memory(limit: int) -> None:
    taken = _memory_taken()
    if taken >= limit:
        raise ConfigError(
            f"the handler's process takes {taken >> 20} MiB before it has done "
            f"anything; a memory_limit of {limit >> 20} MiB is too low"
        )
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _memory_taken() -> int:
    """Bytes of address space in use, which is what the limit counts."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _why_unfit(hello: Hello, error: BaseException) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    return f"{hello.target} cannot be loaded: {type(error).__name__}: {error}"


def main() -> None:
    """Serve the socket that the command line names."""
    # Whoever signals a whole group means our worker, who decides what becomes of
    # us; and we do not outlive it, not even when the handler hangs.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal_when_orphaned(signal.SIGKILL)
    never_block()  # a handler that prints does not wait for whoever reads it
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(Line(int(sys.argv[1])))
    drain()


if __name__ == "__main__":
    main()
