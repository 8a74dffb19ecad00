"""The protocols of an office: what `Office` and `Client(url).office` both offer."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Protocol

from deadletter.core.campaign import Unsettled
from deadletter.core.deaths import By as DeathsBy
from deadletter.core.letter import AuditEntry, By, GroupStatus
from deadletter.office.variants import Variants
from deadletter.ports import QueueInfo, QueueOptions

from .archive_import import TakenIn
from .audit import EVERY_ENTRY, AuditFilter
from .deaths import NAMES, DeathChart, Mark
from .group_versions import GroupVersions
from .groups import GroupCounts, GroupLine, GroupOrder, GroupPage, Regrouped, RuleLine
from .letters_protocol import LettersProtocol
from .mailboxes import Outage, Released
from .repair import RepairsProtocol
from .replays import ReplaysProtocol
from .searches import SearchesProtocol
from .selection import Chosen
from .stats import Stats
from .triage.triage import TriageProtocol
from .workers import WorkerLine


class GroupsProtocol(Protocol):
    """The groups of an office: letters with the same cause."""

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
        """
        Return groups, by default those with most open letters first.

        By default these are groups with open letters that are not snoozed or muted.

        Args:
            source: Only groups of this mailbox.
            status: Only groups of this status, also those without open letters.
            everything: All groups.
            text: Only groups whose error, place, code or owner contains this.
            order: The order of the list.
            limit: The most groups on the page.
            after: The `after` of the previous page, to continue it.
        """

    async def counts(self) -> GroupCounts:
        """Return the number of groups of each status, and of those that `list` shows."""

    async def get(self, name: str) -> GroupLine:
        """Return one group, by its fingerprint or the beginning of it."""

    async def variants(self, name: str) -> Variants:
        """Return what the letters of a group have in common, and where they differ."""

    async def versions(self, name: str) -> GroupVersions:
        """Return the versions in which messages died of a group, and those that came after."""

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
        """
        Set the status of a group: resolve, snooze, mute or assign it.

        Args:
            name: The fingerprint of the group, or the beginning of it.
            status: The new status.
            by: Who sets it. The reason becomes the note of the group.
            owner: The new owner; empty means nobody, None keeps the owner.
            until: The end of a snooze.
            version: The version that fixes a resolved group.
            note: The note of the group; by default the reason, or the note so far.
        """

    async def merge(self, into: str, others: Sequence[str], by: By) -> Regrouped:
        """Merge the `others` into one group. New letters follow."""

    async def split(self, name: str, query: str, by: By) -> Regrouped:
        """Move the letters of a group that a search finds to a group of their own."""

    async def undo(self, name: str, by: By) -> Regrouped:
        """Undo the last merge or split of a group."""

    async def rules(self) -> Sequence[RuleLine]:
        """Return the merges and splits that apply to new letters."""

    async def regroup(self, by: By) -> int:
        """Move letters with old fingerprints to their groups; return the number moved."""


class MailboxesProtocol(Protocol):
    """The mailboxes of an office, and the outages in which workers did not fetch."""

    async def list(self) -> Sequence[QueueInfo]:
        """Return all mailboxes with their numbers of messages, by name."""

    async def get(self, name: str) -> QueueInfo:
        """Return one mailbox; raises `NotFound` if it does not exist."""

    async def create(self, options: QueueOptions, by: By) -> None:
        """Create a mailbox. Raises `Conflict` if it exists with other options."""

    async def update(self, name: str, changes: dict[str, Any], by: By) -> QueueOptions:
        """Change some options of a mailbox, by their names; return all of them."""

    async def delete(self, name: str, by: By, *, force: bool = False) -> int:
        """
        Delete a mailbox and return the number of messages deleted with it.

        Args:
            name: The mailbox. Its letters stay in the office.
            by: Who deletes it, and why.
            force: Delete it even if it is the dead queue of another mailbox.
        """

    async def outages(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> Sequence[Outage]:
        """
        Return the outages in which the brake held back mailboxes, latest first.

        Args:
            mailbox: Only those of this mailbox.
            only_open: Only those that have not ended.
            limit: The most outages to return.
        """

    async def release(self, mailbox: str, by: By) -> Released:
        """Open a mailbox again although the brake holds it back."""


class OfficeProtocol(Protocol):
    """Everything a person can do with dead letters, here or over HTTP."""

    @property
    def letters(self) -> LettersProtocol:
        """Search, read, edit and move letters."""

    @property
    def groups(self) -> GroupsProtocol:
        """List groups of letters with the same cause; set their status; merge and split."""

    @property
    def replays(self) -> ReplaysProtocol:
        """Send letters back: plan, start, watch, pause, resume and cancel replays."""

    @property
    def repairs(self) -> RepairsProtocol:
        """Make the same change to the bodies of many letters."""

    @property
    def mailboxes(self) -> MailboxesProtocol:
        """List, create, change and delete mailboxes; list and end outages."""

    @property
    def searches(self) -> SearchesProtocol:
        """List, save and delete searches with a name."""

    @property
    def triage(self) -> TriageProtocol:
        """Look at letters: facets, contents, common values, completions, needs, a report."""

    async def choose(self, query: str) -> Chosen:
        """
        Return the letters that a search finds now, for a `ReplayRequest`.

        Raises NotFound if there are none, and ConfigError for words without a field: they
        may match anything.

        Args:
            query: The letters to choose, such as `is:pending group:4f2a`.
        """

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """
        Return entries of the audit, oldest first.

        Args:
            target: Only entries about this letter, group, mailbox or replay.
            after: Only entries with a greater number.
            limit: The most entries to return.
        """

    async def latest_audit(
        self, wanted: AuditFilter = EVERY_ENTRY, *, before: int | None = None, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """
        Return entries of the audit, newest first.

        Args:
            wanted: Only entries of this target, actor or action, or since a time.
            before: Only entries with a smaller number, to continue a list.
            limit: The most entries to return.
        """

    async def stats(self) -> Stats:
        """Return the numbers of messages and letters, and recent arrivals."""

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
        """
        Return deaths over time.

        Args:
            since: The beginning; by default 24 hours before the end.
            until: The end; by default now.
            step: 5 minutes, 1 hour or 1 day; by default what fits the span. Steps of 5
                minutes are kept for 48 hours, hours for 31 days, and days for good.
            by: What to tell apart: mailboxes, groups or versions.
            source: Only deaths of this mailbox.
            group: Only deaths of this group, by its fingerprint.
            most: The most names to tell apart; those with fewer deaths count together.
        """

    async def marks(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> Sequence[Mark]:
        """Return versions first seen, outages and replays of a span, earliest first."""

    async def workers(self) -> Sequence[WorkerLine]:
        """
        Return the workers that the office has heard of lately, by name.

        Raises ConfigError for an office that does not know which workers run.
        """

    async def waiting(self) -> Sequence[Unsettled]:
        """Return the letters that wait for the outcome of a replay, by source."""

    async def export(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """
        Write whole letters as JSON lines and return their number.

        Args:
            query: The letters to export.
            file: Where to write them.
            by: Who exports them; recorded in the audit.
            limit: The most letters to export.
            name: The name of the file in the audit.
        """

    async def sheet(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """Write the list entries of letters as CSV; the arguments are those of `export`."""

    async def import_(self, file: BinaryIO, by: By, *, name: str, salvage: bool = False) -> TakenIn:
        """
        Import the letters of an archive that `export` wrote.

        Args:
            file: The archive, which can be read twice.
            by: Who imports it; recorded in the audit.
            name: The name of the file in the audit.
            salvage: Import the intact letters of a damaged archive.
        """
