"""
Where mailboxes are: an engine of deadletter, for code that does not await.

    post = Post("redis://localhost:6379/0", office="sqlite:///letters.db")
    requests = RedisMailbox(name="requests", client=post, body_type=...)

Messages are on the one, dead letters are kept in the other; with `memory://` both are
gone with the process.
"""

from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from deadletter import App, BackendError
from deadletter.core.events import Observer
from deadletter.core.signing import Keys
from deadletter.observe.observers import fan_out
from deadletter.ports import Broker, Clock, Engine, KeyRing, LetterStore
from deadletter.sync import SyncApp
from deadletter.system import SystemClock, SystemDice

from .errors import MailboxConnectionError

T = TypeVar("T")


class Post:
    """
    One engine, opened when it is first needed, used from any thread.

    Observers see every event of the loops that run on it: logs, metrics, traces.
    """

    def __init__(
        self,
        url: str,
        *,
        office: str | None = None,
        observe: Observer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = url
        self.clock: Clock = clock or SystemClock()
        self.dice = SystemDice()
        self.observe: Observer = fan_out(*([observe] if observe else []))
        self.app = App(url, office=office, clock=self.clock, dice=self.dice)
        self._sync = SyncApp(self.app)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives that works on the engine."""
        try:
            return self._sync.call(work)
        except BackendError as error:
            raise MailboxConnectionError(str(error)) from error

    async def engine(self) -> Engine:
        return await self.app.engine()

    async def broker(self) -> Broker:
        return (await self.app.engine()).broker

    async def letters(self) -> LetterStore:
        """The office."""
        return await self.app.letters()

    async def keys(self) -> Keys:
        """The keys that copies of letters are signed with."""
        return await KeyRing(await self.letters()).keys()

    def close(self) -> None:
        """Let go of everything."""
        self._sync.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
