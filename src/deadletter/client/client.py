"""The typed client: the API of the server as methods."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, BinaryIO, Final, TypeAlias

import httpx
import msgspec
from msgspec import Struct, structs

from deadletter.core.access import Identity, IssuedToken, SessionView, TokenView
from deadletter.core.campaign import Campaign
from deadletter.core.errors import Unavailable
from deadletter.core.letter import AuditEntry, GroupStatus, State
from deadletter.office.archive import SealCheck
from deadletter.office.archive_import import TakenIn
from deadletter.office.audit import EVERY_ENTRY, AuditFilter
from deadletter.office.group_versions import GroupVersions
from deadletter.office.groups import (
    GroupCounts,
    GroupLine,
    GroupOrder,
    GroupPage,
    Regrouped,
    RuleLine,
)
from deadletter.office.mailboxes import Outage, Released
from deadletter.office.stats import Stats
from deadletter.office.variants import Variants
from deadletter.office.workers import WorkerLine
from deadletter.ports import QueueInfo, QueueOptions

from .connection import API, Connected, Connection, decoded, part
from .deaths import Deaths
from .intakes import Intakes
from .letters import Letters
from .office import RemoteOffice
from .repairs import Repairs
from .replays import Replays
from .searches import Searches
from .triage import Triage
from .upkeep import Upkeep

_SILENCE: Final = 60.0  # seconds; a running server sends something more often
_RECONNECT: Final = 2.0  # seconds before connecting again
_LONGEST: Final = 16 * 1024 * 1024  # characters of one event


class Counted(Struct, frozen=True, kw_only=True):
    """Number of letters of a mailbox in each state."""

    source: str
    counts: dict[State, int]


Change: TypeAlias = AuditEntry | Counted | Campaign
_KINDS: Final[dict[str, Any]] = {"act": AuditEntry, "letters": Counted, "replay": Campaign}


async def listen(connection: Connection, after: int | None = None) -> AsyncGenerator[Change]:
    """
    Yield audit entries, counts and replays as they change.

    Connects again when the connection is lost, and then yields the entries in between.
    With `after`, the number of an audit entry, the entries after it come first.
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

        await asyncio.sleep(_RECONNECT)


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
            raise Unavailable(f"the server sent an event of more than {_LONGEST:,} characters")
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
    """A deleted mailbox, and the number of messages deleted with it."""

    mailbox: str
    purged: int


class Queues:
    """The mailboxes of one engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[QueueInfo]:
        """Return all mailboxes with their numbers of messages, by name."""
        return await self._connection.get(f"{API}/queues", list[QueueInfo])

    async def get(self, name: str) -> QueueInfo:
        """Return one mailbox and its numbers of messages."""
        return await self._connection.get(f"{API}/queues/{part(name)}", QueueInfo)

    async def create(self, options: QueueOptions, *, reason: str = "") -> QueueOptions:
        """Create a mailbox; raises `Conflict` if it exists with other options."""
        body = {**structs.asdict(options), "reason": reason}
        return await self._connection.post(f"{API}/queues", body, QueueOptions)

    async def update(self, name: str, changes: dict[str, Any], *, reason: str = "") -> QueueOptions:
        """Change some options of a mailbox; the others stay."""
        path = f"{API}/queues/{part(name)}"
        body = {**changes, "reason": reason}
        return await self._connection.post(path, body, QueueOptions, method="PATCH")

    async def delete(self, name: str, *, force: bool = False, reason: str = "") -> Deleted:
        """Delete a mailbox and the messages in it. Letters that came from it stay."""
        return await self._connection.delete(
            f"{API}/queues/{part(name)}", Deleted, force=force, reason=reason
        )


class Outages:
    """The outages in which the brake stopped mailboxes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> list[Outage]:
        """Return the latest outages, latest first."""
        return await self._connection.get(
            f"{API}/outages", list[Outage], mailbox=mailbox, open=only_open or None, limit=limit
        )

    async def release(self, mailbox: str, *, reason: str = "") -> Released:
        """End the outage of a mailbox: its workers receive messages again."""
        body = {"mailbox": mailbox, "reason": reason}
        return await self._connection.post(f"{API}/outages/release", body, Released)


