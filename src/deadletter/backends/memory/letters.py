"""
The office in memory, as simply as it can be said.

It is what other offices are compared with, so it prefers being obviously right
to being fast.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from deadletter.core.brake_window import KEPT, BrakeWindow, Release
from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.core.chain import Ends
from deadletter.core.editing import no_letter
from deadletter.core.errors import ConfigError
from deadletter.core.examination import Examination, Examined, Sums, renewed
from deadletter.core.group_limit import GroupLimit
from deadletter.core.grouping import Asked, blanked, check_standing, said
from deadletter.core.keeping import (
    Known,
    check_expiry,
    check_purge,
    failed_copies,
    file,
    reopened,
)
from deadletter.core.letter import (
    AuditEntry,
    By,
    DeadLetter,
    Group,
    GroupStatus,
    LetterHead,
    Standing,
    State,
    sources_of,
)
from deadletter.core.message import Message
from deadletter.core.paging import cursor, place
from deadletter.core.query import (
    EVERYTHING,
    Meter,
    Node,
    matcher,
    needs_contents,
    with_versions,
)
from deadletter.core.query.contents import LOOK
from deadletter.core.regrouping import GroupRule, Regrouping, told
from deadletter.core.replaying import check_news
from deadletter.core.seals import Sealing
from deadletter.ports.features import Durability, Features
from deadletter.ports.letters import (
    Kept,
    KeyProgress,
    Move,
    Page,
    ReplayItems,
    ReplayNext,
    ReplaySettled,
    ReplayTaken,
    Resealed,
    given_up,
)
from deadletter.ports.time import Clock, Dice

from .letters_campaigns import Campaigns
from .letters_edit import edit
from .letters_shelf import OnShelf, Shelf


class MemoryLetters:
    """Where dead letters are kept, searched, grouped, reviewed: this process."""

    def __init__(self, *, clock: Clock, dice: Dice) -> None:
        self.features = Features(
            engine="memory", durability=Durability.NONE, shared=False
        )
        self.group_limit = GroupLimit()
        self._clock = clock
        self._shelf = Shelf()
        self._campaigns = Campaigns(self._shelf)
        self._signing_key = b""
        self._windows: dict[str, BrakeWindow] = {}

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """Keep letters, all of them or none."""
        now = self._clock.now()
        letters = self._shelf.limited(letters, self.group_limit, now)
        filed = file(letters, self._look_up)
        for one in filed:
            self._shelf.put(one)
        self._shelf.regress([one.letter.head for one in filed if one.died], now)
        self._shelf.audit(reopened(filed, now))
        self._campaigns.settle(
            [
                ReplaySettled(copy.letter_id, copy.generation, Outcome.FAILED)
                for copy in failed_copies(filed)
            ],
            now,
        )
        return [
            Kept(one.id, is_new=one.before is None, conflict=one.conflict)
            for one in filed
        ]

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""
        there = self._shelf.by_id
        return [there[id_].whole() for id_ in ids if id_ in there]

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""
        if limit < 1:
            raise ConfigError(f"a page of {limit} letters: ask for at least one")
        start = None if after is None else place(after)
        query = with_versions(query, self._shelf.versions)
        fulfils = matcher(query, now=self._clock.now())
        opens = needs_contents(query)
        meter = Meter(self._clock.monotonic)
        heads: list[LetterHead] = []
        looked_at, here = 0, None
        for kept in self._shelf.newest_first():
            behind = (kept.head.dead_at, kept.seq)
            if start is not None and behind >= start:
                continue
            is_spent = looked_at == meter.budget.letters or (here and meter.is_spent)
            if here is not None and (len(heads) == limit or is_spent):
                return Page(tuple(heads), cursor(*here), looked_at, here[0])
            looked_at, here = looked_at + 1, behind
            if fulfils(kept.whole()):
                heads.append(kept.head)
            if opens:
                meter.opened(min(kept.head.size, LOOK))
                await asyncio.sleep(0)  # others go on between two letters
        return Page(tuple(heads), None, looked_at)

    async def counts(self) -> dict[str, dict[State, int]]:
        """How many letters of each state, by source."""
        return self._shelf.counts()

    async def groups(
        self,
        *,
        source: str | None = None,
        only_open: bool = True,
        statuses: frozenset[GroupStatus] | None = None,
        named: str = "",
        largest_first: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Group]:
        """Groups of like failures, latest or largest first."""
        asked = Asked(
            source=source,
            only_open=only_open,
            statuses=statuses,
            named=named,
            largest_first=largest_first,
            after=after,
            limit=limit,
            now=self._clock.now(),
        )
        return self._shelf.listed(asked)

    async def set_group(self, fingerprint: str, standing: Standing, by: By) -> None:
        """Say how a group stands, audited."""
        check_standing(standing)
        detail = said(self._shelf.stand(fingerprint, standing), standing)
        self._audit("group", fingerprint, by, detail)

    async def regroup(self, moves: Sequence[Regrouping], by: By) -> int:
        """Move letters to other groups, audited; how many moved."""
        total = 0
        for one in moves:
            if moved := self._shelf.regroup(one):
                self._audit("regroup", one.old, by, told(moved, one))
                total += moved
        return total

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return dict(self._shelf.rules)

    async def set_group_rules(
        self, fingerprint: str, rules: Sequence[GroupRule], by: By, detail: str
    ) -> None:
        """Say where letters of a group belong from now on, audited."""
        self._shelf.rules.pop(fingerprint, None)
        if rules:
            self._shelf.rules[fingerprint] = tuple(rules)
        self._audit("regroup-rule", fingerprint, by, detail)

    async def move(self, move: Move, by: By) -> Sequence[str]:
        """Move letters between states, audited; the ids of those that moved."""
        allowed = move.old & sources_of(move.new)
        moved: list[tuple[str, State, int]] = []
        for kept in self._shelf.given(move.ids):
            old = kept.head.state
            if old in allowed:
                kept.change(state=move.new)
                self._audit("move", kept.head.id, by, f"{old} to {move.new}")
                moved.append((kept.head.id, old, kept.head.replays))
        self._campaigns.settle(given_up(moved), self._clock.now())
        return [id_ for id_, *_ in moved]

    async def note(self, ids: Sequence[str], text: str, by: By) -> Sequence[str]:
        """Write a note on letters; the ids of those that exist."""
        found = [kept.head.id for kept in self._shelf.given(ids)]
        for id_ in found:
            self._audit("note", id_, by, text)
        return found

    async def edit(self, id: str, message: Message, *, revision: int, by: By) -> int:
        """Put another message into a letter, audited; its new revision."""
        kept = self._shelf.by_id.get(id)
        if kept is None:
            raise no_letter(id)
        self._audit("edit", id, by, edit(kept, message, revision, self._shelf.sealing))
        return kept.head.revision

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""
        kept = self._shelf.by_id.get(id)
        return None if kept is None else kept.letter.original

    async def purge(self, ids: Sequence[str], by: By) -> Sequence[str]:
        """Delete letters for good, counted and audited; the ids of those gone."""
        found = self._shelf.given(ids)
        for kept in found:
            check_purge(kept.head.id, kept.head.state)
        self._delete(found, "purge", by)
        return [kept.head.id for kept in found]

    async def expire(
        self, *, before: dict[State, datetime], by: By, limit: int = 1000
    ) -> int:
        """Delete up to `limit` letters of finished states that died before then."""
        check_expiry(before)
        oldest_first = list(reversed(self._shelf.newest_first()))
        overdue = [
            kept
            for state, time in before.items()
            for kept in oldest_first
            if kept.head.state is state and kept.head.dead_at < time
        ][:limit]
        self._delete(overdue, "expire", by)
        return len(overdue)

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""
        found = [
            entry
            for entry in self._shelf.entries[after:]
            if target in {None, entry.target}
        ]
        return found[:limit]

    async def record(self, action: str, target: str, by: By, detail: str = "") -> None:
        """Write an act on something other than a letter into the audit."""
        self._audit(action, target, by, detail)

    async def verify(self) -> Sequence[str]:
        """What does not add up in here, one sentence each; nothing when all is well."""
        return list((await self.examine()).findings)

    @property
    def sealing(self) -> Sealing:
        """What letters and the audit are sealed with."""
        return self._shelf.sealing

    async def examine(self) -> Examined:
        """Examine everything that is kept: what was found, what could not be seen."""
        shelf, campaigns = self._shelf, self._campaigns
        examination = Examination(shelf.sealing, shelf.sums)
        tally = shelf.tally
        present = tally["kept"] - tally["purged"] - tally["expired"]
        if present != len(shelf.by_id):
            examination.find(
                f"{len(shelf.by_id)} letters are there instead of {present}"
            )
        for kept in shelf.by_id.values():
            examination.count_letter(kept.head.id)
            examination.add(kept.sealed(campaigns.generations(kept.seq)))
        campaigns.examine(examination)
        examination.chain.add(shelf.entries)
        last = shelf.entries[-1] if shelf.entries else None
        ends = Ends(
            last.seq if last else 0,
            last.hash if last else "",
            tally["purged"],
            tally["expired"],
        )
        totals = {name: group.total for name, group in shelf.groups.items()}
        examination.compare(ends, totals)
        return examination.result()

    async def reseal(self, after: str = "") -> Resealed:
        """Seal letters that have no seal, or not by the first key; all of them."""
        shelf, campaigns = self._shelf, self._campaigns
        examination = Examination(shelf.sealing, shelf.sums)
        for id_ in shelf.by_id:
            examination.count_letter(id_)
        campaigns.examine(examination)
        totals = {name: group.total for name, group in shelf.groups.items()}
        outdated = examination.outdated(totals)
        if outdated.letters:
            shelf.sums = Sums(0, 0, 0)
            shelf.note_letters(dict.fromkeys(shelf.by_id, 1))
            shelf.note_deaths(totals)
        fitting = Counter(one.campaign for one in outdated.items)
        campaigns.rekey(
            [
                seq
                for seq, n in fitting.items()
                if n == len(examination.item_sums_of(seq))
            ]
        )
        sealed = 0
        for kept in shelf.by_id.values():
            letter = kept.sealed(campaigns.generations(kept.seq))
            new = renewed(letter, shelf.sealing)
            if new is not None:
                kept.seal, kept.story_seal, kept.original_seal = new
                sealed += 1
        return Resealed(sealed)

    async def plan_replay(self, campaign: Campaign, ids: Sequence[str]) -> None:
        """Start a campaign over these letters, or add them to it; audited."""
        self._campaigns.plan(campaign, ids, self._clock.now())

    async def sent_order(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of letters that exist, oldest sent first."""
        return [kept.head.id for kept in self._campaigns.sent_order(ids)]

    async def next_replay(self, campaign: str, *, limit: int) -> Sequence[ReplayNext]:
        """Return the next planned letters of a running campaign, claiming nothing."""
        return [
            ReplayNext(
                head.id, head.source, head.business_key or head.message_id, head.replays
            )
            for head in (
                kept.head for kept in self._campaigns.upcoming(campaign, limit)
            )
        ]

    async def key_progress(self, campaign: str, *, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        return self._campaigns.progress(campaign, limit)

    async def take_replay(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Sequence[ReplayTaken]:
        """Claim the next letters of a running campaign: they are `replaying` now."""
        taken = self._campaigns.take(
            campaign, limit, leave_out, keys, self._clock.now()
        )
        return [
            ReplayTaken(
                kept.head.id, kept.head.source, kept.letter.message, kept.head.replays
            )
            for kept in taken
        ]

    def target_of(self, campaign: str) -> str | None:
        """Where a campaign's letters go, if not to where they died."""
        return self._campaigns.target(campaign)

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """The broker has the copies of these letters."""
        self._campaigns.sent(campaign, ids, self._clock.now())

    async def settle_replays(self, outcomes: Sequence[ReplaySettled]) -> None:
        """What consumers made of replayed copies; late news of old ones is ignored."""
        check_news(one.outcome for one in outcomes)
        self._campaigns.settle(outcomes, self._clock.now())

    async def campaign_items(
        self, campaign: str, *, after: int = 0, limit: int = 100
    ) -> ReplayItems:
        """What became of a campaign's letters, in the order they go."""
        return self._campaigns.items(campaign, after, limit)

    async def campaigns(
        self,
        *,
        limit: int = 20,
        begins: str = "",
        only: CampaignState | None = None,
        owner: str | None = None,
        after: str | None = None,
    ) -> Sequence[Campaign]:
        """Campaigns with their counts, latest first."""
        return self._campaigns.latest(limit, begins, only, owner, after)

    async def waiting_since(self) -> dict[str, datetime]:
        """When the copy was taken that each source has waited for longest."""
        return self._campaigns.waiting_since()

    async def replays(self, ids: Sequence[str]) -> Sequence[ReplayItem]:
        """Every part these letters had in campaigns, each letter's first to last."""
        return self._campaigns.parts(ids)

    async def set_campaign(self, campaign: str, state: CampaignState, by: By) -> None:
        """Pause, resume, cancel or end a campaign."""
        self._campaigns.change(campaign, state, by, self._clock.now())

    async def save_window(
        self, window: BrakeWindow, *, keep: int = KEPT
    ) -> BrakeWindow:
        """Write down how a brake's window stands; return it with its release."""
        known = self._windows.get(window.id)
        release = known.release if known is not None else None
        kept = self._windows[window.id] = structs.replace(window, release=release)
        for oldest in sorted(self._windows)[:-keep]:
            del self._windows[oldest]
        return kept

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Windows of all mailboxes or one, the latest opening first."""
        found = sorted(self._windows.values(), key=lambda one: one.id, reverse=True)
        return [one for one in found if mailbox in (None, one.mailbox)][:limit]

    async def release_windows(self, mailbox: str, by: By) -> int:
        """Release a mailbox's windows that are not closed, audited; how many."""
        release = Release(by.actor, by.reason, self._clock.now())
        found = [
            one
            for one in self._windows.values()
            if one.mailbox == mailbox and one.closed_at is None
        ]
        for one in found:
            self._windows[one.id] = structs.replace(one, release=release)
        if found:
            self._audit("release-brake", mailbox, by, "")
        return len(found)

    async def signing_key(self, new: bytes) -> bytes:
        """Return the key that this office signs with."""
        self._signing_key = self._signing_key or new
        return self._signing_key

    def _look_up(self, ids: Iterable[str]) -> Mapping[str, Known]:
        return {
            kept.head.id: structs.replace(kept.known, cap=self._campaigns.cap_of(kept))
            for kept in self._shelf.given(ids)
        }

    def _delete(self, letters: Sequence[OnShelf], action: str, by: By) -> None:
        self._shelf.remove(letters, f"{action}d")
        for kept in letters:  # the fact is kept, not the content
            self._audit(action, kept.head.id, by, f"was {kept.head.state}")
        for name in self._shelf.blank({kept.head.fingerprint for kept in letters}):
            self._shelf.audit([blanked(name, by, at=self._clock.now())])

    def _audit(self, action: str, target: str, by: By, detail: str) -> None:
        self._shelf.record(action, target, by, at=self._clock.now(), detail=detail)
