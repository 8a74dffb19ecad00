"""
The office behind a server: the methods of `deadletter.Office` over HTTP.

The server knows the caller by the token. Of `by`, only the reason is sent.
"""

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from deadletter.core.campaign import Unsettled
from deadletter.core.deaths import By as DeathsBy
from deadletter.core.errors import ConfigError
from deadletter.core.letter import AuditEntry, By, GroupStatus
from deadletter.office.archive import MOST_NAMED, ArchiveHead, read_letters, small_archives
from deadletter.office.archive_import import TakenIn, checked, taken_before
from deadletter.office.audit import EVERY_ENTRY, AuditFilter
from deadletter.office.deaths import NAMES, DeathChart, Mark
from deadletter.office.exports import write_sheet
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
from deadletter.office.selection import Chosen, choose_letters
from deadletter.office.stats import Stats
from deadletter.office.variants import Variants
from deadletter.office.workers import WorkerLine
from deadletter.ports import QueueInfo, QueueOptions

from .letters import PAGE, RemoteLetters
from .repairs import RemoteRepairs
from .replays import RemoteReplays
from .searches import RemoteSearches
from .triage import RemoteTriage

if TYPE_CHECKING:
    from .client import Client

_PORTION: Final = 2_000_000  # bytes of an archive in one request; or one letter


class RemoteGroups:
    """The groups of an office behind a server."""

    def __init__(self, client: "Client") -> None:
        self._groups = client.groups

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
        """Return groups, by default those with most open letters first."""
        return await self._groups.list(
            source=source,
            status=status,
            everything=everything,
            text=text,
            order=order,
            limit=limit,
            after=after,
        )

    async def get(self, name: str) -> GroupLine:
        """Return one group, by its fingerprint or the beginning of it."""
        return await self._groups.get(name)

    async def counts(self) -> GroupCounts:
        """Return the number of groups of each status, and of those that `list` shows."""
        return await self._groups.counts()

    async def variants(self, name: str) -> Variants:
        """Return what the letters of a group have in common, and where they differ."""
        return await self._groups.variants(name)

    async def versions(self, name: str) -> GroupVersions:
        """Return the versions in which messages died of a group, and those that came after."""
        return await self._groups.versions(name)

    async def set_status(
        self,
        name: str,
        status: GroupStatus,
        by: By,
        *,
        owner: str | None = None,
        until: datetime | None = None,
        version: str = "",
        note: str | None = None,
    ) -> GroupLine:
        """Set the status of a group: resolve, snooze, mute or assign it."""
        return await self._groups.set_status(
            name, status, owner=owner, until=until, version=version, note=note, reason=by.reason
        )

    async def merge(self, into: str, others: Sequence[str], by: By) -> Regrouped:
        """Merge the `others` into one group."""
        return await self._groups.merge(into, *others, reason=by.reason)

    async def split(self, name: str, query: str, by: By) -> Regrouped:
        """Move the letters of a group that a search finds to a group of their own."""
        return await self._groups.split(name, query, reason=by.reason)

    async def undo(self, name: str, by: By) -> Regrouped:
        """Undo the last merge or split of a group."""
        return await self._groups.undo(name, reason=by.reason)

    async def rules(self) -> Sequence[RuleLine]:
        """Return the merges and splits that apply to new letters."""
        return await self._groups.rules()

    async def regroup(self, by: By) -> int:
        """Raise `ConfigError`: a server does this by itself."""
        raise ConfigError(
            "`dlq groups regroup` cannot be combined with --server: a server moves letters"
            " to their groups by itself, within a minute"
        )


