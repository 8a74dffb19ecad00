"""The open engine of the server, and everything built on it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from litestar.di import NamedDependency
from msgspec import Struct
from prometheus_client import CollectorRegistry

from deadletter.core.access import Identity
from deadletter.core.events import Observer
from deadletter.office.batches import Turn
from deadletter.office.office import Office
from deadletter.ports import AccessStore, Clock, Dice, Engine, ItemStore, LetterStore
from deadletter.runtime.health import Complaint
from deadletter.settings import Settings
from deadletter.wiring.intakes import Intakes
from deadletter.wiring.node_drains import NodeDrains

from .auth.codes import SignInCodes
from .auth.oidc import OpenIdProvider
from .problems import AnswerInstead

# Limits for costly searches. They run in steps and take turns, so that a plain list never
# waits for them. Each caller has some seconds of searching per minute, and a few searches
# at once.

TURNS: Final = 2  # steps of costly searches in progress at once, of all callers
AT_ONCE: Final = 2  # costly searches of one caller
WAITING: Final = 8  # more of them, which wait for those: tabs that are opened together
PATIENCE: Final = 5.0  # seconds that they wait
_MINUTE: Final = 60.0
_SOON: Final = 1  # seconds


class _Places:
    """The costly searches of one caller: two in progress, and some that wait."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.asked = 0


class SearchShares:
    """The time that costly searches of each caller have taken, and its limit."""

    def __init__(self, clock: Clock, *, share: float) -> None:
        self._clock = clock
        self._share = share  # seconds of searching per minute
        self._turns = asyncio.Semaphore(TURNS)
        self._places: dict[str, _Places] = {}
        self._clear_at: dict[str, float] = {}  # when the used share has expired

    @asynccontextmanager
    async def searching(self, who: str) -> AsyncIterator[Turn]:
        """
        Run a costly search of this caller; enter a turn for each of its steps.

        Waits for a moment if the caller has others in progress. Raises 429 if these are too
        many, or if the caller has used up the share.
        """
        self._check(who)
        places = self._places.setdefault(who, _Places())
        if places.asked >= AT_ONCE + WAITING:
            raise _too_many()
        places.asked += 1
        try:
            await _wait_for(places.free)
            try:
                yield lambda: self._turn(who)
            finally:
                places.free.release()
        finally:
            places.asked -= 1
            if not places.asked:
                del self._places[who]

    @asynccontextmanager
    async def _turn(self, who: str) -> AsyncIterator[None]:
        async with self._turns:
            began = self._clock.monotonic()
            try:
                yield
            finally:
                now = self._clock.monotonic()
                owed = (now - began) * _MINUTE / self._share
                self._clear_at[who] = max(self._clear_at.get(who, now), now) + owed

    def _check(self, who: str) -> None:
        now = self._clock.monotonic()
        over = [name for name, clear in self._clear_at.items() if clear <= now]
        for name in over:
            del self._clear_at[name]
        wait = self._clear_at.get(who, now) - now - _MINUTE
        if wait > 0:
            raise _later(
                f"your searches have taken {self._share:g} seconds within a minute,"
                " which is the limit: wait, or add an indexed field to the search, such"
                " as source:, error: or since:",
                int(wait) + 1,
            )


async def _wait_for(free: asyncio.Semaphore) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await free.acquire()
    except TimeoutError:
        raise _too_many() from None


def _too_many() -> AnswerInstead:
    return _later(
        f"{AT_ONCE} of your searches are in progress, which is the limit: wait for one of them",
        _SOON,
    )


def _later(detail: str, seconds: int) -> AnswerInstead:
    return AnswerInstead(429, "search-limit", detail, {"Retry-After": str(seconds)})


def _content() -> Sequence[Complaint]:
    return ()


class ServerContext(Struct, frozen=True, kw_only=True):
    """
    The open engine of the server, and what requests need besides it.

    `access` is None if access is off. `complaints` returns why the server is not ready,
    loop by loop. `stopping` is set when waiting and endless answers have to end.
    `metrics` has the metrics of /metrics, except those of the office. `beside` has a
    function for each background task, by name, that returns its problem or None. `codes`
    has the one-time codes for signing in, and `home` the URL of the engine for people,
    without its password. `file` is the file of
    the office, if its store is a file, and `oidc` the provider that people sign in with.
    """

    engine: Engine
    store: LetterStore
    office: Office
    items: ItemStore | None
    access: AccessStore | None
    nodes: NodeDrains | None = None
    intakes: Intakes | None = None
    clock: Clock
    dice: Dice
    settings: Settings
    searches: SearchShares
    observe: Observer
    complaints: Callable[[], Sequence[Complaint]] = _content
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    beside: dict[str, Callable[[], str | None]] = {}
    metrics: CollectorRegistry = msgspec.field(default_factory=CollectorRegistry)
    codes: SignInCodes | None = None
    home: str = ""
    file: Path | None = None
    oidc: OpenIdProvider | None = None


Here: TypeAlias = NamedDependency[ServerContext]  # as `context`
Who: TypeAlias = NamedDependency[Identity]  # as `who`
