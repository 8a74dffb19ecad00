"""
The office behind a server: the methods of `deadletter.Office` over HTTP.

The server knows the caller by the token. Of `by`, only the reason is sent.
"""

import asyncio
import io
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from msgspec import structs

from deadletter.core.campaign import Campaign, CampaignState, Unsettled, unsent, unsettled
from deadletter.core.errors import ConfigError
from deadletter.core.letter import AuditEntry, By, Changes, GroupStatus, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.query import show
from deadletter.core.query.ast import Node
from deadletter.office.archive import MOST_NAMED, ArchiveHead, read_letters, small_archives
from deadletter.office.archive_import import TakenIn, checked, taken_before
from deadletter.office.batches import PATIENCE as SEARCH_PATIENCE
from deadletter.office.batches import batched
from deadletter.office.diff import differences
from deadletter.office.exports import write_sheet
from deadletter.office.groups import GroupLine, GroupPage, Regrouped, RuleLine
from deadletter.office.letters import LetterCount, LetterDetails, Moved
from deadletter.office.mailboxes import Outage, Released
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdict, Plan
from deadletter.office.replay import Progress
from deadletter.office.replay_steps import PATIENCE
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import Chosen, ReplayPage
from deadletter.office.stats import Stats
from deadletter.office.variants import Variants
from deadletter.office.view import view_message
from deadletter.ports import Page, QueueInfo, QueueOptions, ReplayItems
from deadletter.wiring.foreign import server_label

from .letters import PAGE, Planned

if TYPE_CHECKING:
    from .client import Client

_NAMED: Final = 5_000  # letters in one request
_PORTION: Final = 2_000_000  # bytes of an archive in one request; or one letter


