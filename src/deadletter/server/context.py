"""What the server stands on: one open engine and everything made of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import msgspec
from litestar.di import NamedDependency
from msgspec import Struct
from prometheus_client import CollectorRegistry

from deadletter.core.access import Pass
from deadletter.core.events import Observer
from deadletter.office.batches import Turn
from deadletter.office.office import Office
from deadletter.ports import AccessStore, Clock, Dice, Engine, ItemStore, LetterStore
from deadletter.runtime.health import Complaint
from deadletter.settings import Settings
from deadletter.wiring.node_drains import NodeDrains

from .problems import Asked

# How much of the server each caller's searches may take.
# Costly searches take turns, step by step, so that a plain list never waits for them.
# Each caller has some seconds of searching a minute, and a few searches at once.

TURNS: Final = 2  # steps of costly searches under way at once, of all callers
AT_ONCE: Final = 2  # costly searches of one caller
_MINUTE: Final = 60.0
_SOON: Final = 1  # seconds


class SearchShares:
    """Counts the seconds that costly searches of each caller take."""

    def __init__(self, clock: Clock, *, share: float) -> None:
        self._clock = clock
        self._share = share  # seconds of searching a minute
        self._turns = asyncio.Semaphore(TURNS)
        self._under_way: Counter[str] = Counter()
        self._clear_at: dict[str, float] = {}  # when nothing is owed any more

    @asynccontextmanager
    async def searching(self, who: str) -> AsyncIterator[Turn]:
        """
        A costly search of this caller; a turn is to be entered for each step.

        429 if they have too many under way, or have used up their share.
        """
        self._check(who)
        self._under_way[who] += 1
        try:
            yield lambda: self._turn(who)
        finally:
            self._under_way[who] -= 1
            if not self._under_way[who]:
                del self._under_way[who]

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
        if self._under_way[who] >= AT_ONCE:
            raise _later(
                f"{AT_ONCE} of your searches are under way, which is the most: wait"
                " for one of them",
                _SOON,
            )
        wait = self._clear_at.get(who, now) - now - _MINUTE
        if wait > 0:
            raise _later(
                f"your searches have taken {self._share:g} seconds within a minute,"
                " which is the most: wait, or put an indexed field beside the costly"
                " one, such as source:, error: or since:",
                int(wait) + 1,
            )


def _later(detail: str, seconds: int) -> Asked:
    return Asked(429, "search-limit", detail, {"Retry-After": str(seconds)})


def _content() -> Sequence[Complaint]:
    return ()


class Place(Struct, frozen=True, kw_only=True):
    """
    One open engine, as requests use it.

    `access` is None where nobody is asked who they are: on this machine only.
    `complaints` says why the server is not ready, loop by loop; `stopping` is set
    when answers that wait for something, or never end, are to end. `metrics` is what
    /metrics shows, besides the office itself. Whoever runs something `beside` requests
    puts there, by name, what says why it does not work, or None.
    """

    engine: Engine
    store: LetterStore
    office: Office
    items: ItemStore | None
    access: AccessStore | None
    nodes: NodeDrains | None = None
    clock: Clock
    dice: Dice
    settings: Settings
    searches: SearchShares
    observe: Observer
    complaints: Callable[[], Sequence[Complaint]] = _content
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    beside: dict[str, Callable[[], str | None]] = {}
    metrics: CollectorRegistry = msgspec.field(default_factory=CollectorRegistry)


Here: TypeAlias = NamedDependency[Place]  # as `place`
Who: TypeAlias = NamedDependency[Pass]  # as `who`
