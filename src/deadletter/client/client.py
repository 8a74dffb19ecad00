"""The server's API, as methods."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, BinaryIO, Final, TypeAlias

import httpx
import msgspec
from msgspec import Struct, structs

from deadletter.core.access import Identity, IssuedToken, TokenView
from deadletter.core.campaign import Campaign
from deadletter.core.errors import Unavailable
from deadletter.core.letter import AuditEntry, GroupStatus, State
from deadletter.office.archive import SealCheck
from deadletter.office.archive_import import TakenIn
from deadletter.office.groups import GroupLine, GroupPage, Regrouped, RuleLine
from deadletter.office.mailboxes import Outage, Released
from deadletter.office.stats import Stats
from deadletter.office.variants import Variants
from deadletter.ports import QueueInfo, QueueOptions

from .connection import API, Connected, Connection, decoded, part
from .letters import Letters
from .office import RemoteOffice
from .replays import Replays

_SILENCE: Final = 60.0  # seconds: a server that lives says so more often
_AGAIN: Final = 2.0  # seconds until we connect again
_LONGEST: Final = 16 * 1024 * 1024  # characters of one event


class Counted(Struct, frozen=True, kw_only=True):
    """Number of letters of a mailbox in each state."""

    source: str
    counts: dict[State, int]


Happening: TypeAlias = AuditEntry | Counted | Campaign
_KINDS: Final[dict[str, Any]] = {"act": AuditEntry, "letters": Counted, "replay": Campaign}


async def listen(connection: Connection, after: int | None = None) -> AsyncGenerator[Happening]:
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


class Deleted(Struct, frozen=True, kw_only=True):
    """A mailbox that is gone, and how many messages went with it."""

    mailbox: str
    purged: int


class Queues:
    """The mailboxes of one engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[QueueInfo]:
        """All mailboxes and what is in them, by name."""
        return await self._connection.get(f"{API}/queues", list[QueueInfo])

    async def get(self, name: str) -> QueueInfo:
        """One mailbox and what is in it."""
        return await self._connection.get(f"{API}/queues/{part(name)}", QueueInfo)

    async def create(self, options: QueueOptions, *, reason: str = "") -> QueueOptions:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        said = {**structs.asdict(options), "reason": reason}
        return await self._connection.post(f"{API}/queues", said, QueueOptions)

    async def update(self, name: str, changes: dict[str, Any], *, reason: str = "") -> QueueOptions:
        """Change some of a mailbox's options; the others stay as they are."""
        path = f"{API}/queues/{part(name)}"
        said = {**changes, "reason": reason}
        return await self._connection.post(path, said, QueueOptions, method="PATCH")

    async def delete(self, name: str, *, force: bool = False, reason: str = "") -> Deleted:
        """Delete a mailbox and the messages in it. Letters that came from it stay."""
        return await self._connection.delete(
            f"{API}/queues/{part(name)}", Deleted, force=force, reason=reason
        )


class Outages:
    """Times that mailboxes were held back by the brake."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> list[Outage]:
        """List the latest ones, the latest first."""
        return await self._connection.get(
            f"{API}/outages", list[Outage], mailbox=mailbox, open=only_open or None, limit=limit
        )

    async def release(self, mailbox: str, *, reason: str = "") -> Released:
        """Tell a mailbox's workers to go on."""
        said = {"mailbox": mailbox, "reason": reason}
        return await self._connection.post(f"{API}/outages/release", said, Released)


