"""Campaigns over the letters of a shelf."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice

from msgspec import Struct, structs

from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.core.letter import LetterHead, State
from deadletter.core.message import Message
from deadletter.core.query.search_step import left_off_nowhere
from deadletter.core.replay_rules import (
    FREES,
    UNFINISHED,
    Candidate,
    Going,
    Interrupted,
    SendOrder,
    is_out,
    send_order,
)
from deadletter.core.seals import MASK, ItemMoves, Marks, item_changes
from deadletter.office.transactions.operations import (
    CampaignFilter,
    CampaignPosition,
    ReplayedCopy,
    Shifts,
)
from deadletter.ports.letters import KeyProgress, ReplayItems, ReplayNext

from .letter_table import LetterTable, StoredLetter


class Item(Struct, kw_only=True):
    """One letter's part in one campaign."""

    course: "CourseUnderWay"
    seq: int  # of the letter, also after it is purged
    follows: int | None = None  # the letter of its key before it
    head: int | None = None  # the first letter of its key
    generation: int = 0
    outcome: Outcome = Outcome.PLANNED
    taken_at: datetime | None = None
    sent_at: datetime | None = None
    settled_at: datetime | None = None
    confirmed_at: datetime | None = None
    why: str = ""

    def become(self, outcome: Outcome) -> None:
        """Have another outcome from now on, and the campaign's sum with it."""
        self.course.move(self.seq, self.outcome, outcome)
        self.outcome = outcome

    def settle(self, outcome: Outcome, now: datetime, why: str = "") -> None:
        """This is what became of it."""
        self.why = why
        if self.outcome is Outcome.CONFIRMED:
            self.confirmed_at = self.settled_at
        self.become(outcome)
        self.settled_at = now


class CourseUnderWay(Struct, kw_only=True):
    """A campaign under way."""

    seq: int
    campaign: Campaign
    marks: Marks  # that its sum is made of
    sums: Counter[Outcome]
    items: list[Item] = []
    slices: dict[int, str] = {}  # of its kept plan, by place

    def position(self) -> CampaignPosition:
        """The position of the campaign, as transactions see it."""
        one, size = self.campaign, len(self.items)
        return CampaignPosition(
            self.seq,
            one.id,
            one.state,
            one.cap,
            one.actor,
            one.runs_as,
            size,
            keyed=True,
            taken=0,
            free=size,
            to=one.to,
        )

    def move(self, letter: int, old: Outcome | None, new: Outcome) -> None:
        """Note in the sum that a letter has another outcome."""
        moves = {(self.seq, old, new): [letter]}
        for _, outcome, _, more, _ in item_changes(moves, lambda *_: self.marks):
            self.sums[outcome] = (self.sums[outcome] + more) & MASK

    def add(self, items: Sequence[Item]) -> None:
        """Add items."""
        self.items += items
        for item in items:
            self.move(item.seq, None, item.outcome)

    def finish(self) -> None:
        """End it if it runs and there is nothing left to wait for."""
        if self.campaign.state is CampaignState.RUNNING and not any(
            item.outcome in UNFINISHED for item in self.items
        ):
            self.campaign = structs.replace(self.campaign, state=CampaignState.DONE)

    def freed(self) -> list[Item]:
        """Waiting items whose turn has come: the one before each has ended."""
        ended = {one.seq for one in self.items if one.outcome in FREES}
        return [
            one for one in self.items if one.outcome is Outcome.WAITING and one.follows in ended
        ]

    def hold_behind(self, item: Item, now: datetime) -> None:
        """Hold back what waits behind an item that was not handled."""
        seqs = {item.seq}
        for one in self.items:
            if one.outcome is Outcome.WAITING and one.follows in seqs:
                seqs.add(one.seq)
                one.settle(Outcome.HELD, now)

    def progress(self, limit: int) -> KeyProgress:
        """Return how far its keys have come."""
        planned = [one.seq for one in self.items if one.outcome is Outcome.PLANNED]
        waiting = Counter(one.head for one in self.items if one.outcome is Outcome.WAITING)
        return KeyProgress(
            waiting.total() - sum(waiting[seq] for seq in planned),
            tuple(1 + waiting[seq] for seq in planned[:limit]),
        )

    def counted(self) -> Campaign:
        """The campaign with its counts."""
        counts: dict[Outcome, int] = {}
        for item in self.items:
            counts[item.outcome] = counts.get(item.outcome, 0) + 1
        return structs.replace(self.campaign, counts=counts)


