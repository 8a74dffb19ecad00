"""Lend connections of applications to engines, on the thread where each may be used."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.ports import BorrowedConnection, Engine, JoinsTransactions, Rows, Sink

from .connections import AsyncConnection, SyncConnection, adapter

T = TypeVar("T")

_LOOK: Final = 1.0  # seconds between two looks whether the event loop still runs


def sink_within(engine: Engine, mailbox: str, connection: object) -> Sink:
    """
    Return the sending side of a mailbox, within the transaction of a connection.

    Raises ConfigError if the connection is of another kind than the engine, or if the engine
    cannot do it at all.
    """
    name = engine.features.engine
    if not isinstance(engine, JoinsTransactions):
        raise ConfigError(
            f"{name} cannot send within a transaction of a database, as connection= asks: send to"
            " a mailbox in that database (an App with its postgresql:// or sqlite:/// URL), and"
            f" let a handler of that mailbox send on to {name}"
        )
    borrowed = _borrowed(connection)
    if borrowed.dialect != name:
        raise ConfigError(
            f"connection= leads to {borrowed.dialect}, but the mailboxes are in {name}: give the"
            " App the URL of the database that the connection leads to"
        )
    return engine.transactions.sink(mailbox, borrowed)


def _borrowed(connection: object) -> BorrowedConnection:
    if isinstance(connection, LentConnection):
        return connection
    found = adapter(connection)
    return found if isinstance(found, AsyncConnection) else _Inline(found)


class _Inline:
    """A connection that blocks, used on the event loop: it belongs to this thread."""

    def __init__(self, connection: SyncConnection) -> None:
        self.dialect = connection.dialect
        self._connection = connection

    async def driver(self) -> object:
        return self._connection.driver()

    async def enter(self) -> None:
        self._connection.enter()

    async def fetch(self, sql: str, *values: Any) -> Rows:
        return self._connection.fetch(sql, *values)


class LentConnection:
    """
    A connection that belongs to the calling thread, lent to the event loop of another one.

    The calling thread runs the statements while it waits in `serve`.
    """

    def __init__(self, connection: object) -> None:
        adapted = adapter(connection)
        if isinstance(adapted, AsyncConnection):
            raise ConfigError(
                f"connection= is a {type(connection).__name__}, which has to be awaited: use"
                " `await app.send(…, connection=…)` of the App, not SyncApp"
            )
        self.dialect = adapted.dialect
        self._connection = adapted
        self._errands: SimpleQueue[_Errand | None] = SimpleQueue()
        self._is_over = False

    async def driver(self) -> object:
        """Return the driver's own connection."""
        return await self._ask(self._connection.driver)

    async def enter(self) -> None:
        """Make sure that a transaction is open; raise ConfigError if none can be."""
        await self._ask(self._connection.enter)

    async def fetch(self, sql: str, *values: Any) -> Rows:
        """Run one statement; return its rows."""
        return await self._ask(lambda: self._connection.fetch(sql, *values))

    def serve(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on another thread's loop, and here the statements it asks for."""
        future = asyncio.run_coroutine_threadsafe(work, loop)
        future.add_done_callback(lambda _: self._errands.put(None))
        try:
            while (errand := self._next(loop)) is not None:
                errand.run()
            return future.result(0)
        except BaseException:
            self._is_over = True
            future.cancel()
            raise

    def _next(self, loop: asyncio.AbstractEventLoop) -> "_Errand | None":
        while True:
            try:
                return self._errands.get(timeout=_LOOK)
            except Empty:
                if not loop.is_running():
                    raise Unavailable("the App was closed by another thread") from None

    async def _ask(self, work: Callable[[], T]) -> T:
        if self._is_over:
            raise Unavailable("the caller of send was interrupted")
        errand = _Errand(work)
        self._errands.put(errand)
        answer: T = await asyncio.wrap_future(errand.answer)
        return answer


class _Errand:
    """Something to be done on the calling thread, and who waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.answer: Future[Any] = Future()
        self._work = work

    def run(self) -> None:
        if not self.answer.set_running_or_notify_cancel():
            return
        try:
            result = self._work()
        except Exception as error:  # noqa: BLE001 -- raised where it is waited for
            self.answer.set_exception(error)
        except BaseException:
            self.answer.set_exception(Unavailable("the caller of send was interrupted"))
            raise
        else:
            self.answer.set_result(result)
