"""
The same, for code that does not await: scripts, Django, Flask.

    from deadletter.sync import SyncApp

    shop = SyncApp(app)
    shop.send("orders", order)

One background thread runs one event loop for all callers; nothing is implemented
twice.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from .assembly import App
from .core.errors import ConfigError
from .core.letter import DeadLetter
from .office.letters import Letters
from .ports import Page
from .system import SystemClock

T = TypeVar("T")


class SyncApp:
    """
    An App that can be called without awaiting, from any thread.

    Close it, or use it in a `with` block, when its work must be over at a
    certain point; otherwise it ends with the process.
    """

    def __init__(self, app: App | str) -> None:
        self.app = App(app) if isinstance(app, str) else app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="deadletter-sync", daemon=True
        )
        self._thread.start()

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
        if threading.current_thread() is self._thread:
            work.close()
            raise ConfigError(
                "this runs on the thread that would have to do it: await it, or call "
                "from a sync handler, which has a thread of its own"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Let go of everything; further calls are refused."""
        if self._loop.is_closed():
            return
        self.call(self.app.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