class Campaigns:
    """All campaigns of an office; transactions use it as their operations."""

    def __init__(self, shelf: LetterTable) -> None:
        self._shelf = shelf
        self.courses: dict[str, CourseUnderWay] = {}

    async def find_campaign(self, id: str) -> CampaignPosition | None:
        """Return the position of a campaign."""
        course = self.courses.get(id)
        return None if course is None else course.position()

    async def start_campaign(self, campaign: Campaign) -> None:
        """Write a campaign without letters, unless it exists."""
        if campaign.id not in self.courses:
            self.courses[campaign.id] = CourseUnderWay(
                seq=len(self.courses) + 1,
                campaign=structs.replace(campaign, counts={}),
                marks=self._shelf.sealing.marks(),
                sums=Counter(),
            )

    async def set_campaign(
        self, course: CampaignPosition, state: CampaignState, runs_as: str
    ) -> None:
        """Write another state of a campaign, and the principal that it runs as."""
        under_way = self.courses[course.id]
        under_way.campaign = structs.replace(under_way.campaign, state=state, runs_as=runs_as)

    async def rewrite_campaign(self, course: CampaignPosition, campaign: Campaign) -> None:
        """Write the precautions, the plan and the approval of a campaign."""
        under_way = self.courses[course.id]
        under_way.campaign = structs.replace(
            under_way.campaign,
            care=campaign.care,
            plan=campaign.plan,
            approved_by=campaign.approved_by,
        )

    async def write_slices(self, course: CampaignPosition, slices: Mapping[int, str]) -> None:
        """Write slices of a kept plan by their place, new or again."""
        self.courses[course.id].slices |= slices

    async def find_slices(self, course: CampaignPosition, first: int, limit: int) -> list[str]:
        """Return slices of a kept plan in order, from the place `first` on."""
        there = self.courses[course.id].slices
        return [there[place] for place in range(first, first + limit) if place in there]

    async def finish_campaigns(self, campaigns: Collection[int]) -> None:
        """End running campaigns that have nothing left to wait for."""
        for seq in campaigns:
            self._course(seq).finish()

    async def plan_items(
        self, course: CampaignPosition, campaign: Campaign, ids: Sequence[str]
    ) -> int:
        """Add letters to a campaign, oldest sent first; return the number of new ones."""
        under_way = self.courses[campaign.id]
        there = {item.seq for item in under_way.items}
        new = [kept for kept in self._ordered(ids) if kept.seq not in there]
        under_way.add(_chained(new, under_way, campaign))
        return len(new)

    async def sent_order(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of letters that exist, oldest sent first."""
        return [kept.head.id for kept in self._ordered(ids)]

    # Replays

    async def find_sending(
        self, course: CampaignPosition, behind: int, limit: int
    ) -> list[Interrupted]:
        """Return items that are `sending`, by ordinal, from the one behind `behind` on."""
        found = []
        for ordinal, item in self._items(course, Outcome.SENDING, behind + 1)[:limit]:
            head = self._head(item)
            state, replays = (head.state, head.replays) if head else (None, 0)
            found.append(Interrupted(ordinal, item.seq, item.generation, state, replays))
        return found

    async def find_plan(self, course: CampaignPosition, place: int, limit: int) -> Sequence[int]:
        """Return the ordinals of the next planned items, from `place` on."""
        return [ordinal for ordinal, _ in self._items(course, Outcome.PLANNED, place)[:limit]]

    async def free_items(self, course: CampaignPosition, limit: int) -> Sequence[int]:
        """Plan letters whose turn by key has come; return their ordinals."""
        under_way = self.courses[course.id]
        freed = {item.seq for item in under_way.freed()[:limit]}
        ordinals = [n for n, item in enumerate(under_way.items) if item.seq in freed]
        for ordinal in ordinals:
            under_way.items[ordinal].become(Outcome.PLANNED)
        return ordinals

    async def find_candidates(
        self, course: CampaignPosition, ordinals: Sequence[int], *, bodies: bool
    ) -> list[Candidate]:
        """Return the letters of items, in order; purged ones are missing."""
        items = self.courses[course.id].items
        found = [(ordinal, self._shelf.by_seq.get(items[ordinal].seq)) for ordinal in ordinals]
        return [
            Candidate(*(*structs.astuple(kept.brief()), ordinal, kept.letter.message))
            for ordinal, kept in found
            if kept is not None
        ]

    async def find_messages(
        self, course: CampaignPosition, letters: Sequence[Candidate]
    ) -> list[Message]:
        """Return the messages of letters."""
        return [one.contents for one in letters]

    async def take_items(
        self, course: CampaignPosition, going: Going, outcome: Outcome, now: datetime
    ) -> None:
        """Write that letters are out, with their next generation."""
        items = self.courses[course.id].items
        for one in going.letters:
            item = items[one.ordinal]
            item.become(outcome)
            item.taken_at, item.generation = now, one.replays + 1
            kept = self._shelf.by_seq[one.seq]
            kept.change(state=State.REPLAYING, replays=item.generation)

    async def count_taken(self, shifts: Shifts, moves: ItemMoves) -> None:
        """Change nothing: letters are counted when somebody asks."""

    async def skip_items(
        self, course: CampaignPosition, ordinals: Sequence[int], before: Outcome, now: datetime
    ) -> list[int]:
        """Write that items are skipped; return the numbers of their letters."""
        await self.settle_items(course.seq, ordinals, Outcome.SKIPPED, now)
        items = self.courses[course.id].items
        return [items[ordinal].seq for ordinal in ordinals]

    async def advance(self, course: CampaignPosition, taken: int, sending: Sequence[int]) -> None:
        """End a campaign if nothing is left to wait for; outcomes say how far it has come."""
        self.courses[course.id].finish()

    async def mark_sent(
        self, campaign: str, ids: Sequence[str], now: datetime
    ) -> tuple[int, list[int]] | None:
        """Write that the broker has copies; return the numbers of campaign and letters."""
        if campaign not in self.courses:
            return None
        course = self.courses[campaign]
        seqs = {kept.seq for kept in self._shelf.given(ids)}
        sent = [one for one in course.items if one.seq in seqs and one.outcome is Outcome.SENDING]
        for item in sent:
            item.become(Outcome.SENT)
            item.sent_at = now
        return course.seq, [item.seq for item in sent]

    async def find_copies(self, copies: Collection[tuple[str, int]]) -> list[ReplayedCopy]:
        """Return copies by letter id and generation."""
        return [
            ReplayedCopy(
                kept.brief(),
                item.generation,
                course.seq,
                ordinal,
                item.outcome,
                course.campaign.cap,
                keyed=True,
            )
            for kept in self._shelf.given([id_ for id_, _ in copies])
            for course in self.courses.values()
            for ordinal, item in enumerate(course.items)
            if item.seq == kept.seq and (kept.head.id, item.generation) in copies
        ]

    async def settle_items(
        self, campaign: int, ordinals: Sequence[int], outcome: Outcome, now: datetime
    ) -> None:
        """Write the outcome of items, and the sum of their campaign."""
        items = self._course(campaign).items
        for ordinal in ordinals:
            items[ordinal].settle(outcome, now)

    async def explain_items(self, reasons: Sequence[tuple[str, int, int]]) -> None:
        """Write why items were refused: text, campaign and ordinal of each."""
        for reason, campaign, ordinal in reasons:
            self._course(campaign).items[ordinal].why = reason

    async def count_items(self, moves: ItemMoves) -> None:
        """Change nothing: whoever changes an outcome keeps the sums."""

    async def free_waiting(self, campaign: int, letters: Sequence[int]) -> None:
        """Change nothing: outcomes say which letters may go."""

    async def hold_waiting(self, campaign: int, letters: Sequence[int], now: datetime) -> None:
        """Hold all letters back that wait behind these letters by their key."""
        course = self._course(campaign)
        for item in [item for item in course.items if item.seq in letters]:
            course.hold_behind(item, now)

    async def find_next(self, course: CampaignPosition, limit: int) -> list[ReplayNext]:
        """Return the next letters of a campaign, those whose turn by key has come first."""
        planned = (item for _, item in self._items(course, Outcome.PLANNED))
        coming = islice(chain(self.courses[course.id].freed(), planned), limit)
        return [
            ReplayNext(head.id, head.source, head.business_key or head.message_id, head.replays)
            for head in map(self._head, coming)
            if head is not None
        ]

    async def find_progress(self, course: CampaignPosition, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        return self.courses[course.id].progress(limit)

    async def find_items(
        self,
        course: CampaignPosition,
        after: int,
        limit: int,
        outcomes: frozenset[Outcome] | None = None,
    ) -> ReplayItems:
        """Return items of a campaign, in the order they go; with `outcomes`, only of these."""
        under_way, end = self.courses[course.id], after + limit
        if outcomes is not None:
            items = enumerate(under_way.items)
            found = [(n, item) for n, item in items if n >= after and item.outcome in outcomes]
            return ReplayItems(
                tuple(
                    _told(head, under_way.campaign, item)
                    for _, item in found[:limit]
                    if (head := self._head(item)) is not None
                ),
                found[limit][0] if len(found) > limit else None,
            )
        return ReplayItems(
            tuple(
                _told(head, under_way.campaign, item)
                for item in under_way.items[after:end]
                if (head := self._head(item)) is not None
            ),
            end if end < len(under_way.items) else None,
        )

    async def find_replays(self, ids: Sequence[str]) -> list[ReplayItem]:
        """Return every part that letters had in campaigns, each letter's first to last."""
        return [
            _told(kept.head, course.campaign, item)
            for kept in self._shelf.given(ids)
            for course in self.courses.values()
            for item in course.items
            if item.seq == kept.seq
        ]

    async def find_campaigns(self, wanted: CampaignFilter) -> list[Campaign]:
        """Return campaigns with their counts, latest first."""
        counted = [course.counted() for course in reversed(self.courses.values())]
        own = [one for one in counted if wanted.owner in (None, one.owner)]
        if wanted.after is not None:
            ids = [one.id for one in own]
            if wanted.after not in ids:
                raise left_off_nowhere(wanted.after)
            own = own[ids.index(wanted.after) + 1 :]
        found = (
            one
            for one in own
            if one.id.startswith(wanted.begins) and wanted.only in (None, one.state)
        )
        return list(islice(found, wanted.limit))

    async def waiting_since(self) -> dict[str, datetime]:
        """Return when the copy was taken that each source has waited for longest."""
        found: dict[str, datetime] = {}
        for item in chain.from_iterable(course.items for course in self.courses.values()):
            head = self._head(item)
            if head is None or item.taken_at is None:
                continue
            if is_out(head.state, head.replays, item.generation):
                before = found.get(head.source, item.taken_at)
                found[head.source] = min(before, item.taken_at)
        return found

    # For the office as a whole

    def generations(self, seq: int) -> list[int]:
        """Return the generations of the replays that a letter was taken for."""
        items = (item for course in self.courses.values() for item in course.items)
        return [one.generation for one in items if one.seq == seq and one.generation]

    def rekey(self, campaigns: Collection[int]) -> None:
        """Make the sums of these campaigns anew with the first key."""
        for course in self.courses.values():
            if course.seq in campaigns:
                course.marks = self._shelf.sealing.marks()
                course.sums.clear()
                for item in course.items:
                    course.move(item.seq, None, item.outcome)

    def cap_of(self, kept: StoredLetter) -> int | None:
        """The cap of the campaign that sent a letter out last."""
        for course in self.courses.values():
            for item in course.items:
                if item.seq == kept.seq and 0 < item.generation == kept.head.replays:
                    return course.campaign.cap
        return None

    def _ordered(self, ids: Iterable[str]) -> list[StoredLetter]:
        def order(kept: StoredLetter) -> tuple[SendOrder, int]:
            letter = kept.letter
            return send_order(letter.message, letter.position), kept.seq

        return sorted(self._shelf.given(ids), key=order)

    def _items(
        self, course: CampaignPosition, outcome: Outcome, first: int = 0
    ) -> list[tuple[int, Item]]:
        items = enumerate(self.courses[course.id].items)
        return [(n, item) for n, item in items if n >= first and item.outcome is outcome]

    def _head(self, item: Item) -> LetterHead | None:
        kept = self._shelf.by_seq.get(item.seq)
        return None if kept is None else kept.head

    def _course(self, seq: int) -> CourseUnderWay:
        (found,) = (one for one in self.courses.values() if one.seq == seq)
        return found


def _chained(
    letters: Sequence[StoredLetter], course: CourseUnderWay, campaign: Campaign
) -> list[Item]:
    """New items; those behind another of their key wait for it."""
    last: dict[tuple[str, str], Item] = {}
    items: list[Item] = []
    for kept in letters:
        item = Item(course=course, seq=kept.seq)
        items.append(item)
        if not campaign.care.key_order or kept.head.key is None:
            continue
        key = (campaign.to or kept.head.source, kept.head.key)
        if key in last:
            before = last[key]
            item.follows, item.outcome = before.seq, Outcome.WAITING
            item.head = before.seq if before.head is None else before.head
        last[key] = item
    return items


def _told(head: LetterHead, campaign: Campaign, item: Item) -> ReplayItem:
    return ReplayItem(
        letter_id=head.id,
        campaign=campaign.id,
        actor=campaign.actor,
        reason=campaign.reason,
        to=campaign.to,
        generation=item.generation,
        outcome=item.outcome,
        taken_at=item.taken_at,
        sent_at=item.sent_at,
        settled_at=item.settled_at,
        confirmed_at=item.confirmed_at,
        why=item.why,
    )
