"""
A process that can no longer do its work: it has no memory, or no room for threads.

What it holds would stay claimed for as long as something in it still extends leases,
and messages would be blamed for the state of their process. So it ends, at once and
with exit code 1: a supervisor replaces it, and leases run out. An error of a handler
alone does not prove it: a message may have wanted too much. That is checked.
"""

import asyncio
import os
import threading
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

from deadletter.output.bounded_output import write_now
from deadletter.output.standard import drain

_NO_THREAD: Final = "can't start new thread"  # as the interpreter says it
_ENOUGH: Final = 8 << 20  # bytes that a process needs to do anything
_LOOKS: Final = 4  # before it is certain
_EVERY: Final = 1.0  # seconds between looks at the memory
_UNBORN: Final = 5  # looks after which a thread that should run never will
_APART: Final = 0.25  # seconds between them
_STDERR: Final = 2
_ours: Final["WeakSet[threading.Thread | None]"] = WeakSet()
_LAST_LINE: Final = b"dlq: out of memory or threads: this process ends\n"


def is_wreck(error: object) -> bool:
    """Whether an error, raised in this process, says that there is no room left."""
    if isinstance(error, RuntimeError):
        return str(error) == _NO_THREAD
    # One that another process has told of is about itself.
    return isinstance(error, MemoryError) and not hasattr(error, "dlq_told")


def end_wrecked_process() -> None:
    """End this process now; nothing of it can be relied on."""
    try:
        drain(within=0.5)
        write_now(_STDERR, _LAST_LINE)
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
    """Whether this process can still allocate some memory."""
    try:
        bytearray(_ENOUGH)
    except MemoryError:
        return False
    return True


def has_room() -> bool:
    """Whether this process can still allocate memory and start threads."""
    try:
        start_new_thread(int, ())
    except RuntimeError:
        return False
    return has_memory()


class StarvationCheck:
    """Finds out whether a process has no room left, or a handler wanted too much."""

    def __init__(
        self,
        room: Callable[[], bool] = has_room,
        end: Callable[[], None] = end_wrecked_process,
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
