"""Parts of engines: their base, times, expiry, and tasks that run to their end."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from msgspec import structs

from deadletter.core.errors import ConfigError, DeadLetterError, PartlySent, Unavailable
from deadletter.core.message import Message
from deadletter.ports.broker import AtomicBurial, AtomicReplay, Broker
from deadletter.ports.engine import Ledger
from deadletter.ports.features import Features
from deadletter.ports.letters import LetterStore


class MailboxEngine:
    """An engine of mailboxes; it keeps no letters, and a ledger only if it sets one."""

    letters: LetterStore | None = None
    ledger: Ledger | None = None
    atomic_burial: AtomicBurial | None = None
    atomic_replay: AtomicReplay | None = None

    def __init__(self, broker: Broker, features: Features) -> None:
        self.broker = broker
        self.features = features


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return a time as whole microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND


def when(at: int) -> datetime:
    """Return the time at a number of microseconds since 1970."""
    return EPOCH + timedelta(0, 0, at)


@contextmanager
def client_library(scheme: str, extra: str, *packages: str) -> Iterator[None]:
    """Raise ConfigError if an import fails because these packages are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise missing_client(scheme, extra) from error


_CLIENTS: Final = {
    "memory": "",
    "sqlite": "sqlite3",
    "postgresql": "asyncpg",
    "mongodb": "pymongo",
    "redis": "redis",
    "bullmq": "redis",
    "sqs": "aiobotocore",
    "kafka": "confluent_kafka",
    "amqp": "pamqp",
    "nats": "nats",
}
"""The packages that engines need, by the scheme of their URLs."""


def missing_client(scheme: str, extra: str) -> ConfigError:
    """Return the error for an engine whose client library is not installed."""
    here = [name for name, package in _CLIENTS.items() if not package or _is_installed(package)]
    return ConfigError(
        f"{scheme}:// needs deadletter[{extra}]: pip install 'deadletter[{extra}]'; this"
        f" installation can do {', '.join(here)}"
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # somebody has put something else in its place
        return False


_DEAD_ENDS: Final = ("dlq", "dlt", "dead", "dead-letters", "dead_letters", "poison")
_DEAD_STARTS: Final = tuple(
    f"{word}{mark}" for word in ("dlq", "dlt", "dead-letter", "poison") for mark in ".-_"
)


def is_called_dead(name: str) -> bool:
    """Return whether a topic or stream is named like one for dead letters."""
    lower = name.lower()
    return lower.startswith(_DEAD_STARTS) or lower.endswith(_DEAD_ENDS)


def with_expiry(
    messages: Sequence[Message], expire_after: float | None, now: datetime
) -> Sequence[Message]:
    """Return messages with the expiry of their mailbox, unless they have their own."""
    if expire_after is None:
        return messages
    end = now + timedelta(seconds=expire_after)
    return [
        structs.replace(message, expires_at=end) if message.expires_at is None else message
        for message in messages
    ]


async def send_in_turn(
    messages: Sequence[Message], send: Callable[[Message], Awaitable[Any]]
) -> None:
    """
    Send messages one after the other; a refused message does not stop the rest.

    Raises `PartlySent` unless all were sent. `Unavailable` ends the sending: whether the
    message it was raised for has been sent is unknown.
    """
    sent: list[int] = []
    refused: dict[int, DeadLetterError] = {}
    for place, message in enumerate(messages):
        try:
            await send(message)
        except Unavailable as error:
            raise PartlySent(sent=sent, refused=refused, cause=error) from error
        except DeadLetterError as error:
            refused[place] = error
        else:
            sent.append(place)
    if refused:
        raise PartlySent(sent=sent, refused=refused)


T = TypeVar("T")


class EngineTasks:
    """
    Tasks of one engine that run to their end, even if nobody waits for them any more.

    A statement that is cancelled half-way may have been carried out or not.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._running: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def run_to_end(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Start some work; cancelling the returned future does not stop it."""
        return asyncio.shield(self.run(work))

    def run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start some work that ends when its task is cancelled."""
        try:
            self.check_open()
        except DeadLetterError:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self, patience: float) -> None:
        """Accept no more work, and cancel what is not done after `patience` seconds."""
        self._is_closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=patience)
        late = list(self._running)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def check_open(self) -> None:
        """Raise an error if the engine is closed, or was opened before a fork."""
        if self._pid != os.getpid():
            raise opened_before_fork()
        if self._is_closed:
            raise Unavailable("the engine is closed: open it again")

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # so that asyncio does not report it as never retrieved


def opened_before_fork() -> ConfigError:
    """Return the error for an engine that a child process has inherited."""
    return ConfigError(
        "this engine was opened before a fork and cannot be used in the child:"
        " open it again there, after the fork"
    )
