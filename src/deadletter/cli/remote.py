"""An office behind a server, as commands use it."""

import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, Final

from msgspec import structs

from deadletter.client import Client
from deadletter.core.campaign import Campaign
from deadletter.core.editing import Changes
from deadletter.core.errors import ConfigError
from deadletter.core.letter import AuditEntry, By, GroupStatus, LetterHead
from deadletter.core.message import Message
from deadletter.core.unsettled import Unsettled
from deadletter.core.variants import Variants
from deadletter.office.archive import ArchiveHead, small_archives
from deadletter.office.archive_reader import MOST_NAMED, read_letters
from deadletter.office.diff import differences
from deadletter.office.group_merging import Regrouped, RuleLine
from deadletter.office.groups import GroupLine, GroupPage
from deadletter.office.outages import Outage, Released
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdict, Plan
from deadletter.office.sheet import write_sheet
from deadletter.office.stats import Stats
from deadletter.office.taking_in import TakenIn, checked, taken_before
from deadletter.office.view import view_message
from deadletter.ports import QueueInfo, QueueOptions, ReplayItems

from .office import Looked, Wish
from .remote_letters import RemoteLetters
from .remote_replays import RemoteReplays
from .servers import server

_PORTION: Final = 2_000_000  # bytes of an archive in one request; or one letter


@asynccontextmanager
async def remote_office(url: str, token: str | None) -> AsyncIterator["RemoteOffice"]:
    """The office behind a server; what is planned there and not started is undone."""
    async with server(url, token) as client:
        office = RemoteOffice(client)
        try:
            yield office
        finally:
            await office.replay.forget()


