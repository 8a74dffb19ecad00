"""Campaigns over the letters of a shelf."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain, islice

from msgspec import Struct, structs

from deadletter.core.audit import Examination, ItemSum
from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.core.errors import NotFound
from deadletter.core.letter import By
from deadletter.core.query.search_step import left_off_nowhere
from deadletter.core.replay_rules import FREES, UNFINISHED, SendOrder, is_out, send_order, take
from deadletter.core.seals import MASK, Marks, Start, item_changes
from deadletter.office.transactions.operations import Course
from deadletter.ports.letters import KeyProgress, ReplayItems

from .letters_shelf import OnShelf, Shelf


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

    def position(self) -> Course:
        """The position of the campaign, as transactions see it."""
        one = self.campaign
        return Course(
            self.seq,
            one.id,
            one.state,
            one.cap,
            one.actor,
            one.runs_as,
            len(self.items),
            keyed=True,
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
        """How far its keys have come."""
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
    """All campaigns of an office."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.courses: dict[str, CourseUnderWay] = {}

    def start(self, campaign: Campaign) -> None:
        """Write a campaign without letters, unless it exists."""
        if campaign.id not in self.courses:
            self.courses[campaign.id] = CourseUnderWay(
                seq=len(self.courses) + 1,
                campaign=structs.replace(campaign, counts={}),
                marks=self._shelf.sealing.marks(),
                sums=Counter(),
            )

    def add(self, campaign: Campaign, ids: Iterable[str]) -> int:
        """Add letters to a campaign, oldest sent first; return the number of new ones."""
        course = self.courses[campaign.id]
        there = {item.seq for item in course.items}
        new = [kept for kept in self.sent_order(ids) if kept.seq not in there]
        course.add(_chained(new, course, campaign))
        return len(new)

    def sent_order(self, ids: Iterable[str]) -> list[OnShelf]:
        """Letters, oldest sent first."""

        def order(kept: OnShelf) -> tuple[SendOrder, int]:
            letter = kept.letter
            return send_order(letter.message, letter.position), kept.seq

        return sorted(self._shelf.given(ids), key=order)

    def progress(self, campaign: str, limit: int) -> KeyProgress:
        """How far the keys of a campaign have come."""
        return self._course(campaign).progress(limit)

    def upcoming(self, campaign: str, limit: int) -> list[OnShelf]:
        """The next planned letters of a running campaign."""
        course = self._course(campaign)
        if course.campaign.state is not CampaignState.RUNNING:
            return []
        planned = (one for one in course.items if one.outcome is Outcome.PLANNED)
        coming = islice(chain(course.freed(), planned), limit)
        found = (self._shelf.by_seq.get(one.seq) for one in coming)
        return [kept for kept in found if kept is not None]

    def take(
        self,
        campaign: str,
        limit: int,
        leave_out: frozenset[str] | None,
        keys: int | None,
        now: datetime,
    ) -> list[OnShelf]:
        """Claim the next letters of a running campaign, the interrupted ones first."""
        course = self._course(campaign)
        if course.campaign.state is not CampaignState.RUNNING:
            return []
        taken: list[OnShelf] = []
        sending = [one for one in course.items if one.outcome is Outcome.SENDING]
        planned = [one for one in course.items if one.outcome is Outcome.PLANNED]
        coming = [*sending, *course.freed(), *planned[:keys]]
        for looked, item in enumerate(coming):
            if len(taken) == limit or (leave_out is not None and looked == limit):
                break
            taken += self._take(item, course, leave_out or (), now)
        course.finish()
        return taken

    def target(self, campaign: str) -> str | None:
        """Where its letters go, if not to where they died."""
        return self._course(campaign).campaign.to

    def sent(self, campaign: str, ids: Iterable[str], now: datetime) -> None:
        """The broker has the copies of these letters."""
        seqs = {kept.seq for kept in self._shelf.given(ids)}
        for item in self._course(campaign).items:
            if item.outcome is Outcome.SENDING and item.seq in seqs:
                item.become(Outcome.SENT)
                item.sent_at = now

    def generations(self, seq: int) -> list[int]:
        """Return the generations of the replays that a letter was taken for."""
        items = (item for course in self.courses.values() for item in course.items)
        return [one.generation for one in items if one.seq == seq and one.generation]

    def examine(self, examination: Examination) -> None:
        """Hand all campaigns and their items to whoever examines them."""
        for id_, course in self.courses.items():
            seq, key_id = course.seq, course.marks.key_id
            told = course.campaign
            start = Start(told.actor, told.reason, told.query)
            examination.add_campaign(seq, id_, start)
            for outcome, total in course.sums.items():
                examination.add_item_sum(ItemSum(seq, outcome, total, key_id))
            for item in course.items:
                examination.add_item(course.seq, item.seq, item.outcome)

    def rekey(self, campaigns: Collection[int]) -> None:
        """Make the sums of these campaigns anew with the first key."""
        for course in self.courses.values():
            if course.seq in campaigns:
                course.marks = self._shelf.sealing.marks()
                course.sums.clear()
                for item in course.items:
                    course.move(item.seq, None, item.outcome)

    def cap_of(self, kept: OnShelf) -> int | None:
        """The cap of the campaign that sent a letter out last."""
        for course in self.courses.values():
            for item in course.items:
                if item.seq == kept.seq and 0 < item.generation == kept.head.replays:
                    return course.campaign.cap
        return None

    def parts(self, ids: Iterable[str]) -> list[ReplayItem]:
        """Every part these letters had in campaigns, each letter's first to last."""
        return [
            _told(kept, course.campaign, item)
            for kept in self._shelf.given(ids)
            for course in self.courses.values()
            for item in course.items
            if item.seq == kept.seq
        ]

    def waiting_since(self) -> dict[str, datetime]:
        """When the copy was taken that each source has waited for longest."""
        found: dict[str, datetime] = {}
        for course in self.courses.values():
            for item in course.items:
                kept = self._shelf.by_seq.get(item.seq)
                if kept is None or item.taken_at is None:
                    continue
                head = kept.head
                if is_out(head.state, head.replays, item.generation):
                    before = found.get(head.source, item.taken_at)
                    found[head.source] = min(before, item.taken_at)
        return found

    def items(self, campaign: str, after: int, limit: int) -> ReplayItems:
        """What became of a campaign's letters, in the order they go."""
        course, end = self._course(campaign), after + limit
        return ReplayItems(
            tuple(
                _told(kept, course.campaign, item)
                for item in course.items[after:end]
                if (kept := self._shelf.by_seq.get(item.seq)) is not None
            ),
            end if end < len(course.items) else None,
        )

    def latest(
        self,
        limit: int,
        begins: str,
        only: CampaignState | None,
        owner: str | None,
        after: str | None,
    ) -> list[Campaign]:
        """Campaigns with their counts, latest first."""
        counted = [course.counted() for course in reversed(self.courses.values())]
        own = [one for one in counted if owner in (None, one.owner)]
        if after is not None:
            ids = [one.id for one in own]
            if after not in ids:
                raise left_off_nowhere(after)
            own = own[ids.index(after) + 1 :]
        found = (one for one in own if one.id.startswith(begins) and only in (None, one.state))
        return list(islice(found, limit))

    def _course(self, campaign: str) -> CourseUnderWay:
        if campaign not in self.courses:
            raise NotFound(f"there is no campaign {campaign}")
        return self.courses[campaign]

    def _take(
        self, item: Item, course: CourseUnderWay, leave_out: Collection[str], now: datetime
    ) -> list[OnShelf]:
        campaign, kept = course.campaign, self._shelf.by_seq.get(item.seq)
        if kept is None:
            item.settle(Outcome.SKIPPED, now)
            return []
        head = kept.head
        if item.outcome is Outcome.SENDING:
            if is_out(head.state, head.replays, item.generation):
                return [kept]
            item.settle(Outcome.SKIPPED, now)
            return []
        if head.id in leave_out:
            item.settle(Outcome.SKIPPED, now)
            return []
        outcome, state = take(head.state, head.replays, campaign.cap)
        if outcome is Outcome.SENDING:
            item.become(outcome)
            item.taken_at = now
            item.generation = head.replays + 1
            kept.change(state=state, replays=item.generation)
            return [kept]
        item.settle(outcome, now)
        if head.replays >= campaign.cap:
            course.hold_behind(item, now)
        if state is not head.state:
            kept.change(state=state)
            reason = f"replayed {campaign.cap} times, which is the cap"
            by = By(campaign.actor, reason)
            detail = f"by campaign {campaign.id}"
            self._shelf.record("quarantine", head.id, by, at=now, detail=detail)
        return []


def _chained(letters: Sequence[OnShelf], course: CourseUnderWay, campaign: Campaign) -> list[Item]:
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


def _told(kept: OnShelf, campaign: Campaign, item: Item) -> ReplayItem:
    return ReplayItem(
        letter_id=kept.head.id,
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
