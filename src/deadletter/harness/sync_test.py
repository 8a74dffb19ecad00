"""The same test for code that does not await; the handlers run on a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from deadletter.core.campaign import Campaign
from deadletter.core.events import Event
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.home import Home

from .app_test import WITHIN, AppTest, MessageOptions
from .stage import Raised, Sent

T = TypeVar("T")


class SyncClock:
    """The clock of a test whose event loop runs on another thread."""

    def __init__(self, test: "SyncAppTest") -> None:
        self._test = test

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""
        return self._test.test.clock.now()

    def monotonic(self) -> float:
        """Return the seconds that passed since the beginning."""
        return self._test.test.clock.monotonic()

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass at once; what becomes due meanwhile runs afterwards."""

        async def advance() -> None:
            self._test.test.clock.advance(seconds)

        self._test.call(advance())


class SyncAppTest:
    """
    A test of an App, from `with app.testing() as t`: `AppTest` without awaiting.

    `test` is that AppTest; `call` runs a coroutine where it runs.
    """

    def __init__(self, test: AppTest, home: Home) -> None:
        self.test = test
        self.clock = SyncClock(self)
        self._home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="deadletter-testing", daemon=True
        )
        self._stack = ExitStack()

    @property
    def sent(self) -> list[Sent]:
        """Return the messages that handlers sent, in order."""
        return self.test.sent

    @property
    def raised(self) -> list[Raised]:
        """Return the errors that handlers raised, in order."""
        return self.test.raised

    @property
    def events(self) -> list[Event]:
        """Return what happened, as the observer of the App is told."""
        return self.test.events

    def send(self, mailbox: str, body: object, **options: Unpack[MessageOptions]) -> str:
        """Send a message and return its id; the options are those of `App.send`."""
        return self.call(self.test.send(mailbox, body, **options))

    def send_file(self, file: str | Path) -> str:
        """Send the message of a file that `dlq repro` wrote, and return its id."""
        return self.call(self.test.send_file(file))

    def settled(self, patience: float | timedelta | None = None, *, within: float = WITHIN) -> None:
        """Wait until no message is due, running or scheduled; see `AppTest.settled`."""
        self.call(self.test.settled(patience, within=within))

    def letters(self, mailbox: str | None = None) -> list[DeadLetter]:
        """Return the dead letters of a mailbox, or all, in the order in which they died."""
        return self.call(_of(lambda: self.test.letters(mailbox)))

    def letter(self, mailbox: str | None = None) -> DeadLetter:
        """Return the only dead letter; raise AssertionError if there is none, or another one."""
        return self.call(_of(lambda: self.test.letter(mailbox)))

    def no_letters(self, mailbox: str | None = None) -> None:
        """Raise AssertionError if there are open letters, with the latest error of a handler."""
        self.call(_of(lambda: self.test.no_letters(mailbox)))

    def messages(self, mailbox: str) -> list[Message]:
        """Return the messages in a mailbox: waiting, scheduled or being handled."""
        return self.call(_of(lambda: self.test.messages(mailbox)))

    def replay(self, query: str = "", *, to: str | None = None) -> Campaign:
        """Replay the letters that a search finds, settle, and return the finished replay."""
        return self.call(self.test.replay(query, to=to))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine where the test runs, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self._stack.callback(self._end_thread)
        try:
            stage = self.call(self.test.open())
            self._stack.enter_context(self._home.replaced(stage))
            self.call(self.test.start())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            self.call(self.test.end(error))

    def _end_thread(self) -> None:
        self.call(_cancel_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _of(look: Callable[[], T]) -> T:
    return look()


async def _cancel_tasks() -> None:
    """End what handlers have started, as `asyncio.run` does."""
    loop = asyncio.get_running_loop()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