class RemoteLetters:
    """The letters of an office behind a server."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._letters = client.letters

    async def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page:
        """Return one page of letters, newest death first; `after` continues it."""
        heads: list[LetterHead] = []
        looked_at = 0
        until = time.monotonic() + SEARCH_PATIENCE.seconds
        while True:
            size = min(PAGE, limit - len(heads))
            page = await self._letters.search(query, limit=size, after=after)
            heads += page.heads
            looked_at += page.looked_at
            after = page.after
            is_enough = after is None or len(heads) >= limit
            if is_enough or looked_at >= SEARCH_PATIENCE.letters or time.monotonic() > until:
                there = None if is_enough else page.letters
                return Page(tuple(heads), after, looked_at, page.back_to, there)

    async def select(
        self, query: str, *, limit: int | None = None
    ) -> AsyncIterator[tuple[LetterHead, ...]]:
        """Iterate over all letters that a search finds, up to `limit`."""
        async for head in self._letters.all(query, limit=limit):
            yield (head,)

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """Return the ids of the letters that a search finds now, up to `limit`."""
        text = query if isinstance(query, str) else show(query)
        return [head.id async for head in self._letters.all(text, limit=limit)]

    async def count(self, query: str = "") -> LetterCount:
        """Count the letters that a search finds, as far as that is cheap."""
        return await self._letters.count(query)

    async def head(self, text: str) -> LetterHead:
        """Return the list entry of one letter, by its id or the beginning of it."""
        return (await self._letters.get(text)).head

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return (await self._client.stats()).sources

    async def details(
        self, text: str, by: By, *, reveal: bool = False, capture: bool = False
    ) -> LetterDetails:
        """Return one letter and its story; with `reveal` unmasked, which is recorded."""
        letters = self._letters
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
        return LetterDetails(
            view=view,
            moments=story.moments,
            left_out=story.left_out,
            message=message,
            original=original,
        )

    async def message(
        self, text: str, by: By, *, original: bool = False, shown: bool = True
    ) -> tuple[LetterHead, Message]:
        """Return the complete message of a letter; the server records it in the audit."""
        letters = self._letters
        head = (await letters.get(text)).head
        read = letters.original if original else letters.message
        return head, await read(head.id)

    async def edit(
        self, text: str, changes: Changes, by: By, *, revision: int | None = None
    ) -> LetterHead:
        """Change the message of an open letter; the original is kept."""
        if revision is None:
            head = await self.head(text)
            text, revision = head.id, head.revision
        edited = await self._letters.edit(text, changes, revision=revision, reason=by.reason)
        return edited.head

    async def review(self, ids: Iterable[str], by: By) -> Moved:
        """Mark pending letters as reviewed."""
        return await _in_batches(ids, lambda some: self._letters.review(some, reason=by.reason))

    async def close(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Close letters; with `unconfirmed` also those that wait for an outcome."""
        return await _in_batches(
            ids, lambda some: self._letters.close(some, reason=by.reason, unconfirmed=unconfirmed)
        )

    async def reopen(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Make letters pending again; `unconfirmed` as in `close`."""
        return await _in_batches(
            ids, lambda some: self._letters.reopen(some, reason=by.reason, unconfirmed=unconfirmed)
        )

    async def discard(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Discard letters; `unconfirmed` as in `close`."""
        return await _in_batches(
            ids, lambda some: self._letters.discard(some, reason=by.reason, unconfirmed=unconfirmed)
        )

    async def restore(self, ids: Iterable[str], by: By) -> Moved:
        """Make discarded letters pending again."""
        return await _in_batches(ids, lambda some: self._letters.restore(some, reason=by.reason))

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        """Add a note to letters."""
        return await _in_batches(ids, lambda some: self._letters.note(text, some))

    async def purge(self, ids: Iterable[str], by: By) -> Moved:
        """Delete letters permanently."""
        return await _in_batches(ids, lambda some: self._letters.purge(some, reason=by.reason))


async def _in_batches(
    ids: Iterable[str], act: Callable[[Sequence[str]], Awaitable[Moved]]
) -> Moved:
    asked = moved = 0
    skipped: Counter[str] = Counter()
    for some in batched(ids, _NAMED):
        part = await act(some)
        asked += part.asked
        moved += part.moved
        skipped.update(part.skipped)
    return Moved(asked=asked, moved=moved, skipped=dict(skipped))


class RemoteReplays:
    """
    The replays of an office behind a server. The server sends the letters.

    To judge letters the server records them as a planned replay. `forget` cancels the
    planned replays that nobody started.
    """

    def __init__(self, client: "Client") -> None:
        self._replays = client.replays
        self._planned: dict[str, tuple[ReplayRequest, Planned]] = {}

    def name_server(self, text: str) -> str:
        """Return the name; raises `ConfigError` for a URL, which a server never opens."""
        if "://" in text:
            raise ConfigError(
                f"--through {server_label(text)} is a URL: a server sends letters only"
                " through servers that its settings name. Give the NAME of [sources.NAME]"
            )
        return text

    async def check_server(self, request: ReplayRequest) -> None:
        """Do nothing: the server checks the letters when it plans the replay."""

    async def plan(self, request: ReplayRequest) -> Plan:
        """Return what a replay would do; the server keeps it as a planned replay."""
        return (await self._plan(request)).plan

    async def verdicts(self, request: ReplayRequest) -> AsyncIterator[Sequence[LetterVerdict]]:
        """Iterate over the verdict of each letter, some at a time."""
        left, after = request.limit, 0
        while True:
            page = await self._replays.judge(
                **_named(request.chosen),
                limit=left,
                to=request.to,
                cap=request.cap,
                care=request.care,
                through=request.through,
                after=after,
            )
            yield page.letters
            if left is not None:
                left -= sum(request.care.sends(one.verdict) for one in page.letters)
            if page.after is None or left == 0:
                return
            after = page.after

    async def begin(self, request: ReplayRequest, *, hold: bool = False) -> Campaign:
        """Start a replay, or with `hold` leave it planned."""
        replay = (await self._plan(request)).replay
        if not hold:
            replay = await self._replays.start(replay.id, reason=request.by.reason)
        del self._planned[replay.id]
        return replay

    async def forget(self) -> None:
        """Cancel the replays that were planned only to see their verdicts."""
        for id_ in self._planned:
            await self._replays.cancel(id_, reason="only planned, to look at it")

    async def run(
        self,
        campaign_id: str,
        *,
        rate: float | None = None,
        stop: asyncio.Event | None = None,
        on_progress: Progress | None = None,
        on_wait: Progress | None = None,
        patience: float = PATIENCE,
    ) -> Campaign:
        """Wait until the server has sent the rest of a replay, or `stop` is set."""
        left: int | None = None

        def is_over(now: Campaign) -> bool:
            nonlocal left
            sent = 0 if left is None else left - unsent(now)
            if on_progress is not None and sent:
                on_progress(sent)
            elif on_wait is not None and unsettled(now):
                on_wait(unsettled(now))
            left = unsent(now)
            stopped = stop is not None and stop.is_set()
            return stopped or not left or now.state is not CampaignState.RUNNING

        return await self._replays.watch(campaign_id, is_over)

    async def status(self, campaign_id: str) -> Campaign:
        """Return a replay and its counts, by its id or the beginning of it."""
        return await self._replays.get(campaign_id)

    async def page(self, *, limit: int = 20, after: str | None = None) -> ReplayPage:
        """Return replays with their counts, latest first; `after` continues a page."""
        return await self._replays.latest(limit=limit, after=after)

    async def pause(self, campaign_id: str, by: By) -> Campaign:
        """Stop sending until the replay is resumed."""
        return await self._replays.pause(campaign_id, reason=by.reason)

    async def resume(
        self, campaign_id: str, by: By, *, rate: float | None = None, take_over: bool = False
    ) -> Campaign:
        """Continue a replay; the server sends the rest, at the planned rate."""
        if rate is not None:
            raise ConfigError(
                "what a server sends keeps the rate it was planned with: leave --rate"
            )
        return await self._replays.resume(campaign_id, reason=by.reason, take_over=take_over)

    async def cancel(self, campaign_id: str, by: By) -> Campaign:
        """End a replay. Letters that were not sent keep their state."""
        return await self._replays.cancel(campaign_id, reason=by.reason)

    async def outcomes(self, campaign_id: str, *, after: int = 0) -> ReplayItems:
        """Return the outcomes of some letters, in sending order; `after` continues."""
        return await self._replays.report(campaign_id, after=after)

    async def confirm(self, message_ids: Sequence[str], by: By) -> Confirmed:
        """Confirm that consumers have handled messages that were sent back to them."""
        return await self._replays.confirm(message_ids, reason=by.reason)

    async def wait_confirmed(
        self,
        campaign_id: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- running out of it is an answer, not an error
        stop: asyncio.Event | None = None,
        on_look: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Wait until all sent letters have an outcome, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout

        def is_over(now: Campaign) -> bool:
            if on_look is not None:
                on_look(now)
            stopped = stop is not None and stop.is_set()
            return stopped or not unsettled(now) or time.monotonic() >= deadline

        return await self._replays.watch(campaign_id, is_over)

    async def _plan(self, request: ReplayRequest) -> Planned:
        for known, planned in self._planned.values():
            if known == request:
                return planned
        chosen, count = request.chosen, len(request.chosen.ids)
        found = bool(chosen.query)
        planned = await self._replays.plan(
            **_named(chosen),
            limit=request.limit,
            # Else somebody else was faster; a limit says how many anyway.
            expect=count if found and request.limit is None else None,
            to=request.to,
            rate=request.rate,
            cap=request.cap,
            care=request.care,
            through=request.through,
            reason=request.by.reason,
        )
        self._planned[planned.replay.id] = request, planned
        return planned


def _named(chosen: Chosen) -> dict[str, Any]:
    """Return how a request names letters; free words were allowed or refused before."""
    if chosen.query:
        return {"query": chosen.query, "free_text": True}
    return {"ids": chosen.ids}


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
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        """Return groups, those with most open letters first."""
        return await self._groups.list(
            source=source, status=status, everything=everything, limit=limit, after=after
        )

    async def get(self, name: str) -> GroupLine:
        """Return one group, by its fingerprint or the beginning of it."""
        return await self._groups.get(name)

    async def variants(self, name: str) -> Variants:
        """Return what the letters of a group have in common, and where they differ."""
        return await self._groups.variants(name)

    async def set_status(
        self,
        name: str,
        status: GroupStatus,
        by: By,
        *,
        owner: str | None = None,
        until: datetime | None = None,
        version: str = "",
    ) -> GroupLine:
        """Set the status of a group: resolve, snooze, mute or assign it."""
        return await self._groups.say(
            name, status, owner=owner, until=until, version=version, reason=by.reason
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
            "a server moves letters to their groups by itself, within a minute: leave"
            " `dlq groups regroup` to it"
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
        """Return the outages in which the brake held back mailboxes, latest first."""
        return await self._outages.list(mailbox=mailbox, only_open=only_open, limit=limit)

    async def release(self, mailbox: str, by: By) -> Released:
        """Open a mailbox again although the brake holds it back."""
        return await self._outages.release(mailbox, reason=by.reason)


class RemoteOffice:
    """The office behind a server."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.letters = RemoteLetters(client)
        self.groups = RemoteGroups(client)
        self.replays = RemoteReplays(client)
        self.mailboxes = RemoteMailboxes(client)

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """Return entries of the audit, oldest first."""
        # A page without entries of other callers may be short, and yet not the last.
        entries: list[AuditEntry] = []
        while len(entries) < limit:
            page = await self._client.audit(target=target, after=after, limit=limit - len(entries))
            entries += page.entries
            if page.after is None:
                break
            after = page.after
        return entries

    async def stats(self) -> Stats:
        """Return the numbers of messages and letters, and recent arrivals."""
        return await self._client.stats()

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
        return TakenIn(added=added, known=known, wrong=wrong, problems=tuple(problems[:MOST_NAMED]))
