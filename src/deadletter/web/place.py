"""What the server stands on: one open engine and everything made of it."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry

from deadletter.core.events import Observer
from deadletter.office.letters import Letters
from deadletter.office.replay import Replay
from deadletter.ports import (
    AccessStore,
    Clock,
    Dice,
    Engine,
    ItemStore,
    LetterStore,
)
from deadletter.runtime.health import Complaint
from deadletter.settings import Settings

from .search_shares import SearchShares


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
    letters: Letters
    replay: Replay
    items: ItemStore | None
    access: AccessStore | None
    clock: Clock
    dice: Dice
    settings: Settings
    searches: SearchShares
    observe: Observer
    complaints: Callable[[], Sequence[Complaint]] = _content
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    beside: dict[str, Callable[[], str | None]] = {}
    metrics: CollectorRegistry = msgspec.field(default_factory=CollectorRegistry)