class RemoteOffice:
    """An office that is asked through its server. Who asks is who the token is."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._letters = RemoteLetters(client)
        self._replay = RemoteReplays(client)

    @property
    def letters(self) -> RemoteLetters:
        return self._letters

    @property
    def replay(self) -> RemoteReplays:
        return self._replay

    async def look(
        self, text: str, by: By, *, reveal: bool = False, capture: bool = False
    ) -> Looked:
        letters = self._client.letters
        view = await letters.get(text, capture=capture)
        message = original = None
        if reveal:
            message = await letters.message(view.head.id)
            shown = view_message(message, reveal=True, capture=capture)
            view = structs.replace(view, message=shown)
        if message is not None and view.original is not None:
            original = await letters.original(view.head.id)
            view = structs.replace(
                view,
                original=view_message(original, reveal=True, capture=capture),
                differences=differences(original, message, reveal=True),
            )
        story = await letters.timeline(view.head.id)
        return Looked(
            view=view,
            moments=story.moments,
            left_out=story.left_out,
            message=message,
            original=original,
        )

    async def message(
        self, text: str, by: By, *, original: bool = False, shown: bool = True
    ) -> tuple[LetterHead, Message]:
        letters = self._client.letters
        head = (await letters.get(text)).head
        read = letters.original if original else letters.message
        return head, await read(head.id)

    async def edit(self, head: LetterHead, changes: Changes, by: By) -> LetterHead:
        edited = await self._client.letters.edit(
            head.id, changes, revision=head.revision, reason=by.reason
        )
        return edited.head

    async def plan(self, wish: Wish) -> Plan:
        return await self._replay.plan(wish)

    async def verdicts(self, wish: Wish) -> AsyncIterator[Sequence[LetterVerdict]]:
        async for some in self._replay.verdicts(wish):
            yield some

    async def begin(self, wish: Wish, *, hold: bool = False) -> Campaign:
        return await self._replay.begin(wish, hold=hold)

    async def resume(
        self,
        campaign_id: str,
        by: By,
        *,
        rate: float | None = None,
        take_over: bool = False,
    ) -> Campaign:
        return await self._replay.resume(
            campaign_id, by, rate=rate, take_over=take_over
        )

    async def outcomes(self, campaign_id: str, *, after: int = 0) -> ReplayItems:
        return await self._client.replays.report(campaign_id, after=after)

    async def confirm(self, message_ids: Sequence[str], by: By) -> Confirmed:
        return await self._client.replays.confirm(message_ids, reason=by.reason)

    async def groups(
        self,
        *,
        source: str | None = None,
        status: GroupStatus | None = None,
        everything: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        return await self._client.groups.list(
            source=source,
            status=status,
            everything=everything,
            limit=limit,
            after=after,
        )

    async def group(self, name: str) -> GroupLine:
        return await self._client.groups.get(name)

    async def variants(self, name: str) -> Variants:
        return await self._client.groups.variants(name)

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
        return await self._client.groups.say(
            name, status, owner=owner, until=until, version=version, reason=by.reason
        )

    async def merge_groups(self, into: str, others: Sequence[str], by: By) -> Regrouped:
        return await self._client.groups.merge(into, *others, reason=by.reason)

    async def split_group(self, name: str, query: str, by: By) -> Regrouped:
        return await self._client.groups.split(name, query, reason=by.reason)

    async def undo_grouping(self, name: str, by: By) -> Regrouped:
        return await self._client.groups.undo(name, reason=by.reason)

    async def group_rules(self) -> Sequence[RuleLine]:
        return await self._client.groups.rules()

    async def regroup(self, by: By) -> int:
        raise ConfigError(
            "a server moves letters to their groups by itself, within a minute: leave"
            " `dlq groups regroup` to it"
        )

    async def audit(self, target: str, *, limit: int) -> Sequence[AuditEntry]:
        return (await self._client.audit(target=target, limit=limit)).entries

    async def acts(self, after: int, limit: int) -> Sequence[AuditEntry]:
        # Of entries that are others' business a page may be short, and yet not the end.
        entries: list[AuditEntry] = []
        while len(entries) < limit:
            page = await self._client.audit(after=after, limit=limit - len(entries))
            entries += page.entries
            if page.after is None:
                break
            after = page.after
        return entries

    async def stats(self) -> Stats:
        return await self._client.stats()

    async def waiting(self) -> Sequence[Unsettled]:
        return (await self._client.stats()).unsettled

    async def queues(self) -> Sequence[QueueInfo]:
        return await self._client.queues.list()

    async def queue(self, name: str) -> QueueInfo:
        return await self._client.queues.get(name)

    async def outages(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> Sequence[Outage]:
        return await self._client.outages.list(
            mailbox=mailbox, only_open=only_open, limit=limit
        )

    async def release(self, mailbox: str, by: By) -> Released:
        return await self._client.outages.release(mailbox, reason=by.reason)

    async def create_queue(self, options: QueueOptions, by: By) -> None:
        await self._client.queues.create(options, reason=by.reason)

    async def update_queue(
        self, name: str, changes: dict[str, Any], by: By
    ) -> QueueOptions:
        return await self._client.queues.update(name, changes, reason=by.reason)

    async def delete_queue(self, name: str, by: By, *, force: bool = False) -> int:
        gone = await self._client.queues.delete(name, force=force, reason=by.reason)
        return gone.purged

    async def export(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        return await self._client.export(query, file, limit=limit, reason=by.reason)

    async def sheet(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        sheet = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            return await write_sheet(self._letters.select(query, limit=limit), sheet)
        finally:
            sheet.detach()

    async def take_in(
        self, file: BinaryIO, by: By, *, name: str, salvage: bool = False
    ) -> TakenIn:
        # Checked here as a whole, because a server sees one part of it at a time.
        checkup = checked(file, salvage=salvage)
        head = ArchiveHead(exported_at=datetime.now(UTC))
        take = partial(self._client.import_, archive=name, reason=by.reason)
        if not salvage:  # the server may reject what is fine to us
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
        return TakenIn(
            added=added, known=known, wrong=wrong, problems=tuple(problems[:MOST_NAMED])
        )
