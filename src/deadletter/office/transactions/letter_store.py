"""The part of a letter store that is the same in all of them: every change, by transactions."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import ClassVar, TypeVar

from msgspec.structs import replace

from deadletter.core.audit import Examined, act
from deadletter.core.campaign import Campaign, CampaignState, Outcome, PlanSlice, ReplayItem
from deadletter.core.grouping import Asked, GroupLimit, GroupRule, Regrouping, check_standing
from deadletter.core.letter import (
    By,
    DeadLetter,
    Edit,
    Group,
    GroupStatus,
    ReviewOrder,
    Standing,
    State,
)
from deadletter.core.letter_filing import check_expiry
from deadletter.core.message import Message
from deadletter.core.replay_rules import check_news
from deadletter.core.saved_search import SavedSearch
from deadletter.ports.features import Clock
from deadletter.ports.letters import (
    Kept,
    KeyProgress,
    Move,
    PlanChange,
    ReplayItems,
    ReplayNext,
    ReplaySettled,
    ReplayTaken,
    Resealed,
)

from . import campaigns, groups, letters, plans, replays, searches
from .filing import file_letters
from .operations import CampaignFilter, Transaction
from .outcomes import settle
from .verification import examine_letters, reseal, survey

T = TypeVar("T")


class TransactionalLetters(ABC):
    """
    The changes of a letter store, each as one transaction or several in a row.

    A store implements `transact` and `look`, and the reads of letters and groups.
    """

    ids_at_once: ClassVar[int] = 10_000  # in one transaction, so that others wait briefly
    regroupings_at_once: ClassVar[int] = 1
    review_order: ReviewOrder = ReviewOrder.FREE

    def __init__(self, clock: Clock, group_limit: GroupLimit) -> None:
        self._clock = clock
        self.group_limit = group_limit

    @abstractmethod
    async def transact(
        self, transaction: Transaction[T], *, patient: bool = False, size: int | None = None
    ) -> T:
        """
        Run a transaction, perhaps several times; return once it is durable.

        A `patient` one lets others go first, where they wait in one line. One that
        carries `size` bytes has to end within the time that these take.
        """

    @abstractmethod
    async def look(self, reading: Transaction[T], *, long: bool = False) -> T:
        """
        Run a transaction that only reads, on the office as it is at one moment.

        A `long` one may take an hour.
        """

    @abstractmethod
    async def list_groups(self, asked: Asked) -> Sequence[Group]:
        """List groups, latest or largest first."""

    async def examine(self) -> Examined:
        """Examine everything that is kept; letters are read some at a time."""
        examination = await self.look(survey, long=True)
        after: str | None = ""
        while after is not None:
            some = partial(examine_letters, examination=examination, after=after)
            after = await self.look(some, long=True)
        return examination.result()

    async def verify(self) -> Sequence[str]:
        """Return what does not add up, one sentence each."""
        return list((await self.examine()).findings)

    async def reseal(self, after: str = "") -> Resealed:
        """Seal some letters that have no seal, or not by the first key."""
        return await self.transact(partial(reseal, after=after), patient=True)

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """Keep letters durably, all of them or none."""
        if not letters:
            return []
        now = self._clock.now()
        return await self.transact(
            lambda store: file_letters(store, letters, now, self.group_limit),
            size=sum(len(letter.message.body) for letter in letters),
        )

    async def groups(
        self,
        *,
        source: str | None = None,
        only_open: bool = True,
        statuses: frozenset[GroupStatus] | None = None,
        named: str = "",
        text: str = "",
        largest_first: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Group]:
        """List groups of like failures, latest or largest first."""
        asked = Asked(
            source=source,
            only_open=only_open,
            statuses=statuses,
            named=named,
            text=text,
            largest_first=largest_first,
            after=after,
            limit=limit,
            now=self._clock.now(),
        )
        return await self.list_groups(asked)

    async def move(self, move: Move, by: By) -> Sequence[str]:
        """Move letters between states, audited; return the ids of those that moved."""
        now = self._clock.now()
        moved: list[str] = []
        for ids in self._slices(move.ids):
            part = replace(move, ids=ids)
            moved += await self.transact(partial(letters.move, move=part, by=by, now=now))
        return moved

    async def note(self, ids: Sequence[str], text: str, by: By) -> Sequence[str]:
        """Write a note on letters; return the ids of those that exist."""
        now = self._clock.now()
        noted: list[str] = []
        for some in self._slices(ids):
            noted += await self.transact(partial(letters.note, ids=some, text=text, by=by, now=now))
        return noted

    async def edit(self, id: str, message: Message, *, revision: int, by: By) -> int:
        """Put another message into a letter, audited; return its new revision."""
        now = self._clock.now()
        edit = Edit(id, message, revision, by)
        return await self.transact(lambda store: letters.edit(store, edit, now))

    async def purge(self, ids: Sequence[str], by: By) -> Sequence[str]:
        """Delete letters for good, counted and audited; return the ids of those deleted."""
        now = self._clock.now()
        return await self.transact(lambda store: letters.purge(store, ids, by, now))

    async def expire(
        self, *, before: dict[State, datetime], by: By, limit: int = 1000, unreviewed: bool = False
    ) -> int:
        """Delete up to `limit` letters that died before the time of their state, audited."""
        check_expiry(before, unreviewed=unreviewed)
        now = self._clock.now()
        return await self.transact(lambda store: letters.expire(store, before, by, limit, now))

    async def record(self, action: str, target: str, by: By, detail: str = "") -> None:
        """Write an act on something other than a letter into the audit."""
        entry = act(action, target, by, at=self._clock.now(), detail=detail)
        await self.transact(lambda store: store.append_audit([entry]))

    async def set_group(self, fingerprint: str, standing: Standing, by: By) -> None:
        """Write another standing of a group, audited."""
        check_standing(standing)
        now = self._clock.now()
        await self.transact(lambda store: groups.set_group(store, fingerprint, standing, by, now))

    async def regroup(self, moves: Sequence[Regrouping], by: By) -> int:
        """Move letters to other groups, audited; return how many moved."""
        now = self._clock.now()
        moved = 0
        for start in range(0, len(moves), self.regroupings_at_once):
            some = moves[start : start + self.regroupings_at_once]
            moved += await self.transact(partial(groups.regroup, moves=some, by=by, now=now))
        return moved

    async def set_group_rules(
        self, fingerprint: str, rules: Sequence[GroupRule], by: By, detail: str
    ) -> None:
        """Write the merges and splits of a group, audited."""
        now = self._clock.now()
        await self.transact(
            lambda store: groups.set_group_rules(store, fingerprint, rules, by, detail, now)
        )

    async def plan_replay(self, campaign: Campaign, ids: Sequence[str]) -> None:
        """Start a campaign over letters, or add letters to it; audited."""
        now = self._clock.now()
        for some in self._slices(ids) or [()]:
            await self.transact(
                partial(campaigns.plan_replay, campaign=campaign, ids=some, now=now)
            )

    async def set_campaign(self, campaign: str, state: CampaignState, by: By) -> None:
        """Pause, resume, cancel or end a campaign."""
        now = self._clock.now()
        await self.transact(lambda store: campaigns.set_campaign(store, campaign, state, by, now))

    async def sent_order(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of letters that exist, oldest sent first."""
        return await self.look(lambda store: store.sent_order(ids))

    async def next_replay(self, campaign: str, *, limit: int) -> Sequence[ReplayNext]:
        """Return the next planned letters of a running campaign, claiming nothing."""
        return await self.look(lambda store: replays.next_replays(store, campaign, limit))

    async def key_progress(self, campaign: str, *, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        return await self.look(lambda store: replays.key_progress(store, campaign, limit))

    async def take_replay(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Sequence[ReplayTaken]:
        """Claim the next letters of a running campaign: they are `replaying` now."""
        now = self._clock.now()
        request = replays.ReplayRequest(campaign, limit, leave_out, keys, self.review_order)
        return await self.transact(lambda store: replays.take_replays(store, request, now))

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """Record that the broker has the copies of letters."""
        now = self._clock.now()
        await self.transact(lambda store: replays.report_sent(store, campaign, ids, now))

    async def campaign_items(
        self,
        campaign: str,
        *,
        after: int = 0,
        limit: int = 100,
        outcomes: frozenset[Outcome] | None = None,
    ) -> ReplayItems:
        """Return what became of a campaign's letters, in the order they go."""
        return await self.look(
            lambda store: replays.campaign_items(store, campaign, after, limit, outcomes)
        )

    async def freeze_replay(self, campaign: Campaign, slices: Sequence[PlanSlice]) -> None:
        """Keep a campaign whose letters, in these slices, have yet to be judged; audited."""
        now = self._clock.now()
        await self.transact(lambda store: plans.freeze(store, campaign, slices, now))

    async def plan_slices(self, campaign: str, *, first: int, limit: int) -> Sequence[PlanSlice]:
        """Return slices of the kept plan of a campaign, from the place `first` on."""
        return await self.look(lambda store: plans.read_slices(store, campaign, first, limit))

    async def change_plan(self, seen: Campaign, change: PlanChange) -> bool:
        """Change the kept plan of a campaign, unless it is not as it was `seen`."""
        now = self._clock.now()
        return await self.transact(lambda store: plans.change(store, seen, change, now))

    async def approve_replay(self, campaign: str, by: By) -> None:
        """Record the second person who agrees to a planned campaign; audited."""
        now = self._clock.now()
        await self.transact(lambda store: plans.approve(store, campaign, by, now))

    async def campaigns(
        self,
        *,
        limit: int = 20,
        begins: str = "",
        only: CampaignState | None = None,
        owner: str | None = None,
        after: str | None = None,
    ) -> Sequence[Campaign]:
        """Return campaigns with their counts, latest first."""
        wanted = CampaignFilter(limit=limit, begins=begins, only=only, owner=owner, after=after)
        return await self.look(lambda store: store.find_campaigns(wanted))

    async def waiting_since(self) -> dict[str, datetime]:
        """Return when the copy was taken that each source has waited for longest."""
        return await self.look(lambda store: store.waiting_since())

    async def replays(self, ids: Sequence[str]) -> Sequence[ReplayItem]:
        """Return every part that letters had in campaigns, each letter's first to last."""
        return await self.look(lambda store: store.find_replays(ids))

    async def settle_replays(self, outcomes: Sequence[ReplaySettled]) -> None:
        """Record the outcomes of replayed copies; repeated news changes nothing."""
        check_news(one.outcome for one in outcomes)
        if outcomes:
            now = self._clock.now()
            await self.transact(lambda store: settle(store, outcomes, now))

    async def release_windows(self, mailbox: str, by: By) -> int:
        """Release the open windows of a mailbox, audited; return their number."""
        now = self._clock.now()
        return await self.transact(lambda store: campaigns.release_windows(store, mailbox, by, now))

    async def searches(self) -> Sequence[SavedSearch]:
        """Return the saved searches, by name."""
        return await self.look(lambda store: store.find_searches())

    async def save_search(
        self, search: SavedSearch, by: By, *, replace: bool = False, owner: str | None = None
    ) -> SavedSearch:
        """Keep a search under its name, audited; return it as it is kept."""
        now = self._clock.now()
        return await self.transact(
            lambda store: searches.save(store, search, by, now, replace=replace, owner=owner)
        )

    async def delete_search(self, name: str, by: By, *, owner: str | None = None) -> SavedSearch:
        """Delete a saved search, audited; return it."""
        now = self._clock.now()
        return await self.transact(lambda store: searches.delete(store, name, by, now, owner=owner))

    def _slices(self, ids: Sequence[str]) -> list[tuple[str, ...]]:
        size = self.ids_at_once
        return [tuple(ids[start : start + size]) for start in range(0, len(ids), size)]