class Tokens:
    """The tokens of one office; for administrators."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[TokenView]:
        """Return the tokens by name, without their secrets."""
        return await self._connection.get(f"{API}/tokens", list[TokenView])

    async def issue(
        self, to: Identity, *, expires_at: datetime | None = None, reason: str = ""
    ) -> IssuedToken:
        """
        Create a token. Its secret is in this answer and is never shown again.

        If the answer is lost, the repeated request raises `Conflict` with the id of the
        token: revoke it, because its secret is not stored.
        """
        body = {**structs.asdict(to), "expires_at": expires_at, "reason": reason}
        del body["principal"]  # the server chooses it
        return await self._connection.post(f"{API}/tokens", body, IssuedToken)

    async def revoke(self, id: str, *, reason: str = "") -> None:
        """Revoke a token and its sessions on all servers immediately."""
        await self._connection.send(
            "DELETE", f"{API}/tokens/{part(id)}", params={"reason": reason}, repeatable=True
        )


class Sessions:
    """The sessions of the console: one's own; for administrators, all."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[SessionView]:
        """Return sessions, latest first."""
        return await self._connection.get(f"{API}/sessions", list[SessionView])

    async def end(self, id: str, *, reason: str = "") -> None:
        """End a session on all servers immediately."""
        await self._connection.send(
            "DELETE", f"{API}/sessions/{part(id)}", params={"reason": reason}, repeatable=True
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
        text: str = "",
        order: GroupOrder = GroupOrder.LARGEST,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        """Return groups, by default the largest first; `after` continues a page."""
        return await self._connection.get(
            f"{API}/groups",
            GroupPage,
            source=source,
            status=status,
            everything=everything,
            text=text or None,
            order=order,
            limit=limit,
            after=after,
        )

    async def get(self, name: str) -> GroupLine:
        """Return one group, by its fingerprint or the beginning of it."""
        return await self._connection.get(f"{API}/groups/{part(name)}", GroupLine)

    async def counts(self) -> GroupCounts:
        """Return the number of groups of each status, and of those that `list` shows."""
        return await self._connection.get(f"{API}/groups/counts", GroupCounts)

    async def variants(self, name: str) -> Variants:
        """Return what the letters of a group have in common, and where they differ."""
        return await self._connection.get(f"{API}/groups/{part(name)}/variants", Variants)

    async def versions(self, name: str) -> GroupVersions:
        """Return the versions in which messages died of a group, and those that came after."""
        return await self._connection.get(f"{API}/groups/{part(name)}/versions", GroupVersions)

    async def set_status(
        self,
        name: str,
        status: GroupStatus,
        *,
        owner: str | None = None,
        until: datetime | None = None,
        version: str = "",
        note: str | None = None,
        reason: str = "",
    ) -> GroupLine:
        """Set the status of a group: ongoing, snoozed, resolved or muted."""
        body = {
            "status": status,
            "owner": owner,
            "until": until,
            "version": version,
            "note": note,
            "reason": reason,
        }
        path = f"{API}/groups/{part(name)}/standing"
        return await self._connection.post(path, body, GroupLine, method="PUT")

    async def merge(self, into: str, *others: str, reason: str = "") -> Regrouped:
        """Merge other groups into one; new letters follow."""
        body = {"others": list(others), "reason": reason}
        path = f"{API}/groups/{part(into)}/merge"
        return await self._connection.post(path, body, Regrouped)

    async def split(self, name: str, query: str, *, reason: str = "") -> Regrouped:
        """Move the letters of a group that a search finds to a group of their own."""
        body = {"query": query, "reason": reason}
        path = f"{API}/groups/{part(name)}/split"
        return await self._connection.post(path, body, Regrouped)

    async def undo(self, name: str, *, reason: str = "") -> Regrouped:
        """Undo the last merge or split of a group."""
        path = f"{API}/groups/{part(name)}/undo"
        return await self._connection.post(path, {"reason": reason}, Regrouped)

    async def rules(self) -> Sequence[RuleLine]:
        """Return the merges and splits that apply to new letters."""
        return await self._connection.get(f"{API}/group-rules", tuple[RuleLine, ...])


class AuditPage(Struct, frozen=True, kw_only=True):
    """A page of the audit, oldest first; `after` continues it."""

    entries: tuple[AuditEntry, ...]
    after: int | None = None


class LatestAudit(Struct, frozen=True, kw_only=True):
    """A page of the audit, newest first; `before` continues it."""

    entries: tuple[AuditEntry, ...]
    before: int | None = None


class Client(Connected):
    """
    A client of one server.

    Requests are repeated if the server is temporarily unavailable. Changes carry an
    idempotency key, so that they are done once. Errors are those of
    `deadletter.core.errors`, with the texts of the server.
    """

    def __init__(self, url: str, *, token: str | None = None, **how: Any) -> None:
        connection = Connection(url, token=token, **how)
        super().__init__(connection)
        self.letters = Letters(connection)
        self.groups = Groups(connection)
        self.replays = Replays(connection)
        self.repairs = Repairs(connection)
        self.queues = Queues(connection)
        self.outages = Outages(connection)
        self.tokens = Tokens(connection)
        self.sessions = Sessions(connection)
        self.deaths = Deaths(connection)
        self.triage = Triage(connection)
        self.upkeep = Upkeep(connection)
        self.intakes = Intakes(connection)
        self.searches = Searches(connection)

    @cached_property
    def office(self) -> RemoteOffice:
        """Return the office behind the server, with the methods of `deadletter.Office`."""
        return RemoteOffice(self)

    async def close(self) -> None:
        """Cancel replays that were only planned through `office`, and disconnect."""
        try:
            if "office" in self.__dict__:
                await self.office.replays.forget()
        finally:
            await super().close()

    async def stats(self) -> Stats:
        """Return the numbers of messages and letters, and recent arrivals."""
        return await self._connection.get(f"{API}/stats", Stats)

    async def workers(self) -> Sequence[WorkerLine]:
        """Return the workers that the office has heard of lately, by name."""
        return await self._connection.get(f"{API}/workers", tuple[WorkerLine, ...])

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> AuditPage:
        """Return entries of the audit after the entry `after`, oldest first."""
        return await self._connection.get(
            f"{API}/audit", AuditPage, target=target, after=after, limit=limit
        )

    async def latest_audit(
        self, wanted: AuditFilter = EVERY_ENTRY, *, before: int | None = None, limit: int = 100
    ) -> LatestAudit:
        """Return entries of the audit that match, newest first; `before` continues a page."""
        return await self._connection.get(
            f"{API}/audit/latest",
            LatestAudit,
            target=wanted.target,
            actor=wanted.actor,
            action=wanted.action,
            since=None if wanted.since is None else wanted.since.isoformat(),
            before=before,
            limit=limit,
        )

    async def export(
        self, query: str, out: BinaryIO, *, limit: int | None = None, reason: str = ""
    ) -> int:
        """
        Write complete letters into a file, one JSON line each; return their number.

        Raises `Unavailable` if the last line is missing or does not match: then the
        written archive is incomplete.
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
        Import an archive that `export` wrote; existing letters do not change.

        The server checks the whole archive first. It imports nothing of a damaged one,
        except with `salvage` the intact letters. With `dry_run` it only checks.
        """
        options = {"salvage": salvage, "dry_run": dry_run}
        response = await self._connection.send(
            "POST",
            f"{API}/import",
            params={"archive": archive, "reason": reason, **options},
            content=lines,
            headers={"content-type": "application/x-ndjson"},
            repeatable=True,  # importing the same archive again changes nothing
        )
        return decoded(response, TakenIn)

    def events(self, *, after: int | None = None) -> AsyncGenerator[Change]:
        """Yield changes as they happen, until the caller stops listening."""
        return listen(self._connection, after)
