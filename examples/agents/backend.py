"""
The backend of mailboxes: an engine of deadletter, for code that does not await.

    backend = Backend("redis://localhost:6379/0", office="sqlite:///letters.db")
    requests = RedisMailbox(name="requests", client=backend, body_type=...)

Messages are on the first engine, dead letters are kept in the second. With `memory://`
both end with the process.
"""

import asyncio
from collections.abc import Coroutine
from functools import cache
from threading import Lock
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import quote

from deadletter import App, BackendError, Unavailable
from deadletter.core.events import Observer
from deadletter.core.signing import Keys
from deadletter.observe.logs import log_events
from deadletter.observe.observers import fan_out
from deadletter.ports import Broker, Clock, Engine, KeyRing, LetterStore
from deadletter.sync import SyncApp
from deadletter.system import SystemClock, SystemDice

from .errors import InvalidParameterError, MailboxConnectionError
from .letter_log import LetterLog

T = TypeVar("T")

OFFICE: Final = "sqlite:///agents.db"
"""The office of backends that are made from a Redis client."""


CALL_TIMEOUT: Final = 60.0
"""Seconds after which a call to the engine fails."""


class ConnectionPool(Protocol):
    """What is needed of the connection pool of a Redis client."""

    connection_class: Any
    connection_kwargs: dict[str, Any]


class RedisClient(Protocol):
    """A client of the `redis` package, sync or async."""

    @property
    def connection_pool(self) -> ConnectionPool: ...


class Backend:
    """
    One engine, opened when it is first needed, to be used from any thread.

    The observer gets every event of the loops that run on it. By default it writes log lines;
    `Telemetry` writes the same lines, and metrics.
    """

    def __init__(
        self,
        url: str,
        *,
        office: str | None = None,
        observe: Observer | None = None,
        clock: Clock | None = None,
        call_timeout: float = CALL_TIMEOUT,
    ) -> None:
        self.url = url
        self._call_timeout = call_timeout
        self.clock: Clock = clock or SystemClock()
        self.dice = SystemDice()
        self.observe: Observer = fan_out(observe or LetterLog(log_events(self.clock)))
        self.app = App(url, office=office, clock=self.clock, dice=self.dice)
        self._sync = SyncApp(self.app, timeout=None)

    def call(self, work: Coroutine[Any, Any, T], *, wait: float = 0.0) -> T:
        """
        Run a coroutine on the backend's thread and return its result.

        Raises MailboxConnectionError if the engine is unavailable, or gives no answer in
        time: within the timeout of calls, and `wait` seconds of long polling.
        """
        seconds = self._call_timeout + wait
        try:
            return self._sync.call(_within(seconds, work))
        except BackendError as error:
            raise MailboxConnectionError(str(error)) from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that ends only when it is told to, such as a loop."""
        try:
            return self._sync.call(work)
        except BackendError as error:
            raise MailboxConnectionError(str(error)) from error

    async def engine(self) -> Engine:
        """Return the open engine."""
        return await self.app.engine()

    async def broker(self) -> Broker:
        """Return the mailboxes of the engine."""
        return (await self.app.engine()).broker

    async def letters(self) -> LetterStore:
        """Return the office."""
        return await self.app.letters()

    async def keys(self) -> Keys:
        """Return the keys that copies of letters are signed with."""
        return await KeyRing(await self.letters()).keys()

    def close(self) -> None:
        """Close the engine and the office."""
        with _lock:
            if _shared.get(self.url) is self:
                del _shared[self.url]
        self._sync.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise Unavailable(
            f"no answer within {seconds:g} seconds: the call may or may not have taken "
            "effect; try again"
        ) from None


@cache
def in_memory() -> Backend:
    """Return the backend of in-memory mailboxes that were given none."""
    return Backend("memory://")


def backend_of(client: RedisClient) -> Backend:
    """
    Return the backend of a Redis client; clients of one database share it.

    The client itself stays the caller's: only the address of its server is used.
    """
    url = _url_of(client)
    with _lock:
        if url not in _shared:
            _shared[url] = Backend(url, office=OFFICE)
        return _shared[url]


_shared: dict[str, Backend] = {}
_lock = Lock()


def _url_of(client: RedisClient) -> str:
    pool = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None)
    if options is None or "host" not in options:
        raise InvalidParameterError(
            f"client must be a redis.Redis with a host, or a Backend, got {type(client).__name__}: "
            "for another kind of client, pass Backend(url)"
        )
    name = getattr(pool, "connection_class", object).__name__
    scheme = "rediss" if "SSL" in name else "redis"
    user, password = options.get("username") or "", options.get("password") or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    host, port = options["host"], options.get("port") or 6379
    place = f"[{host}]" if ":" in host else host
    return f"{scheme}://{login}{place}:{port}/{options.get('db') or 0}"
