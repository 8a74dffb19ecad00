"""
Server-sent events: changes as they happen.

One poll per second serves all clients of a server, and there is none while no client is
connected. It works on any office, whoever makes the changes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, TypeAlias

from litestar import Request, get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter
from litestar.response import Stream
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.campaign import Campaign
from deadletter.core.errors import BackendError
from deadletter.core.letter import AuditEntry, State
from deadletter.core.text import encode_document
from deadletter.ports import LetterStore
from deadletter.server.api.audit import LAST, visible
from deadletter.server.auth.guards import authenticator, caller, is_still_known, needs
from deadletter.server.context import Here, ServerContext, Who

EVERY: Final = 1.0  # seconds between two looks
_PAGE: Final = 200  # acts read at a time
_REPLAYS: Final = 20  # the latest ones are watched
_WAITING: Final = 500  # changes one listener may be behind; then it starts anew


class Counted(Struct, frozen=True):
    """Number of letters of a source in each state."""

    source: str
    counts: dict[State, int]


Change: TypeAlias = AuditEntry | Counted | Campaign
Listener: TypeAlias = "asyncio.Queue[Change | None]"


class Live:
    """The changes of one office."""

    def __init__(self, store: LetterStore, *, every: float = EVERY) -> None:
        self._store = store
        self._every = every
        self._listeners: set[Listener] = set()
        self._looking: asyncio.Task[None] | None = None

    @property
    def is_looking(self) -> bool:
        """Return whether a query to the office is in progress."""
        return self._looking is not None and not self._looking.done()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        """
        A queue of changes from now on.

        It ends with None when the listener is too slow, or the server stops.
        """
        listener: Listener = asyncio.Queue(_WAITING)
        if not self.is_looking:
            view = await _View.now(self._store)
            if not self.is_looking:
                self._looking = asyncio.create_task(self._look(view))
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """Send everybody away."""
        self._send_away()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self, view: "_View") -> None:
        try:
            while self._listeners:
                try:
                    changes = await view.changes()
                except BackendError:
                    changes = []  # it will be back, and nothing is missed
                for change in changes:
                    self._tell(change)
                await asyncio.sleep(self._every)
        finally:
            self._send_away()  # whoever comes back has somebody look again

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            try:
                listener.put_nowait(change)
            except asyncio.QueueFull:
                self._end(listener)

    def _send_away(self) -> None:
        for listener in tuple(self._listeners):
            self._end(listener)

    def _end(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        while not listener.empty():
            listener.get_nowait()
        listener.put_nowait(None)


class _View:
    """The numbers that were sent last."""

    def __init__(
        self, store: LetterStore, seq: int, counts: Mapping[str, Any], replays: Any
    ) -> None:
        self._store = store
        self._seq = seq
        self._counts = counts
        self._replays: dict[str, Campaign] = replays

    @classmethod
    async def now(cls, store: LetterStore) -> "_View":
        """Return the current numbers."""
        return cls(store, await last_act(store), await store.counts(), await _replays(store))

    async def changes(self) -> list[Change]:
        """Return the changes since the last poll."""
        acts = await self._store.audit(after=self._seq, limit=_PAGE)
        counts = await self._store.counts()
        replays = await _replays(self._store)
        changed: list[Change] = [*acts]
        changed += [
            Counted(source, counts.get(source, {}))
            for source in sorted({*counts, *self._counts})
            if counts.get(source) != self._counts.get(source)
        ]
        changed += [one for id_, one in replays.items() if one != self._replays.get(id_)]
        self._seq = acts[-1].seq if acts else self._seq
        self._counts, self._replays = counts, replays
        return changed


async def _replays(store: LetterStore) -> dict[str, Campaign]:
    return {one.id: one for one in await store.campaigns(limit=_REPLAYS)}


async def last_act(store: LetterStore) -> int:
    """The number of the latest entry in the audit; numbers leave no gaps."""
    there, beyond = 0, 1
    while await store.audit(after=beyond - 1, limit=1):
        there, beyond = beyond, beyond * 2
    while beyond - there > 1:
        middle = (there + beyond) // 2
        if await store.audit(after=middle - 1, limit=1):
            there = middle
        else:
            beyond = middle
    return there


_BEAT: Final = 15.0  # seconds of silence after which we say that we are here
_MISSED: Final = 500  # acts read at once for one who comes back
Feed: TypeAlias = NamedDependency[Live]  # as `live`


@get("/events", guards=[needs(Role.READER)], media_type="text/event-stream")
async def listen(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    live: Feed,
    last_event_id: Annotated[
        int | None, HeaderParameter(name="last-event-id", ge=0, le=LAST)
    ] = None,
) -> Stream:
    """
    Changes as they happen: `act` (an audit entry), `letters` (counts), `replay`.

    Who comes back with `Last-Event-ID` is told the acts in between. The stream ends
    when the server stops, when the listener falls behind, or when their token or
    session does: connect again.
    """
    return Stream(
        _events(request, context, who, live, last_event_id),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )


async def _events(
    request: Request[Any, Any, Any],
    context: ServerContext,
    who: Identity,
    live: Live,
    after: int | None,
) -> AsyncIterator[bytes]:
    gone = asyncio.Event()
    known = await caller(request)
    async with live.listening() as listener:
        with authenticator(request).watching(known, gone.set):
            yield b"retry: 2000\n\n"
            told = after or 0
            while after is not None:
                missed = await context.office.audit(after=told, limit=_MISSED)
                told = missed[-1].seq if missed else told
                for entry in await visible(context, who, missed):
                    yield _event(entry)
                if len(missed) < _MISSED:
                    break
            async for changes in _changes(listener, context.stopping, gone):
                if not await is_still_known(request):
                    return
                if not changes:
                    yield b": still here\n\n"
                news = [one for one in changes if _is_news(one, told)]
                for change in await _seen(context, who, news):
                    yield _event(change)


async def _changes(listener: Listener, *ends: asyncio.Event) -> AsyncIterator[list[Change]]:
    """Changes as they come, until one of `ends`; none at all after a silence."""
    ending = [asyncio.create_task(end.wait()) for end in ends]
    getting = asyncio.create_task(listener.get())
    try:
        while True:
            await asyncio.wait(
                {getting, *ending}, timeout=_BEAT, return_when=asyncio.FIRST_COMPLETED
            )
            if not getting.done():
                if any(end.is_set() for end in ends):
                    return
                yield []
                continue
            change = getting.result()
            if change is None:
                return
            getting = asyncio.create_task(listener.get())
            yield [change]
    finally:
        for task in (*ending, getting):
            task.cancel()


async def _seen(context: ServerContext, who: Identity, changes: Sequence[Change]) -> list[Change]:
    if not who.sources:
        return list(changes)
    seen: list[Change] = []
    for change in changes:
        match change:
            case Counted(source):
                seen += [change] if who.sees(source) else []
            case Campaign():
                seen += [change] if who.owns(change.owner) else []
            case AuditEntry():
                seen += await visible(context, who, [change])
    return seen


def _is_news(change: Change, told: int) -> bool:
    return not isinstance(change, AuditEntry) or change.seq > told


def _event(change: Change) -> bytes:
    match change:
        case AuditEntry():
            name, id_ = "act", f"id: {change.seq}\n"
        case Counted():
            name, id_ = "letters", ""
        case Campaign():
            name, id_ = "replay", ""
    return f"{id_}event: {name}\ndata: ".encode() + encode_document(change) + b"\n\n"


routes: Final[list[Any]] = [listen]
