"""Server-sent events: what changes, as it changes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final, TypeAlias

from litestar import Request, get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter
from litestar.response import Stream

from deadletter.core.access import Pass, Role
from deadletter.core.campaign import Campaign
from deadletter.core.letter import AuditEntry
from deadletter.core.text import encode_document
from deadletter.server.auth.guards import caller, door, is_still_known, needs
from deadletter.server.context import Here, Place, Who
from deadletter.server.live import Change, Counted, Listener, Live

from .audit import LAST, visible

_BEAT: Final = 15.0  # seconds of silence after which we say that we are here
_MISSED: Final = 500  # acts read at once for one who comes back
Feed: TypeAlias = NamedDependency[Live]  # as `live`


@get("/events", guards=[needs(Role.READER)], media_type="text/event-stream")
async def listen(
    request: Request[Any, Any, Any],
    place: Here,
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
        _events(request, place, who, live, last_event_id),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )


async def _events(
    request: Request[Any, Any, Any], place: Place, who: Pass, live: Live, after: int | None
) -> AsyncIterator[bytes]:
    gone = asyncio.Event()
    known = await caller(request)
    async with live.listening() as listener:
        with door(request).watching(known, gone.set):
            yield b"retry: 2000\n\n"
            told = after or 0
            while after is not None:
                missed = await place.office.audit(after=told, limit=_MISSED)
                told = missed[-1].seq if missed else told
                for entry in await visible(place, who, missed):
                    yield _event(entry)
                if len(missed) < _MISSED:
                    break
            async for changes in _changes(listener, place.stopping, gone):
                if not await is_still_known(request):
                    return
                if not changes:
                    yield b": still here\n\n"
                news = [one for one in changes if _is_news(one, told)]
                for change in await _seen(place, who, news):
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


async def _seen(place: Place, who: Pass, changes: Sequence[Change]) -> list[Change]:
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
                seen += await visible(place, who, [change])
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
