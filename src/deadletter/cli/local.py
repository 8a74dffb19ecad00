"""An office that is opened here: its engine, and what commands ask of it."""

import io
from collections.abc import Sequence
from datetime import datetime
from typing import Any, BinaryIO

from deadletter.assembly.engines import key_ring
from deadletter.assembly.foreign import WayBack
from deadletter.core.campaign import Campaign
from deadletter.core.editing import Changes
from deadletter.core.letter import AuditEntry, By, GroupStatus, LetterHead
from deadletter.core.message import Message
from deadletter.office import groups, mailboxes
from deadletter.office.archive import ArchiveHead, write_archive
from deadletter.office.groups import GroupLine, GroupPage
from deadletter.office.letters import Letters
from deadletter.office.preflight import Plan
from deadletter.office.replay import Replay
from deadletter.office.sheet import write_sheet
from deadletter.office.stats import Stats, collect
from deadletter.office.story import reveal as record_reveal
from deadletter.office.story import tell
from deadletter.office.taking_in import TakenIn, take_in_archive
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
        self, engine: Engine, clock: Clock, dice: Dice, outlet: WayBack | None = None
    ) -> None:
        assert engine.letters is not None  # none is opened without
        self.engine = engine
        self.store: LetterStore = engine.letters
        self.outlet = outlet  # replays go through somebody else's server
        self._clock = clock
        self._letters = Letters(self.store, clock)
        self.ring = key_ring(self.store)
        if outlet is None:
            self._replay = Replay(
                self.store,
                self.broker,
                clock,
                dice,
                self.ledger,
                postman=engine.postman,
                ring=self.ring,
            )
        else:
            self._replay = Replay(self.store, outlet, clock, dice, ring=self.ring)

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

    async def look(self, text: str, by: By, *, reveal: bool = False) -> Looked:
        letter = await self._letters.get(text)
        if reveal:
            await record_reveal(self.store, letter, by)
        story = await tell(self.store, letter)
        return Looked(
            view=view(letter, reveal=reveal),
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
        chosen = wish.chosen
        return await self._replay.judge(
            chosen.ids, query=chosen.said, to=wish.to, cap=wish.cap, more=chosen.more
        )

    async def begin(self, wish: Wish, *, hold: bool = False) -> Campaign:
        campaign = await self._replay.begin(
            wish.chosen.ids,
            wish.by,
            query=wish.chosen.said,
            to=wish.to,
            cap=wish.cap,
            rate=wish.rate,
            care=wish.care,
            hold=hold,
        )
        return await self._replay.status(campaign.id)  # now with its counts

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

    async def audit(self, target: str, *, limit: int) -> Sequence[AuditEntry]:
        return await self.store.audit(target=target, limit=limit)

    async def stats(self) -> Stats:
        return await collect(self.broker, self.store, self._clock)

    async def queues(self) -> Sequence[QueueInfo]:
        return await self.broker.queues()

    async def queue(self, name: str) -> QueueInfo:
        return await mailboxes.find_mailbox(self.broker, name)

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
        detail = f"{written} letters as {form}: {query or 'everything'}"
        await self.store.record("export", name, by, detail)
