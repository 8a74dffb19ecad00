"""
The same, for code that does not await: scripts, Django, Flask.

    from deadletter.sync import SyncApp

    shop = SyncApp(app)
    shop.send("orders", order)

One background thread runs one event loop for all callers; nothing is implemented
twice.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from .assembly import App
from .core.errors import ConfigError, Unavailable
from .core.letter import DeadLetter
from .office.letters import Letters
from .ports import Page
from .system import SystemClock

T = TypeVar("T")


class SyncApp:
    """
    An App that can be called without awaiting, from any thread.

    Its thread begins with the first call, in each process that calls: it may be made
    before a server forks its workers. A call that takes longer than `timeout` seconds
    raises Unavailable; None waits for ever. Close it, or use it in a `with` block, when
    its work must be over at a certain point; otherwise it ends with the process.
    """

    def __init__(self, app: App | str, *, timeout: float | None = 60.0) -> None:
        self.app = App(app) if isinstance(app, str) else app
        self.timeout = timeout
        self._lock = threading.Lock()  # over what follows
        self._thread: _LoopThread | None = None
        self._is_closed = False
        _apps.add(self)

    def send(self, mailbox: str, body: object, **options: Any) -> str:
        """Send a message; takes what `App.send` takes."""
        return self.call(self.app.send(mailbox, body, **options))

    def send_many(
        self, mailbox: str, bodies: Iterable[object], *, delay: float = 0.0
    ) -> list[str]:
        """Send many messages at once: all of them, or none."""
        return self.call(self.app.send_many(mailbox, bodies, delay=delay))

    def search(
        self, query: str = "", *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Find letters, newest first."""

        async def searching() -> Page:
            letters = Letters(await self.app.letters(), SystemClock())
            return await letters.search(query, limit=limit, after=after)

        return self.call(searching())

    def letter(self, letter_id: str) -> DeadLetter:
        """One letter's whole story."""

        async def getting() -> DeadLetter:
            letters = Letters(await self.app.letters(), SystemClock())
            return await letters.get(letter_id)

        return self.call(getting())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """
        What a coroutine gives, run where the App runs; for all that has no method here.

        Not from that thread itself, which would wait for ever: a ConfigError.
        """
        try:
            thread = self._running()
        except ConfigError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, thread.loop)
        try:
            return future.result(self.timeout)
        except TimeoutError:
            if future.done():  # it was the work that raised it
                raise
            future.cancel()
            raise Unavailable(
                f"no answer within {self.timeout:g} seconds: whether it was done is "
                "not known; try again, or give SyncApp a longer timeout"
            ) from None

    def close(self) -> None:
        """Let go of everything; further calls are refused."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._is_closed = True
        if thread is None:
            return
        try:
            closing = asyncio.run_coroutine_threadsafe(self.app.close(), thread.loop)
            closing.result(self.timeout)
        finally:
            thread.end()

    def _running(self) -> "_LoopThread":
        with self._lock:
            if self._is_closed:
                raise ConfigError("this SyncApp is closed: make a new one")
            if self._thread is None:
                self._thread = _LoopThread()
                self._thread.start()
            if threading.current_thread() is self._thread:
                raise ConfigError(
                    "this runs on the thread that would have to do it: await it, or "
                    "call from a sync handler, which has a thread of its own"
                )
            return self._thread

    def _forked(self) -> None:
        """Begin anew in a forked process: threads and held locks stay behind."""
        self._lock = threading.Lock()
        self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _LoopThread(threading.Thread):
    """A thread that runs an event loop until it is told to end."""

    def __init__(self) -> None:
        super().__init__(name="deadletter-sync", daemon=True)
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        self.loop.run_forever()

    def end(self) -> None:
        """Stop the loop, and wait until it has stopped."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.join()
        self.loop.close()


def _after_fork() -> None:
    for app in list(_apps):
        app._forked()  # noqa: SLF001 -- it is ours


_apps: Final[WeakSet[SyncApp]] = WeakSet()
os.register_at_fork(after_in_child=_after_fork)
