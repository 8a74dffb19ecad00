"""
Running handlers in few tasks: most of them never wait for anything.

A task of its own costs more than many a handler does. So one task runs the handlers
of a batch, one after another, each in a context of its own. The first one that waits
for something keeps the task for itself, and another task goes on with the rest: to
a handler it looks as if it had been started alone.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import coroutine
from typing import Any, Final, TypeAlias

from .held import Held

Attempt: TypeAlias = Callable[[Held], Coroutine[Any, Any, None]]

_TURNS: Final = 6  # of an event loop, in which what is to be sent out has been


class Running:
    """Starts attempts; they end by themselves, and never raise."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ready: deque[Held] = deque()
        self._is_going = False  # a task is there that will take the next
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio itself forgets them
        self._loop = asyncio.get_running_loop()

    def start(self, batch: Sequence[Held]) -> None:
        """
        Run these, some turns of the event loop later.

        Until then the next fetch and what is to be settled are on their way, and
        these run while an engine waits for its disk or its server.
        """
        self._soon(batch, _TURNS)

    def forget(self) -> None:
        """Start none of those that have not been started yet, nor any other."""
        self._is_over = True
        self._ready.clear()

    def _soon(self, batch: Sequence[Held], turns: int) -> None:
        if turns:
            self._loop.call_soon(self._soon, batch, turns - 1)
        elif not self._is_over:
            self._ready.extend(batch)
            self._go_on()

    def _go_on(self) -> None:
        if self._ready and not self._is_going:
            self._is_going = True
            self._tasks.add(task := self._loop.create_task(self._run()))
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        task = asyncio.current_task()
        while self._ready:
            held = self._ready.popleft()
            held.task = task
            if await self._steps(self._attempt(held), contextvars.copy_context()):
                return  # it waited, and somebody else has gone on meanwhile
        self._is_going = False

    @coroutine
    def _steps(
        self, attempt: Coroutine[Any, Any, None], context: contextvars.Context
    ) -> Generator[Any, Any, bool]:
        """Take an attempt to its end; whether it had to wait on the way."""
        try:
            awaited = context.run(attempt.send, None)
        except StopIteration:
            return False
        self._is_going = False
        self._go_on()
        while True:
            step: Callable[[Any], Any] = attempt.send
            try:
                value = yield awaited
            except BaseException as error:  # noqa: BLE001 -- it is the attempt's
                step, value = attempt.throw, error
            try:
                awaited = context.run(step, value)
            except StopIteration:
                return True
