"""What happens behind a server, as it happens: server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final, TypeAlias

import httpx
import msgspec
from msgspec import Struct

from deadletter.core.campaign import Campaign
from deadletter.core.errors import Unavailable
from deadletter.core.letter import AuditEntry, State

from .connection import API, Connection

_SILENCE: Final = 60.0  # seconds: a server that lives says so more often
_AGAIN: Final = 2.0  # seconds until we connect again
_LONGEST: Final = 16 * 1024 * 1024  # characters of one event


class Counted(Struct, frozen=True, kw_only=True):
    """How many letters of a mailbox are in which state now."""

    source: str
    counts: dict[State, int]


Happening: TypeAlias = AuditEntry | Counted | Campaign
_KINDS: Final[dict[str, Any]] = {
    "act": AuditEntry,
    "letters": Counted,
    "replay": Campaign,
}


async def listen(
    connection: Connection, after: int | None = None
) -> AsyncGenerator[Happening]:
    """
    Acts, counts and replays as they change, for as long as one listens.

    A connection that breaks off is made again, and acts in between are told. With
    `after`, the number of an act, what came behind it is told first.
    """
    failures = 0
    while True:
        try:
            async with _stream(connection, after) as response:
                failures = 0
                async for event in _events(response):
                    after = int(event.id) if event.id.isdecimal() else after
                    if event.name in _KINDS:
                        yield msgspec.json.decode(event.data, type=_KINDS[event.name])
        except Unavailable:
            failures += 1
            if failures >= connection.attempts:
                raise
        await asyncio.sleep(_AGAIN)


class _Event(Struct, frozen=True):
    name: str
    data: str
    id: str


def _stream(connection: Connection, after: int | None) -> Any:
    headers = {"accept": "text/event-stream"}
    if after is not None:
        headers["last-event-id"] = str(after)
    return connection.stream(f"{API}/events", headers=headers, timeout=_SILENCE)


async def _events(response: httpx.Response) -> AsyncIterator[_Event]:
    data: list[str] = []
    name, id_, size = "", "", 0
    async for line in response.aiter_lines():
        if not line:
            if data:
                yield _Event(name, "\n".join(data), id_)
            name, data, size = "", [], 0
            continue
        size += len(line)
        if size > _LONGEST:
            raise Unavailable("the server tells of something endless")
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                name = value
            case "data":
                data.append(value)
            case "id":
                id_ = value
