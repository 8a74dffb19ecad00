"""
The last resort: a process that is stuck ends itself, so that somebody restarts it.

Its deliveries come back when their leases run out. Stuck code cannot be asked
nicely, so this is a SIGKILL, from a thread of its own.
"""

import asyncio
import faulthandler
import os
import signal
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final
from weakref import WeakSet

from msgspec import Struct

from deadletter.core.events import Observer, Stalled
from deadletter.output import drain, unblocked_twin, write_now
from deadletter.ports import Clock

_LAST_WORDS: Final = 2.0  # seconds an observer may take before we go
_STDERR: Final = 2


class Pulse(Struct, frozen=True):
    """Age of the last sign of life of a loop."""

    loop: str
    seconds: float


def end_this_process() -> None:
    """Kill ourselves, whatever state we are in."""
    os.kill(os.getpid(), signal.SIGKILL)


class Watchdog:
    """
    Kills the process when a loop's heart has not beaten for `threshold` seconds.

    Looks every `interval` seconds, and at least three times in a threshold. Code
    that holds the interpreter lock stops this thread too; then the interpreter's
    own fault handler ends the process, after twice the threshold, and writes the
    stacks to stderr.
    """

    def __init__(
        self,
        pulses: Callable[[], Sequence[Pulse]],
        *,
        threshold: float,
        interval: float,
        clock: Clock,
        observe: Observer,
        kill: Callable[[], None] = end_this_process,
    ) -> None:
        self._pulses = pulses
        self._threshold = threshold
        self._interval = min(interval, threshold / 3)
        self._clock = clock
        self._observe = observe
        self._kill = kill
        self._stop = Event()
        self._stacks = _STDERR  # where the interpreter writes them
        self._thread = Thread(target=self._watch, name="dlq-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch, from a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Look once; kill if a loop is stuck."""
        stuck = [p for p in self._pulses() if p.seconds > self._threshold]
        if not stuck:
            return
        # The observer may need a lock that the stuck code holds: it gets a
        # moment on a thread that may hang, and then we go all the same.
        telling = Thread(target=self._tell, args=(stuck,), daemon=True)
        telling.start()
        telling.join(_LAST_WORDS)
        self._kill()

    def _tell(self, stuck: Sequence[Pulse]) -> None:
        for pulse in stuck:
            self._observe(Stalled(mailbox="", loop=pulse.loop, seconds=pulse.seconds))

    def _watch(self) -> None:
        # Written to without waiting: a log that nobody reads must not save us.
        twin = unblocked_twin(_STDERR)
        self._stacks = _STDERR if twin is None else twin
        try:
            looked = self._clock.monotonic()
            self._arm()
            while not self._stop.wait(self._interval):
                now = self._clock.monotonic()
                # When we overslept ourselves the whole process was paused, and
                # the loops have had no chance to beat yet.
                if now - looked < self._threshold:
                    self.check()
                looked = now
                self._arm()
        finally:
            self._disarm()
            if twin is not None:
                os.close(twin)

    def _arm(self) -> None:
        if self._kill is end_this_process:
            faulthandler.dump_traceback_later(2 * self._threshold, exit=True, file=self._stacks)

    def _disarm(self) -> None:
        if self._kill is end_this_process:
            faulthandler.cancel_dump_traceback_later()


# What it holds would stay claimed for as long as something in it still extends leases,
# and messages would be blamed for the state of their process. So it ends, at once and
# with exit code 1: a supervisor replaces it, and leases run out. An error of a handler
# alone does not prove it: a message may have wanted too much. That is checked.

_NO_THREAD: Final = "can't start new thread"  # as the interpreter says it
_ENOUGH: Final = 8 << 20  # bytes that a process needs to do anything
_LOOKS: Final = 4  # before it is certain
_EVERY: Final = 1.0  # seconds between looks at the memory
_UNBORN: Final = 5  # looks after which a thread that should run never will
_APART: Final = 0.25  # seconds between them
_WRECK_STDERR: Final = 2
_ours: Final["WeakSet[threading.Thread | None]"] = WeakSet()
_LAST_LINE: Final = b"dlq: out of memory or threads: this process ends\n"


def is_wreck(error: object) -> bool:
    """Return whether an error, raised in this process, says that there is no room left."""
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    # One that another process has told of is about itself.
    return isinstance(error, MemoryError) and not hasattr(error, "dlq_traceback")


def end_wrecked_process() -> None:
    """End this process now; nothing of it can be relied on."""
    try:
        drain(within=0.5)
        write_now(_WRECK_STDERR, _LAST_LINE)
    finally:
        os._exit(1)


def end_if_wrecked(error: object) -> None:
    """End this process if our own code has failed like this."""
    if is_wreck(error):
        end_wrecked_process()


@contextmanager
def ending_when_wrecked() -> Iterator[None]:
    """
    End this process when its event loop or its threads have no room.

    It also looks every second whether there is any. The process must be ours.
    """
    loop = asyncio.get_running_loop()
    loop_hook, thread_hook = loop.get_exception_handler(), threading.excepthook

    def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        end_if_wrecked(context.get("exception"))
        (loop_hook or type(loop).default_exception_handler)(loop, context)

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        if args.thread in _ours:
            end_if_wrecked(args.exc_value)
        thread_hook(args)

    loop.set_exception_handler(on_loop_error)
    threading.excepthook = on_thread_error
    looking = asyncio.create_task(_watch_room())
    try:
        yield
    finally:
        looking.cancel()
        threading.excepthook = thread_hook
        loop.set_exception_handler(loop_hook)


def guard_this_thread() -> None:
    """End the process when this thread, which is ours, dies without memory."""
    _ours.add(threading.current_thread())


async def _watch_room() -> None:
    check = StarvationCheck()
    unborn: dict[threading.Thread, int] = {}
    while True:
        await asyncio.sleep(_EVERY)
        if not has_memory():
            check.start()
        # A thread that dies of hunger before it runs tells nobody, and whoever has
        # started it waits for it without end: a handler, with its message.
        dead = [one for one in threading.enumerate() if not one.is_alive()]
        unborn = {one: unborn.get(one, 0) + 1 for one in dead}
        if any(looks >= _UNBORN for looks in unborn.values()):
            end_wrecked_process()


def has_memory() -> bool:
    """Return whether this process can still allocate some memory."""
    try:
        bytearray(_ENOUGH)
    except MemoryError:
        return False
    return True


def has_room() -> bool:
    """Return whether this process can still allocate memory and start threads."""
    try:
        start_new_thread(int, ())
    except RuntimeError:
        return False
    return has_memory()


class StarvationCheck:
    """Finds out whether a process has no room left, or a handler wanted too much."""

    def __init__(
        self, room: Callable[[], bool] = has_room, end: Callable[[], None] = end_wrecked_process
    ) -> None:
        self.is_running = False
        self._room = room
        self._end = end

    def start(self) -> None:
        """Look a few times; end the process if there is never any room."""
        if not self.is_running:
            self.is_running = True
            self._later(_LOOKS)

    def _later(self, looks: int) -> None:
        # Later, because an error still holds all that its handler had.
        asyncio.get_running_loop().call_later(_APART, self._look, looks)

    def _look(self, looks: int) -> None:
        if self._room():
            self.is_running = False
        elif looks > 1:
            self._later(looks - 1)
        else:
            self._end()
