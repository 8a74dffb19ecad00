"""An office that is opened here: its engine, and what commands ask of it."""

import io
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO

from deadletter.assembly.engines import key_ring
from deadletter.assembly.foreign import Ways
from deadletter.core.campaign import Campaign
from deadletter.core.counts import many
from deadletter.core.editing import Changes
from deadletter.core.letter import AuditEntry, By, GroupStatus, LetterHead
from deadletter.core.message import Message
from deadletter.core.unsettled import Unsettled
from deadletter.core.variants import Variants
from deadletter.office import group_merging as merging
from deadletter.office import groups, mailboxes
from deadletter.office.archive import ArchiveHead, write_archive
from deadletter.office.group_merging import Regrouped, RuleLine
from deadletter.office.groups import GroupLine, GroupPage
from deadletter.office.letters import Letters
from deadletter.office.outages import (
    Outage,
    Released,
    list_outages,
    release_mailbox,
)
from deadletter.office.outcomes import Confirmed, confirm_messages
from deadletter.office.preflight import Fits, LetterVerdict, Plan
from deadletter.office.regrouping import regroup_all
from deadletter.office.replay import Replay
from deadletter.office.selection import Selected, check_not_elsewhere
from deadletter.office.sheet import write_sheet
from deadletter.office.stats import Stats, collect, waiting
from deadletter.office.story import reveal as record_reveal
from deadletter.office.story import tell
from deadletter.office.taking_in import TakenIn, take_in_archive
from deadletter.office.variants import group_variants
from deadletter.office.view import view
from deadletter.ports import (
    Broker,
    Clock,
    Dice,
    Engine,
    Ledger,
    LetterStore,
    QueueInfo,
    QueueOptions,
    ReplayItems,
)

from .office import Looked, Wish