class Tokens:
    """The tokens of one office; for administrators."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[TokenView]:
        """The tokens there are, by name; never what they are known by."""
        return await self._connection.get(f"{API}/tokens", list[TokenView])

    async def issue(
        self, to: Identity, *, expires_at: datetime | None = None, reason: str = ""
    ) -> IssuedToken:
        """
        Make a token. It is shown in this answer and never again.

        One whose answer got lost is a Conflict that names it: revoke it, its secret
        is not kept.
        """
        said = {**structs.asdict(to), "expires_at": expires_at, "reason": reason}
        del said["principal"]  # the server chooses it
        return await self._connection.post(f"{API}/tokens", said, IssuedToken)

    async def revoke(self, id: str, *, reason: str = "") -> None:
        """End a token and every session opened with it, everywhere, at once."""
        await self._connection.send(
            "DELETE", f"{API}/tokens/{part(id)}", params={"reason": reason}, again=True
        )


class Groups:
    """The groups of one office."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self,
        *,
        source: str | None = None,
        status: GroupStatus | None = None,
        everything: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        """Groups, those with most open letters first; `after` of the page continues."""
        return await self._connection.get(
            f"{API}/groups",
            GroupPage,
            source=source,
            status=status,
            everything=everything,
            limit=limit,
            after=after,
        )

    async def get(self, name: str) -> GroupLine:
        """One group, by its fingerprint or the beginning of it."""
        return await self._connection.get(f"{API}/groups/{part(name)}", GroupLine)

    async def variants(self, name: str) -> Variants:
        """Return what the letters of a group have in common, and where they differ."""
        return await self._connection.get(f"{API}/groups/{part(name)}/variants", Variants)

    async def say(
        self,
        name: str,
        status: GroupStatus,
        *,
        owner: str | None = None,
        until: datetime | None = None,
        version: str = "",
        reason: str = "",
    ) -> GroupLine:
        """Say how a group stands: ongoing, snoozed, resolved or muted."""
        said = {
            "status": status,
            "owner": owner,
            "until": until,
            "version": version,
            "reason": reason,
        }
        path = f"{API}/groups/{part(name)}/standing"
        return await self._connection.post(path, said, GroupLine, method="PUT")

    async def merge(self, into: str, *others: str, reason: str = "") -> Regrouped:
        """Merge other groups into one; letters to come follow."""
        asked = {"others": list(others), "reason": reason}
        path = f"{API}/groups/{part(into)}/merge"
        return await self._connection.post(path, asked, Regrouped)

    async def split(self, name: str, query: str, *, reason: str = "") -> Regrouped:
        """Make letters of a group that a search finds a group of their own."""
        asked = {"query": query, "reason": reason}
        path = f"{API}/groups/{part(name)}/split"
        return await self._connection.post(path, asked, Regrouped)

    async def undo(self, name: str, *, reason: str = "") -> Regrouped:
        """Take back the last merge or split of a group."""
        path = f"{API}/groups/{part(name)}/undo"
        return await self._connection.post(path, {"reason": reason}, Regrouped)

    async def rules(self) -> Sequence[RuleLine]:
        """Merges and splits that letters to come follow."""
        return await self._connection.get(f"{API}/group-rules", tuple[RuleLine, ...])


class Acts(Struct, frozen=True, kw_only=True):
    """A page of the audit, oldest first; `after` continues it."""

    entries: tuple[AuditEntry, ...]
    after: int | None = None


class Client(Connected):
    """
    One office behind a server.

    What the server cannot do right now is asked again after a while, and what changes
    something carries an idempotency key, so that it is done once. Errors are those of
    `deadletter.core.errors`, with the server's words.
    """

    def __init__(self, url: str, *, token: str | None = None, **how: Any) -> None:
        connection = Connection(url, token=token, **how)
        super().__init__(connection)
        self.letters = Letters(connection)
        self.groups = Groups(connection)
        self.replays = Replays(connection)
        self.queues = Queues(connection)
        self.outages = Outages(connection)
        self.tokens = Tokens(connection)

    @cached_property
    def office(self) -> RemoteOffice:
        """The office behind the server, with the methods of `deadletter.Office`."""
        return RemoteOffice(self)

    async def close(self) -> None:
        """Cancel replays that were only planned through `office`, and disconnect."""
        try:
            if "office" in self.__dict__:
                await self.office.replays.forget()
        finally:
            await super().close()

    async def stats(self) -> Stats:
        """Mailboxes, letters by state and source, and arrivals of late."""
        return await self._connection.get(f"{API}/stats", Stats)

    async def audit(self, *, target: str | None = None, after: int = 0, limit: int = 100) -> Acts:
        """Return entries of the audit after the entry `after`, oldest first."""
        return await self._connection.get(
            f"{API}/audit", Acts, target=target, after=after, limit=limit
        )

    async def export(
        self, query: str, out: BinaryIO, *, limit: int | None = None, reason: str = ""
    ) -> int:
        """
        Write whole letters into a file, one JSON line each; return how many.

        Raises `Unavailable` if the last line is missing or does not match: what was
        written then is not a whole archive.
        """
        seal = SealCheck()
        params = {"query": query, "limit": limit, "reason": reason}
        async with self._connection.stream(f"{API}/export", params=params) as response:
            async for chunk in response.aiter_bytes():
                seal.feed(chunk)
                out.write(chunk)
        return seal.letters()

    async def import_(
        self,
        lines: bytes,
        *,
        archive: str = "request",
        reason: str = "",
        salvage: bool = False,
        dry_run: bool = False,
    ) -> TakenIn:
        """
        Take in an archive that `export` wrote; letters there already stay as they are.

        The server checks all of it first and takes nothing of a damaged one, unless
        `salvage` asks for the letters that are intact. With `dry_run` it only checks.
        """
        wish = {"salvage": salvage, "dry_run": dry_run}
        response = await self._connection.send(
            "POST",
            f"{API}/import",
            params={"archive": archive, "reason": reason, **wish},
            content=lines,
            headers={"content-type": "application/x-ndjson"},
            again=True,  # taking in the same again is fine
        )
        return decoded(response, TakenIn)

    def events(self, *, after: int | None = None) -> AsyncGenerator[Happening]:
        """Yield changes as they happen, until the caller stops listening."""
        return listen(self._connection, after)
