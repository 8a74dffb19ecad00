"""Transactions on the letters of a campaign: claim the next ones, report them as sent."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from deadletter.core.audit import act
from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import By, ReviewOrder, State
from deadletter.core.replay_rules import Candidate, judge
from deadletter.ports.letters import KeyProgress, ReplayItems, ReplayNext, ReplayTaken

from .campaigns import existing, missing
from .operations import Brief, CampaignPosition, LetterOperations
from .outcomes import set_states


class ReplayRequest(Struct, frozen=True):
    """Number of letters of a campaign to claim, and letters to leave out."""

    campaign: str
    limit: int
    leave_out: frozenset[str] | None = None
    keys: int | None = None  # the most letters that did not wait for another of their key
    order: ReviewOrder = ReviewOrder.FREE


class ReplayRound(ABC):
    """
    The next letters of a campaign, claimed in one transaction.

    Subclasses say what is done with them: `outcome` is that of their items afterwards.
    """

    outcome: ClassVar[Outcome]
    with_bodies: ClassVar[bool]

    def __init__(self, store: LetterOperations, now: datetime) -> None:
        self.store = store
        self.now = now
        self._order = ReviewOrder.FREE
        self._sending: list[int] = []  # ordinals: nothing before the first is being sent

    @abstractmethod
    async def send(self, course: CampaignPosition, letters: Sequence[Candidate], more: int) -> None:
        """Send letters, or prepare that; copies have the generation `replays + more`."""

    async def run(self, request: ReplayRequest) -> CampaignPosition | None:
        """Claim the next letters; return the campaign, or None if it does not run."""
        course = await existing(self.store, request.campaign)
        if course.state is not CampaignState.RUNNING:
            return None
        self._order = request.order
        leave_out = request.leave_out or frozenset()
        left = request.limit - await self._resume(course, request.limit)
        if course.keyed and left > 0:
            freed = await self.store.free_items(course, left)
            if freed:
                await self.take(course, freed, leave_out)
                left -= len(freed)
        if request.keys is not None:
            left = min(left, request.keys)
        place = course.taken
        while left > 0 and (ordinals := await self.store.find_plan(course, place, left)):
            left -= await self.take(course, ordinals, leave_out)
            place = ordinals[-1] + 1
            if request.leave_out is not None:
                break  # no more is gone through than was asked about
        await self.store.advance(course, place, self._sending)
        return course

    async def take(
        self, course: CampaignPosition, ordinals: Sequence[int], leave_out: Collection[str]
    ) -> int:
        """Claim letters of planned items, skip the others; return the number of the former."""
        letters = await self.store.find_candidates(course, ordinals, bodies=self.with_bodies)
        going = judge(ordinals, letters, course.cap, leave_out, self._order)
        if going.letters:
            await self.send(course, going.letters, 1)
            await self.store.take_items(course, going, self.outcome, self.now)
            seqs = [one.seq for one in going.letters]
            await self.store.count_taken(
                going.shifts, {(course.seq, Outcome.PLANNED, self.outcome): seqs}
            )
            if self.outcome is Outcome.SENDING:
                self._sending.append(going.letters[0].ordinal)
        if going.left:
            await self._skip(course, [*going.left], Outcome.PLANNED, going.held)
            await _quarantine(self.store, course, going.past_cap, self.now)
        return len(going.letters)

    async def _resume(self, course: CampaignPosition, limit: int) -> int:
        """Send what was taken but never reported as sent; return the number of letters."""
        again: list[int] = []
        gone = []
        behind = -1
        while len(again) < limit:
            wanted = limit - len(again)
            found = await self.store.find_sending(course, behind, wanted)
            again += [one.ordinal for one in found if one.is_out]
            gone += [one for one in found if not one.is_out]  # somebody took it back
            if len(found) < wanted:
                break
            behind = found[-1].ordinal
        if gone:
            held = {one.letter for one in gone if one.is_needed(course.cap)}
            await self._skip(course, [one.ordinal for one in gone], Outcome.SENDING, held)
        if not again:
            return 0
        letters = await self.store.find_candidates(course, again, bodies=self.with_bodies)
        await self.send(course, letters, 0)
        if self.outcome is Outcome.SENT:
            await report_sent(self.store, course.id, [one.id for one in letters], self.now)
            again = again[-1:] if len(again) == limit else []
        self._sending += again
        return len(letters)

    async def _skip(
        self,
        course: CampaignPosition,
        ordinals: Sequence[int],
        before: Outcome,
        held: Collection[int],
    ) -> None:
        skipped = await self.store.skip_items(course, ordinals, before, self.now)
        await self.store.count_items({(course.seq, before, Outcome.SKIPPED): skipped})
        if course.keyed:
            freeing = [letter for letter in skipped if letter not in held]
            await self.store.free_waiting(course.seq, freeing)
            await self.store.hold_waiting(course.seq, [*held], self.now)


class _Claim(ReplayRound):
    """Letters that somebody else sends."""

    outcome = Outcome.SENDING
    with_bodies = True

    def __init__(self, store: LetterOperations, now: datetime) -> None:
        super().__init__(store, now)
        self.letters: list[Candidate] = []
        self.generations: list[int] = []

    async def send(self, course: CampaignPosition, letters: Sequence[Candidate], more: int) -> None:
        """Remember the letters."""
        self.letters += letters
        self.generations += [one.replays + more for one in letters]


async def take_replays(
    store: LetterOperations, request: ReplayRequest, now: datetime
) -> list[ReplayTaken]:
    """Claim the next letters of a running campaign, the interrupted ones first."""
    claim = _Claim(store, now)
    course = await claim.run(request)
    if course is None or not claim.letters:
        return []
    messages = await store.find_messages(course, claim.letters)
    return [
        ReplayTaken(one.id, one.source, message, generation)
        for one, message, generation in zip(claim.letters, messages, claim.generations, strict=True)
    ]


async def report_sent(
    store: LetterOperations, campaign: str, ids: Sequence[str], now: datetime
) -> None:
    """Record that the broker has the copies of letters."""
    found = await store.mark_sent(campaign, ids, now)
    if found is None:
        raise missing(campaign)
    seq, letters = found
    await store.count_items({(seq, Outcome.SENDING, Outcome.SENT): letters})


async def _quarantine(
    store: LetterOperations, course: CampaignPosition, letters: Sequence[Candidate], now: datetime
) -> None:
    """Quarantine letters that a campaign does not send because of its cap."""
    if not letters:
        return
    briefs = [
        Brief(one.seq, one.id, one.source, one.fingerprint, State(one.state), one.replays)
        for one in letters
    ]
    await set_states(store, dict.fromkeys(briefs, State.QUARANTINED))
    by = By(course.actor, f"replayed {course.cap} times, which is the cap")
    detail = f"by campaign {course.id}"
    acts = [act("quarantine", one.id, by, at=now, detail=detail) for one in letters]
    await store.append_audit(acts)


# Reads


async def next_replays(store: LetterOperations, campaign: str, limit: int) -> list[ReplayNext]:
    """Return the next letters of a running campaign, claiming nothing."""
    course = await existing(store, campaign)
    return await store.find_next(course, limit) if course.state is CampaignState.RUNNING else []


async def key_progress(store: LetterOperations, campaign: str, limit: int) -> KeyProgress:
    """Return how far the keys of a campaign have come."""
    return await store.find_progress(await existing(store, campaign), limit)


async def campaign_items(
    store: LetterOperations,
    campaign: str,
    after: int,
    limit: int,
    outcomes: frozenset[Outcome] | None = None,
) -> ReplayItems:
    """Return items of a campaign, in the order they go; with `outcomes`, only of these."""
    return await store.find_items(await existing(store, campaign), after, limit, outcomes)