class LocalOffice:
    """An open engine, as commands use it."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        dice: Dice,
        *,
        ways: Ways | None = None,
        fits: Fits | None = None,
        presume_after: float | None = None,
    ) -> None:
        assert engine.letters is not None  # none is opened without
        self.engine = engine
        self.store: LetterStore = engine.letters
        self.ways = ways or Ways({}, clock=clock)  # to servers of others
        self._clock = clock
        self._letters = Letters(self.store, clock)
        self.ring = key_ring(self.store)
        self._selected: tuple[Wish, Selected] | None = None
        self._replay = Replay(
            self.store,
            self.broker,
            clock,
            dice,
            self.ledger,
            postman=engine.postman,
            ring=self.ring,
            fits=fits,
            ways=self.ways,
            presume_after=presume_after,
        )

    @property
    def broker(self) -> Broker:
        return self.engine.broker

    @property
    def ledger(self) -> Ledger | None:
        return self.engine.ledger

    @property
    def letters(self) -> Letters:
        return self._letters

    @property
    def replay(self) -> Replay:
        return self._replay

    async def look(
        self, text: str, by: By, *, reveal: bool = False, capture: bool = False
    ) -> Looked:
        letter = await self._letters.get(text)
        if reveal:
            await record_reveal(self.store, letter, by)
        story = await tell(self.store, letter)
        return Looked(
            view=view(letter, reveal=reveal, capture=capture),
            moments=story.moments,
            left_out=story.left_out,
            message=letter.message if reveal else None,
            original=letter.original if reveal else None,
        )

    async def message(
        self, text: str, by: By, *, original: bool = False, shown: bool = True
    ) -> tuple[LetterHead, Message]:
        letter = await self._letters.get(text)
        if shown:
            await record_reveal(self.store, letter, by)
        return letter.head, letter.as_it_died if original else letter.message

    async def edit(self, head: LetterHead, changes: Changes, by: By) -> LetterHead:
        edited = await self._letters.edit(head.id, changes, by, revision=head.revision)
        return edited.head

    async def plan(self, wish: Wish) -> Plan:
        return (await self._select(wish)).plan

    async def verdicts(self, wish: Wish) -> AsyncIterator[Sequence[LetterVerdict]]:
        async for some in self._replay.verdicts(
            await self.store.sent_order(wish.chosen.ids),
            to=wish.to,
            cap=wish.cap,
            limit=wish.limit,
            care=wish.care,
            through=wish.through,
        ):
            yield some

    async def begin(self, wish: Wish, *, hold: bool = False) -> Campaign:
        selected = await self._select(wish)
        check_not_elsewhere(selected)
        campaign = await self._replay.begin(
            selected.ids,
            wish.by,
            query=wish.chosen.said,
            to=wish.to,
            cap=wish.cap,
            rate=wish.rate,
            care=wish.care,
            hold=hold,
            through=selected.plan.through,
        )
        return await self._replay.status(campaign.id)  # now with its counts

    async def _select(self, wish: Wish) -> Selected:
        """The letters of a wish; chosen once, also if they are asked for twice."""
        if self._selected is None or self._selected[0] is not wish:
            chosen = wish.chosen
            selected = await self._replay.select(
                chosen.ids,
                query=chosen.said,
                to=wish.to,
                cap=wish.cap,
                limit=wish.limit,
                care=wish.care,
                more=chosen.more,
                through=wish.through,
            )
            self._selected = wish, selected
        return self._selected[1]

    async def resume(
        self,
        campaign_id: str,
        by: By,
        *,
        rate: float | None = None,
        take_over: bool = False,
    ) -> Campaign:
        return await self._replay.resume(campaign_id, by, take_over=take_over)

    async def outcomes(self, campaign_id: str, *, after: int = 0) -> ReplayItems:
        return await self.store.campaign_items(campaign_id, after=after)

    async def confirm(self, message_ids: Sequence[str], by: By) -> Confirmed:
        return await confirm_messages(self.store, message_ids, by)

    async def groups(
        self,
        *,
        source: str | None = None,
        status: GroupStatus | None = None,
        everything: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        return await groups.list_groups(
            self.store,
            source=source,
            status=status,
            everything=everything,
            limit=limit,
            after=after,
        )

    async def group(self, name: str) -> GroupLine:
        return await groups.line_of(self.store, name)

    async def variants(self, name: str) -> Variants:
        return await group_variants(self.store, name)

    async def say(
        self,
        name: str,
        status: GroupStatus,
        by: By,
        *,
        owner: str | None = None,
        until: datetime | None = None,
        version: str = "",
    ) -> GroupLine:
        group = await groups.say(
            self.store,
            self._clock,
            name,
            status,
            by,
            owner=owner,
            until=until,
            version=version,
        )
        return await groups.line_of(self.store, group.fingerprint)

    async def merge_groups(self, into: str, others: Sequence[str], by: By) -> Regrouped:
        return await merging.merge_groups(self.store, self._clock, into, others, by)

    async def split_group(self, name: str, query: str, by: By) -> Regrouped:
        return await merging.split_group(self.store, self._clock, name, query, by)

    async def undo_grouping(self, name: str, by: By) -> Regrouped:
        return await merging.undo_grouping(self.store, name, by)

    async def group_rules(self) -> Sequence[RuleLine]:
        return await merging.list_rules(self.store)

    async def regroup(self, by: By) -> int:
        return await regroup_all(self.store, by)

    async def audit(self, target: str, *, limit: int) -> Sequence[AuditEntry]:
        return await self.store.audit(target=target, limit=limit)

    async def acts(self, after: int, limit: int) -> Sequence[AuditEntry]:
        return await self.store.audit(after=after, limit=limit)

    async def stats(self) -> Stats:
        return await collect(self.broker, self.store, self._clock)

    async def waiting(self) -> Sequence[Unsettled]:
        return await waiting(self.store, await self.store.counts())

    async def queues(self) -> Sequence[QueueInfo]:
        return await self.broker.queues()

    async def queue(self, name: str) -> QueueInfo:
        return await mailboxes.find_mailbox(self.broker, name)

    async def outages(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> Sequence[Outage]:
        return await list_outages(
            self.store,
            self._clock,
            mailbox=mailbox,
            only_open=only_open,
            limit=limit,
        )

    async def release(self, mailbox: str, by: By) -> Released:
        return await release_mailbox(self.store, mailbox, by)

    async def create_queue(self, options: QueueOptions, by: By) -> None:
        await mailboxes.create_mailbox(self.broker, self.store, options, by)

    async def update_queue(
        self, name: str, changes: dict[str, Any], by: By
    ) -> QueueOptions:
        return await mailboxes.change_mailbox(
            self.broker, self.store, name, changes, by
        )

    async def delete_queue(self, name: str, by: By, *, force: bool = False) -> int:
        return await mailboxes.delete_mailbox(
            self.broker, self.store, name, by, force=force
        )

    async def export(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        ids = await self._letters.freeze(query, limit=limit)
        head = ArchiveHead(
            exported_at=self._clock.now(),
            engine=self.engine.features.engine,
            query=query,
        )
        written = await write_archive(self.store, ids, file, head)
        await self._exported(written, "jsonl", query, name, by)
        return written

    async def sheet(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        sheet = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            pages = self._letters.select(query, limit=limit)
            written = await write_sheet(pages, sheet)
        finally:
            sheet.detach()
        await self._exported(written, "csv", query, name, by)
        return written

    async def take_in(
        self, file: BinaryIO, by: By, *, name: str, salvage: bool = False
    ) -> TakenIn:
        return await take_in_archive(
            self.store, file, by, archive=name, salvage=salvage
        )

    async def _exported(
        self, written: int, form: str, query: str, name: str, by: By
    ) -> None:
        detail = f"{many(written, 'letter')} as {form}: {query or 'everything'}"
        await self.store.record("export", name, by, detail)
