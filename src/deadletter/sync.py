"""
An App for code that does not await: scripts, Django, Flask.

    from deadletter.sync import SyncApp

    shop = SyncApp(app)
    shop.send("orders", order)

One background thread runs one event loop for all callers.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from .app import App
from .core.errors import ConfigError, Unavailable
from .core.letter import DeadLetter
from .ports import Page
from .runtime.outgoing import Item
from .wiring.lending import LentConnection

T = TypeVar("T")


class SyncApp:
    """
    An App that can be called without awaiting, from any thread.

    Its thread starts with the first call in each process, so a SyncApp may be made before
    a server forks its workers. It ends with the process; close it, or use it in a `with`
    block, to end it earlier.

    Args:
        app: An App, or the URL of one.
        timeout: Seconds after which a call raises Unavailable; None waits without a limit
            (default 60).
    """

    def __init__(self, app: App | str, *, timeout: float | None = 60.0) -> None:
        self.app = App(app) if isinstance(app, str) else app
        self.timeout = timeout
        self._lock = threading.Lock()  # protects the fields below
        self._thread: _LoopThread | None = None
        self._is_closed = False
        _apps.add(self)

    def send(
        self,
        mailbox: str,
        body: object,
        *,
        id: str | None = None,
        key: str | None = None,
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        expires_in: float | timedelta | None = None,
        idempotency_key: str | None = None,
        reply_to: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        connection: object = None,
    ) -> str:
        """
        Send a message and return its id; the arguments are those of `App.send`.

        With `connection`, its statements run on the calling thread.
        """
        send = partial(
            self.app.send,
            mailbox,
            body,
            id=id,
            key=key,
            delay=delay,
            at=at,
            max_attempts=max_attempts,
            expires_in=expires_in,
            idempotency_key=idempotency_key,
            reply_to=reply_to,
            headers=headers,
            content_type=content_type,
            traceparent=traceparent,
            tracestate=tracestate,
        )
        return self.call(send()) if connection is None else self._lend(send, connection)

    def send_many(
        self,
        mailbox: str,
        items: Iterable[Item],
        *,
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        connection: object = None,
    ) -> list[str]:
        """Send many messages, all or none; the arguments are those of `App.send_many`."""
        send = partial(
            self.app.send_many, mailbox, items, delay=delay, at=at, max_attempts=max_attempts
        )
        return self.call(send()) if connection is None else self._lend(send, connection)

    def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page:
        """
        Return one page of the letters that match a query, newest first.

        Args:
            query: A search, as in `dlq list` (default: all letters).
            limit: Letters on the page (default 50).
            after: The cursor of the page before (default: None, the first page).
        """

        async def searching() -> Page:
            office = await self.app.office()
            return await office.letters.search(query, limit=limit, after=after)

        return self.call(searching())

    def letter(self, letter_id: str) -> DeadLetter:
        """Return a letter with its whole story; raise NotFound if there is none."""

        async def getting() -> DeadLetter:
            office = await self.app.office()
            return await office.letters.get(letter_id)

        return self.call(getting())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """
        Run a coroutine on the thread of the App, and return its result.

        Use it for methods of the App that SyncApp does not have. Raises ConfigError when
        called on that thread, which would wait for itself.
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
            if future.done():  # the coroutine itself raised TimeoutError
                raise
            future.cancel()
            raise self._late() from None

    def _lend(self, send: Callable[..., Coroutine[Any, Any, T]], connection: object) -> T:
        """Send on the thread of the App, with the statements of the connection on this one."""
        lent = LentConnection(connection)
        thread = self._running()

        async def sending() -> T:
            async with asyncio.timeout(self.timeout) as limit:
                try:
                    return await send(connection=lent)
                except asyncio.CancelledError:
                    if limit.expired():
                        raise self._late() from None
                    raise

        return lent.serve(thread.loop, sending())

    def _late(self) -> Unavailable:
        return Unavailable(
            f"no answer within {self.timeout:g} seconds: the call may or may not have "
            "taken effect; try again, or give SyncApp a longer timeout"
        )

    def close(self) -> None:
        """Close the App and end the thread; further calls raise ConfigError."""
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
                    "SyncApp was called on its own thread, which would wait for itself: await "
                    "the method of the App, or call SyncApp from a sync handler"
                )
            return self._thread

    def _forked(self) -> None:
        """Start over in a forked process, which has neither the thread nor its locks."""
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
    """A thread that runs an event loop until it is ended."""

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
        app._forked()  # noqa: SLF001 -- in the same module


_apps: Final[WeakSet[SyncApp]] = WeakSet()
os.register_at_fork(after_in_child=_after_fork)
