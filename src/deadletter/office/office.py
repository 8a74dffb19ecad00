"""
The office: everything a person can do with dead letters, in one object.

    async with opened("sqlite:///shop.db") as engine:
        office = Office(engine, clock, dice)
        page = await office.letters.search("is:pending source:orders")
        await office.letters.review([head.id for head in page.heads], By("ada"))

`Office` works on an engine that is open in this process. `Client(url).office` offers the
same methods over HTTP; `OfficeProtocol` is the type of both.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from deadletter.core.alerts import Alerts
from deadletter.core.campaign import Unsettled
from deadletter.core.deaths import By as DeathsBy
from deadletter.core.errors import NotFound
from deadletter.core.letter import AuditEntry, By, GroupStatus, State
from deadletter.core.text import many
from deadletter.office.variants import Variants
from deadletter.ports import (
    Broker,
    Clock,
    Dice,
    Engine,
    KeyRing,
    LetterStore,
    QueueInfo,
    QueueOptions,
)

from . import groups, mailboxes
from .archive import ArchiveHead, write_archive
from .archive_import import TakenIn, take_in_archive
from .audit import EVERY_ENTRY, AuditFilter, latest_entries
from .deaths import NAMES, DeathChart, Mark, chart_deaths, find_marks
from .exports import write_sheet
from .group_versions import GroupVersions, group_versions
from .groups import GroupCounts, GroupLine, GroupOrder, GroupPage, Regrouped, RuleLine
from .letters import Letters
from .mailboxes import Outage, Released
from .preflight import Fits
from .regrouping import CHORE, regroup_all
from .repair import Repairs
from .replay import Replay
from .replays import OtherServers, Replays
from .retention import ABANDONED, KEEP, Retention
from .searches import Searches
from .selection import Chosen, choose_letters
from .stats import Stats, collect, waiting
from .triage.triage import Triage
from .variants import group_variants
from .verify import Verified, verify
from .workers import WorkerLine, list_workers


class Groups:
    """The groups of an office that is open in this process."""

    def __init__(self, store: LetterStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(
        self,
        *,
        source: str | None = None,
        sources: Sequence[str] = (),
        status: GroupStatus | None = None,
        everything: bool = False,
        text: str = "",
        order: GroupOrder = GroupOrder.LARGEST,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        """Return groups, by default the largest first; with `sources` only of these."""
        return await groups.list_groups(
            self._store,
            source=source,
            sources=sources,
            status=status,
            everything=everything,
            text=text,
            order=order,
            limit=limit,
            after=after,
        )

    async def counts(self, *, sources: Sequence[str] = ()) -> GroupCounts:
        """Return the number of groups of each status; with `sources` only of these."""
        return await groups.count_groups(self._store, sources=sources)

    async def get(self, name: str, *, sources: Sequence[str] = ()) -> GroupLine:
        """Return one group, by its fingerprint or the beginning of it."""
        return await groups.line_of(self._store, name, sources=sources)

    async def variants(self, name: str, *, sources: Sequence[str] = ()) -> Variants:
        """Return what the letters of a group have in common, and where they differ."""
        return await group_variants(self._store, name, sources=sources)

    async def versions(self, name: str, *, sources: Sequence[str] = ()) -> GroupVersions:
        """Return the versions in which messages died of a group, and those that came after."""
        return await group_versions(self._store, name, sources=sources)

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
        sources: Sequence[str] = (),
    ) -> GroupLine:
        """Set the status of a group, and return the group."""
        group = await groups.get_group(self._store, name, sources=sources)
        await groups.say(
            self._store,
            self._clock,
            group.fingerprint,
            status,
            by,
            owner=owner,
            until=until,
            version=version,
            note=note,
        )
        return await groups.line_of(self._store, group.fingerprint)

    async def merge(
        self, into: str, others: Sequence[str], by: By, *, sources: Sequence[str] = ()
    ) -> Regrouped:
        """Merge the `others` into one group."""
        return await groups.merge_groups(
            self._store, self._clock, into, others, by, sources=sources
        )

    async def split(
        self, name: str, query: str, by: By, *, sources: Sequence[str] = ()
    ) -> Regrouped:
        """Move the letters of a group that a search finds to a group of their own."""
        return await groups.split_group(self._store, self._clock, name, query, by, sources=sources)

    async def undo(self, name: str, by: By, *, sources: Sequence[str] = ()) -> Regrouped:
        """Undo the last merge or split of a group."""
        return await groups.undo_grouping(self._store, name, by, sources=sources)

    async def rules(self, *, sources: Sequence[str] = ()) -> Sequence[RuleLine]:
        """Return the merges and splits that apply to new letters."""
        return await groups.list_rules(self._store, sources=sources)

    async def regroup(self, by: By = CHORE) -> int:
        """Move letters with old fingerprints to their groups; return the number moved."""
        return await regroup_all(self._store, by)


class Mailboxes:
    """The mailboxes of an office that is open in this process."""

    def __init__(self, broker: Broker, store: LetterStore, clock: Clock) -> None:
        self._broker = broker
        self._store = store
        self._clock = clock

    async def list(self) -> Sequence[QueueInfo]:
        """Return all mailboxes, by name."""
        return await self._broker.queues()

    async def get(self, name: str) -> QueueInfo:
        """Return one mailbox; raises `NotFound` if it does not exist."""
        return await mailboxes.find_mailbox(self._broker, name)

    async def create(self, options: QueueOptions, by: By) -> None:
        """Create a mailbox; recorded in the audit."""
        await mailboxes.create_mailbox(self._broker, self._store, options, by)

    async def update(self, name: str, changes: dict[str, Any], by: By) -> QueueOptions:
        """Change some options of a mailbox; recorded in the audit."""
        return await mailboxes.change_mailbox(self._broker, self._store, name, changes, by)

    async def delete(self, name: str, by: By, *, force: bool = False) -> int:
        """Delete a mailbox; recorded in the audit."""
        return await mailboxes.delete_mailbox(self._broker, self._store, name, by, force=force)

    async def outages(
        self,
        *,
        mailbox: str | None = None,
        only_open: bool = False,
        limit: int = 50,
        sources: Sequence[str] = (),
    ) -> Sequence[Outage]:
        """Return outages, latest first; with `sources` only of these mailboxes."""
        return await mailboxes.list_outages(
            self._store,
            self._clock,
            mailbox=mailbox,
            only=sources,
            only_open=only_open,
            limit=limit,
        )

    async def release(self, mailbox: str, by: By) -> Released:
        """Open a mailbox again; raises `NotFound` if nothing holds it back."""
        return await mailboxes.release_mailbox(self._store, mailbox, by)


class Office:
    """
    The office of an engine that is open in this process.

    Some methods take `sources`: only letters of these mailboxes then exist for them.

    Args:
        engine: The open engine. It must keep letters.
        clock: The source of time.
        dice: The source of random ids.
        ring: The keys that sign records; by default those that the office keeps.
        servers: Other servers that letters can go back to.
        fits: Tells whether a handler can read a message; used by verdicts.
        presume_after: Seconds after which a letter that went to another server counts
            as handled; None means never.
        alerts: The limits of what needs somebody.
        approve_above: The letters above which replays need a second person; 0 is never.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        dice: Dice,
        *,
        ring: KeyRing | None = None,
        servers: OtherServers | None = None,
        fits: Fits | None = None,
        presume_after: float | None = None,
        alerts: Alerts | None = None,
        approve_above: int = 0,
    ) -> None:
        assert engine.letters is not None  # every engine is opened with an office
        self.engine = engine
        self.store: LetterStore = engine.letters
        self.ring = ring or KeyRing(self.store)
        self.letters = Letters(self.store, clock)
        self.groups = Groups(self.store, clock)
        self.mailboxes = Mailboxes(engine.broker, self.store, clock)
        self.searches = Searches(self.store, clock)
        self.triage = Triage(
            self.store, engine.broker, self.letters, clock, alerts, approve_above=approve_above
        )
        sender = Replay(
            self.store,
            engine.broker,
            clock,
            dice,
            engine.ledger,
            atomic_replay=engine.atomic_replay,
            ring=self.ring,
            fits=fits,
            ways=servers,
            presume_after=presume_after,
        )
        self.replays = Replays(self.store, sender, clock, servers)
        self.repairs = Repairs(self.store, fits)
        self._clock = clock

    async def choose(self, query: str) -> Chosen:
        """Return the letters that a search finds now, for a `ReplayRequest`."""
        return await choose_letters(self.letters, query)

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """Return entries of the audit, oldest first."""
        return await self.store.audit(target=target, after=after, limit=limit)

    async def latest_audit(
        self, wanted: AuditFilter = EVERY_ENTRY, *, before: int | None = None, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """Return entries of the audit that match, newest first."""
        return await latest_entries(self.store, wanted, before=before, limit=limit)

    async def stats(self, *, sources: Sequence[str] = ()) -> Stats:
        """Return the numbers of messages and letters, and recent arrivals."""
        return await collect(self.engine.broker, self.store, self._clock, only=sources)

    async def deaths(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        by: DeathsBy = DeathsBy.NONE,
        source: str | None = None,
        sources: Sequence[str] = (),
        group: str | None = None,
        most: int = NAMES,
    ) -> DeathChart:
        """Return deaths over time."""
        if source is not None and sources and source not in sources:
            raise NotFound(f"there is no mailbox {source!r}; `dlq queues list` shows them")
        return await chart_deaths(
            self.store,
            self._clock,
            since=since,
            until=until,
            step=step,
            by=by,
            sources=sources if source is None else (source,),
            groups=() if group is None else (group,),
            most=most,
        )

    async def marks(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        sources: Sequence[str] = (),
        owner: str | None = None,
    ) -> Sequence[Mark]:
        """Return versions first seen, outages and replays of a span, earliest first."""
        return await find_marks(
            self.store, self._clock, since=since, until=until, sources=sources, owner=owner
        )

    async def workers(self, *, sources: Sequence[str] = ()) -> Sequence[WorkerLine]:
        """Return the workers that the office has heard of lately, by name."""
        return await list_workers(self.store, only=sources)

    async def waiting(self) -> Sequence[Unsettled]:
        """Return the letters that wait for the outcome of a replay, by source."""
        return await waiting(self.store, await self.store.counts())

    async def verify(self, *, on_step: Callable[[], object] = lambda: None) -> Verified:
        """
        Reconcile what came in with what went out and what is still there.

        Args:
            on_step: Called after each of the steps `upkeep.VERIFY_STEPS`.
        """
        return await verify(self.engine.broker, self.store, on_step=on_step)

    def retention(
        self, keep: Mapping[State, timedelta] = KEEP, *, abandoned: timedelta = ABANDONED
    ) -> Retention:
        """
        Return the retention of finished letters, to look at what is due or to run it.

        Args:
            keep: How long to keep letters of each finished state.
            abandoned: How long to keep ledger keys that nobody finished.
        """
        return Retention(
            self.store, self._clock, keep=keep, ledger=self.engine.ledger, abandoned=abandoned
        )

    async def export(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """Write whole letters as JSON lines and return their number."""
        ids = await self.letters.freeze(query, limit=limit)
        written = await write_archive(self.store, ids, file, self.archive_head(query))
        await self.record_export(written, "jsonl", query, name, by)
        return written

    async def sheet(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """Write the list entries of letters as CSV and return their number."""
        sheet = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            written = await write_sheet(self.letters.select(query, limit=limit), sheet)
        finally:
            sheet.detach()
        await self.record_export(written, "csv", query, name, by)
        return written

    def archive_head(self, query: str) -> ArchiveHead:
        """Return the first line of an archive of the letters that a search finds."""
        return ArchiveHead(
            exported_at=self._clock.now(), engine=self.engine.features.engine, query=query
        )

    async def record_export(self, count: int, form: str, query: str, name: str, by: By) -> None:
        """Record an export in the audit."""
        detail = f"{many(count, 'letter')} as {form}: {query or 'everything'}"
        await self.store.record("export", name, by, detail)

    async def import_(self, file: BinaryIO, by: By, *, name: str, salvage: bool = False) -> TakenIn:
        """Import the letters of an archive; with `salvage` those that are intact."""
        return await take_in_archive(self.store, file, by, archive=name, salvage=salvage)
