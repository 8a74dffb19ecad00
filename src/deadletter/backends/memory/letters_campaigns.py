"""Campaigns over the letters of a shelf."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

from msgspec import Struct, structs

from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.core.paging import left_off_nowhere
from deadletter.core.replaying import (
    SETTLED_FROM,
    UNFINISHED,
    check_change,
    heard,
    is_out,
    landing,
    runs_as,
    take,
)
from deadletter.ports.letters import ReplayItems, ReplaySettled

from .letters_shelf import OnShelf, Shelf


class Item(Struct, kw_only=True):
    """One letter's part in one campaign."""

    seq: int  # of the letter, also after it is purged
    generation: int = 0
    outcome: Outcome = Outcome.PLANNED
    taken_at: datetime | None = None
    sent_at: datetime | None = None
    settled_at: datetime | None = None
    confirmed_at: datetime | None = None

    def settle(self, outcome: Outcome, now: datetime) -> None:
        """This is what became of it."""
        if self.outcome is Outcome.CONFIRMED:
            self.confirmed_at = self.settled_at
        self.outcome, self.settled_at = outcome, now


class Course(Struct, kw_only=True):
    """A campaign under way."""

    campaign: Campaign
    items: list[Item] = []

    def finish(self) -> None:
        """End it if it runs and there is nothing left to wait for."""
        if self.campaign.state is CampaignState.RUNNING and not any(
            item.outcome in UNFINISHED for item in self.items
        ):
            self.campaign = structs.replace(self.campaign, state=CampaignState.DONE)

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
        self._courses: dict[str, Course] = {}

    def plan(self, campaign: Campaign, ids: Iterable[str], now: datetime) -> None:
        """Start a campaign over these letters, or add them to it."""
        course = self._courses.get(campaign.id)
        if course is None:
            course = self._courses[campaign.id] = Course(
                campaign=structs.replace(campaign, counts={})
            )
        state = course.campaign.state
        if state is CampaignState.CANCELLED:
            raise Conflict(f"campaign {campaign.id} is cancelled: start another one")
        if state is CampaignState.DONE:  # faster than we could plan
            course.campaign = structs.replace(
                course.campaign, state=CampaignState.RUNNING
            )
        there = {item.seq for item in course.items}
        added = [
            Item(seq=kept.seq)
            for kept in self._shelf.given(ids)
            if kept.seq not in there
        ]
        course.items += added
        self._shelf.record(
            "replay",
            campaign.id,
            By(campaign.actor, campaign.reason),
            at=now,
            detail=f"{len(added)} letters: {campaign.query}",
        )

    def take(self, campaign: str, limit: int, now: datetime) -> list[OnShelf]:
        """Claim the next letters of a running campaign, the interrupted ones first."""
        course = self._course(campaign)
        if course.campaign.state is not CampaignState.RUNNING:
            return []
        taken: list[OnShelf] = []
        for outcome in (Outcome.SENDING, Outcome.PLANNED):
            for item in course.items:
                if len(taken) == limit:
                    break
                if item.outcome is outcome:
                    taken += self._take(item, course.campaign, now)
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
                item.outcome, item.sent_at = Outcome.SENT, now

    def settle(self, news: Sequence[ReplaySettled], now: datetime) -> None:
        """Record outcomes of replayed copies; repeated outcomes change nothing."""
        told = heard((one.letter_id, one.generation, one.outcome) for one in news)
        for (letter_id, generation), outcome in told.items():
            kept = self._shelf.by_id.get(letter_id)
            found = None if kept is None else self._copy(kept.seq, generation)
            if kept is None or found is None:
                continue
            course, item = found
            if item.outcome not in SETTLED_FROM[outcome]:
                continue
            item.settle(outcome, now)
            head, cap = kept.head, course.campaign.cap
            state = landing(head.state, head.replays, generation, outcome, cap)
            if state is not None:
                kept.change(state=state)
            course.finish()

    def cap_of(self, kept: OnShelf) -> int | None:
        """The cap of the campaign that sent a letter out last."""
        for course in self._courses.values():
            for item in course.items:
                if item.seq == kept.seq and 0 < item.generation == kept.head.replays:
                    return course.campaign.cap
        return None

    def change(
        self, campaign: str, state: CampaignState, by: By, now: datetime
    ) -> None:
        """Pause, resume, cancel or end a campaign."""
        course = self._course(campaign)
        old = course.campaign.state
        check_change(campaign, old, state)
        if state is old:
            return
        course.campaign = structs.replace(
            course.campaign,
            state=state,
            runs_as=runs_as(course.campaign.runs_as, state, by),
        )
        self._shelf.record("campaign", campaign, by, at=now, detail=f"{old} to {state}")

    def parts(self, ids: Iterable[str]) -> list[ReplayItem]:
        """Every part these letters had in campaigns, each letter's first to last."""
        return [
            _told(kept, course.campaign, item)
            for kept in self._shelf.given(ids)
            for course in self._courses.values()
            for item in course.items
            if item.seq == kept.seq
        ]

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
        counted = [course.counted() for course in reversed(self._courses.values())]
        own = [one for one in counted if owner in (None, one.owner)]
        if after is not None:
            ids = [one.id for one in own]
            if after not in ids:
                raise left_off_nowhere(after)
            own = own[ids.index(after) + 1 :]
        found = (
            one
            for one in own
            if one.id.startswith(begins) and only in (None, one.state)
        )
        return list(islice(found, limit))

    def _course(self, campaign: str) -> Course:
        if campaign not in self._courses:
            raise NotFound(f"there is no campaign {campaign}")
        return self._courses[campaign]

    def _take(self, item: Item, campaign: Campaign, now: datetime) -> list[OnShelf]:
        kept = self._shelf.by_seq.get(item.seq)
        if kept is None:
            item.settle(Outcome.SKIPPED, now)
            return []
        head = kept.head
        if item.outcome is Outcome.SENDING:
            if is_out(head.state, head.replays, item.generation):
                return [kept]
            item.settle(Outcome.SKIPPED, now)
            return []
        outcome, state = take(head.state, head.replays, campaign.cap)
        if outcome is Outcome.SENDING:
            item.outcome, item.taken_at = outcome, now
            item.generation = head.replays + 1
            kept.change(state=state, replays=item.generation)
            return [kept]
        item.settle(outcome, now)
        if state is not head.state:
            kept.change(state=state)
            reason = f"replayed {campaign.cap} times, which is the cap"
            by = By(campaign.actor, reason)
            detail = f"by campaign {campaign.id}"
            self._shelf.record("quarantine", head.id, by, at=now, detail=detail)
        return []

    def _copy(self, seq: int, generation: int) -> tuple[Course, Item] | None:
        for course in self._courses.values():
            for item in course.items:
                if (item.seq, item.generation) == (seq, generation):
                    return course, item
        return None


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
    )
