"""
Server-sent events: changes as they happen.

One poll per second serves all clients of a server; without clients there is no poll. It
works on every office, whichever process makes the changes.
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
from deadletter.server.acting.office_views import LAST, visible
from deadletter.server.auth.guards import authenticator, caller, has_access, needs
from deadletter.server.context import Here, ServerContext, Who

EVERY: Final = 1.0  # seconds between two polls
_PAGE: Final = 200  # audit entries of one query
_REPLAYS: Final = 20  # the latest replays, which are polled
_WAITING: Final = 500  # changes that a listener may fall behind before it is disconnected


class Counted(Struct, frozen=True):
    """Number of letters of a source in each state."""

    source: str
    counts: dict[State, int]


Change: TypeAlias = AuditEntry | Counted | Campaign
Listener: TypeAlias = "asyncio.Queue[Change | None]"


class Live:
    """A feed of the changes of one office."""

    def __init__(self, store: LetterStore, *, every: float = EVERY) -> None:
        self._store = store
        self._every = every
        self._listeners: set[Listener] = set()
        self._polling: asyncio.Task[None] | None = None

    @property
    def is_polling(self) -> bool:
        """Return whether the office is being polled."""
        return self._polling is not None and not self._polling.done()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        """
        Yield a queue of changes from now on.

        The queue ends with None when the listener is too slow, or the server stops.
        """
        listener: Listener = asyncio.Queue(_WAITING)
        if not self.is_polling:
            view = await _View.now(self._store)
            if not self.is_polling:
                self._polling = asyncio.create_task(self._look(view))
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """Disconnect all listeners."""
        self._disconnect_all()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def _look(self, view: "_View") -> None:
        try:
            while self._listeners:
                try:
                    changes = await view.changes()
                except BackendError:
                    changes = []  # the next poll has these changes as well
                for change in changes:
                    self._publish(change)
                await asyncio.sleep(self._every)
        finally:
            self._disconnect_all()  # a listener that connects again starts a new poll

    def _publish(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            try:
                listener.put_nowait(change)
            except asyncio.QueueFull:
                self._end(listener)

    def _disconnect_all(self) -> None:
        for listener in tuple(self._listeners):
            self._end(listener)

    def _end(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        while not listener.empty():
            listener.get_nowait()
        listener.put_nowait(None)


class _View:
    """The state of the office at the last poll."""

    def __init__(
        self, store: LetterStore, seq: int, counts: Mapping[str, Any], replays: Any
    ) -> None:
        self._store = store
        self._seq = seq
        self._counts = counts
        self._replays: dict[str, Campaign] = replays

    @classmethod
    async def now(cls, store: LetterStore) -> "_View":
        """Return the current state."""
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
    """Return the number of the last audit entry; the numbers have no gaps."""
    found = await store.latest_audit(limit=1)
    return found[0].seq if found else 0


_BEAT: Final = 15.0  # seconds without an event after which a comment is sent
_MISSED: Final = 500  # missed audit entries of one query
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
    Stream changes as they happen: `act` (an audit entry), `letters` (counts), `replay`.

    With `Last-Event-ID`, the stream starts with the audit entries after that one. It
    ends when the server stops, when the client falls behind, or when its token or
    session ends: connect again.
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
    revoked = asyncio.Event()
    known = await caller(request)
    async with live.listening() as listener:
        with authenticator(request).watching(known, revoked.set):
            yield b"retry: 2000\n\n"
            sent = after or 0
            while after is not None:
                missed = await context.office.audit(after=sent, limit=_MISSED)
                sent = missed[-1].seq if missed else sent
                for entry in await visible(context, who, missed):
                    yield _event(entry)
                if len(missed) < _MISSED:
                    break
            async for changes in _changes(listener, context.stopping, revoked):
                if not await has_access(request):
                    return
                if not changes:
                    yield b": still here\n\n"
                new = [one for one in changes if _is_new(one, sent)]
                for change in await _visible(context, who, new):
                    yield _event(change)


async def _changes(listener: Listener, *ends: asyncio.Event) -> AsyncIterator[list[Change]]:
    """Yield changes until one of `ends` is set; yield an empty list when idle."""
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


async def _visible(
    context: ServerContext, who: Identity, changes: Sequence[Change]
) -> list[Change]:
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


def _is_new(change: Change, sent: int) -> bool:
    return not isinstance(change, AuditEntry) or change.seq > sent


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
