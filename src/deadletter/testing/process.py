"""
Simulated processes: tasks that live and die together.

A task belongs to the process in whose context it was started, and so does every
callback and timer of it. A killed process runs nothing any more: no `finally`, no
late callback, as under `kill -9`. A paused one goes on where it was.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

_process: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """A process of the simulation; a restart is a new one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = asyncio.Event()
        self.is_alive = True
        self.is_paused = False
        self._held: list[asyncio.Handle] = []
        # Collected as garbage, a dead coroutine would run its `finally` after all.
        self._tasks: list[asyncio.Task[object]] = []
        self._loop = asyncio.get_running_loop()

    def start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Run something in this process."""
        context = copy_context()
        context.run(_process.set, self)
        self._tasks.append(self._loop.create_task(work, context=context))
        return self._tasks[-1]

    def kill(self) -> None:
        """End it as `kill -9` does: whatever it was about to do, it does not."""
        self.is_alive = False
        self.ended.set()

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP)."""
        self.is_paused = True

    def resume(self) -> None:
        """...and let it go on."""
        self.is_paused = False
        if self.is_alive:
            self.let_go()

    def hold(self, handle: asyncio.Handle) -> bool:
        """Keep back a callback that must not run now; says whether it did."""
        if self.is_alive and not self.is_paused:
            return False
        self._held.append(handle)
        return True

    def let_go(self) -> None:
        """Run what was held back, after all."""
        held, self._held = self._held, []
        for handle in held:
            self._loop._ready.append(handle)  # type: ignore[attr-defined]  # noqa: SLF001 -- the loop is ours


def process_in(context: Context) -> Process | None:
    """The process a context belongs to."""
    return context.get(_process)


def this_process() -> Process | None:
    """The process we are in; None outside of all."""
    return _process.get()