class RemoteMailboxes:
    """The mailboxes of an office behind a server, and their outages."""

    def __init__(self, client: "Client") -> None:
        self._queues = client.queues
        self._outages = client.outages

    async def list(self) -> Sequence[QueueInfo]:
        """Return all mailboxes with their numbers of messages, by name."""
        return await self._queues.list()

    async def get(self, name: str) -> QueueInfo:
        """Return one mailbox; raises `NotFound` if it does not exist."""
        return await self._queues.get(name)

    async def create(self, options: QueueOptions, by: By) -> None:
        """Create a mailbox."""
        await self._queues.create(options, reason=by.reason)

    async def update(self, name: str, changes: dict[str, Any], by: By) -> QueueOptions:
        """Change some options of a mailbox; return all of them."""
        return await self._queues.update(name, changes, reason=by.reason)

    async def delete(self, name: str, by: By, *, force: bool = False) -> int:
        """Delete a mailbox and return the number of messages deleted with it."""
        gone = await self._queues.delete(name, force=force, reason=by.reason)
        return gone.purged

    async def outages(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> Sequence[Outage]:
        """Return the outages in which the brake stopped mailboxes, latest first."""
        return await self._outages.list(mailbox=mailbox, only_open=only_open, limit=limit)

    async def release(self, mailbox: str, by: By) -> Released:
        """End the outage of a mailbox: its workers receive messages again."""
        return await self._outages.release(mailbox, reason=by.reason)


class RemoteOffice:
    """The office behind a server."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.letters = RemoteLetters(client)
        self.groups = RemoteGroups(client)
        self.replays = RemoteReplays(client)
        self.repairs = RemoteRepairs(client.repairs)
        self.mailboxes = RemoteMailboxes(client)
        self.triage = RemoteTriage(client)
        self.searches = RemoteSearches(client)

    async def choose(self, query: str) -> Chosen:
        """Return the letters that a search finds now, for a `ReplayRequest`."""
        return await choose_letters(self.letters, query)

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """Return entries of the audit, oldest first."""
        # A page leaves out entries of other callers, so a short one may not be the last.
        entries: list[AuditEntry] = []
        while len(entries) < limit:
            page = await self._client.audit(target=target, after=after, limit=limit - len(entries))
            entries += page.entries
            if page.after is None:
                break
            after = page.after
        return entries

    async def latest_audit(
        self, wanted: AuditFilter = EVERY_ENTRY, *, before: int | None = None, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """Return entries of the audit that match, newest first."""
        entries: list[AuditEntry] = []
        while (left := limit - len(entries)) > 0:
            page = await self._client.latest_audit(wanted, before=before, limit=min(left, PAGE))
            entries += page.entries
            if page.before is None:
                break
            before = page.before
        return entries

    async def stats(self) -> Stats:
        """Return the numbers of messages and letters, and recent arrivals."""
        return await self._client.stats()

    async def deaths(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        by: DeathsBy = DeathsBy.NONE,
        source: str | None = None,
        group: str | None = None,
        most: int = NAMES,
    ) -> DeathChart:
        """Return deaths over time."""
        return await self._client.deaths.chart(
            since=since, until=until, step=step, by=by, source=source, group=group, most=most
        )

    async def marks(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> Sequence[Mark]:
        """Return versions first seen, outages and replays of a span, earliest first."""
        return await self._client.deaths.marks(since=since, until=until)

    async def workers(self) -> Sequence[WorkerLine]:
        """Return the workers that the office has heard of lately, by name."""
        return await self._client.workers()

    async def waiting(self) -> Sequence[Unsettled]:
        """Return the letters that wait for the outcome of a replay, by source."""
        return (await self._client.stats()).unsettled

    async def export(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """Write whole letters as JSON lines and return their number."""
        return await self._client.export(query, file, limit=limit, reason=by.reason)

    async def sheet(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """Write the list entries of letters as CSV and return their number."""
        sheet = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            return await write_sheet(self.letters.select(query, limit=limit), sheet)
        finally:
            sheet.detach()

    async def import_(self, file: BinaryIO, by: By, *, name: str, salvage: bool = False) -> TakenIn:
        """Import the letters of an archive, in requests of a bounded size."""
        # Checked here as a whole, because the server gets it in several parts.
        checkup = checked(file, salvage=salvage)
        head = ArchiveHead(exported_at=datetime.now(UTC))
        take = partial(self._client.import_, archive=name, reason=by.reason)
        if not salvage:  # the server may reject letters that are valid here
            for part in small_archives(read_letters(file), head, most=_PORTION):
                await take(part, dry_run=True)
            file.seek(0)
        added = known = 0
        wrong, problems = checkup.wrong, list(checkup.problems)
        try:
            for part in small_archives(read_letters(file), head, most=_PORTION):
                taken = await take(part, salvage=salvage)
                added += taken.added
                known += taken.known
                wrong += taken.wrong
                problems += taken.problems
        except BaseException as error:
            error.add_note(taken_before(added, known))
            raise
        return TakenIn(added=added, known=known, wrong=wrong, problems=tuple(problems[:MOST_NAMED]))
