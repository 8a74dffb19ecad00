"""
Plans of replays that are kept with their campaign: frozen at once, judged in the background.

A plan goes through three steps, each in slices that any process may continue after a crash:

1. *Freeze*: the ids of its letters are stored, oldest sent first.
2. *Judge*: each letter gets a verdict. Nothing is sent.
3. *Fill*, once somebody has started it: the letters that are sent are added to the campaign.
   Verdicts that are old by then are found anew.

Each step changes the plan by compare-and-set, so two processes never do the same slice twice.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, structs

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Care,
    KeptPlan,
    PlanSlice,
    Treatment,
    Verdict,
    checked,
)
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.ports import Clock, LetterStore, PlanChange

from .batches import BATCH, batched, whole_letters
from .preflight import LetterVerdict, LetterVerdicts, Plan, Preflight, name_verdicts, target_of

SLICE: Final = BATCH  # letters
FRESH: Final = timedelta(minutes=5)
"""The age from which verdicts are found anew before letters are sent."""

_AT_ONCE: Final = 20  # slices that are added to a campaign in one transaction
_LOOK: Final = 20  # slices read at once to find letters with a verdict

Prepare = Callable[[Campaign, KeptPlan], Awaitable[Preflight]]
"""A function that returns what verdicts on the letters of a campaign depend on now."""


class PlanWish(Struct, frozen=True, kw_only=True):
    """Changes to a plan when it is started, by somebody who has seen its verdicts."""

    leave_out: tuple[Verdict, ...] = ()
    include: tuple[Verdict, ...] = ()
    care: Care | None = None  # other precautions; None: as planned

    def made_to(self, care: Care) -> Care:
        """Return the precautions of a plan with these changes."""
        given = care if self.care is None else self.care
        skip = {*given.skip, *self.leave_out} - {*self.include}
        include = {*given.include, *self.include} - {*self.leave_out}
        changed = structs.replace(
            given,
            skip=tuple(one for one in Verdict if one in skip),
            include=tuple(one for one in Verdict if one in include),
            key_order=care.key_order and given.key_order,
            presume_after=care.presume_after,
        )
        return checked(changed)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing changes."""
        return not self.leave_out and not self.include and self.care is None


def frozen_slices(ids: Sequence[str]) -> list[PlanSlice]:
    """Return letters, in sending order, as slices without verdicts."""
    return [PlanSlice(some) for some in batched(ids, SLICE)]


def plan_of(campaign: Campaign) -> Plan:
    """Return what a kept plan says so far, in the form of other plans."""
    kept = campaign.plan
    assert kept is not None
    found = kept.verdicts
    targets: Counter[str] = Counter()
    for verdict, mailboxes in kept.targets.items():
        if campaign.care.sends(verdict):
            targets.update(mailboxes)

    def treated(how: Treatment) -> tuple[Verdict, ...]:
        return tuple(one for one in Verdict if found.get(one) and campaign.care.treats(one) is how)

    return Plan(
        query=campaign.query,
        total=sum(found.values()),
        verdicts={one: found[one] for one in Verdict if found.get(one)},
        targets=dict(targets.most_common()),
        more=kept.more,
        left_out=treated(Treatment.LEAVE_OUT),
        asked=treated(Treatment.ASK),
        through=campaign.through,
    )


class ReplayPlans:
    """The kept plans of one office."""

    def __init__(self, store: LetterStore, clock: Clock, prepare: Prepare) -> None:
        self._store = store
        self._clock = clock
        self._prepare = prepare

    async def judge_some(self, campaign: Campaign) -> bool:
        """Judge the next letters of a plan; return whether some are left."""
        plan = campaign.plan
        if plan is None or plan.is_judged or campaign.state is not CampaignState.PLANNED:
            return False
        place = plan.judged // SLICE
        found = await self._store.plan_slices(campaign.id, first=place, limit=1)
        letters = found[0].letters if found else ()
        preflight = await self._prepare(campaign, plan)
        judged, targets = await self._judge(preflight, letters)
        verdicts = _until_limit(judged, plan, campaign.care)
        after = _counted(plan, verdicts, [targets.get(id_) for id_ in letters])
        is_enough = len(verdicts) < len(letters) or _is_full(after, campaign.care)
        is_last = plan.judged + len(letters) >= plan.total
        after = structs.replace(
            after,
            judged_at=plan.judged_at or self._clock.now(),
            is_judged=is_enough or is_last,
            more=plan.more or (is_enough and after.judged < plan.total),
        )
        change = PlanChange(
            campaign=structs.replace(campaign, plan=after),
            slices={place: PlanSlice(letters, verdicts)},
        )
        # If the plan was changed meanwhile, the caller reads it again and goes on.
        await self._store.change_plan(campaign, change)
        return not after.is_judged

    async def agree(
        self, campaign: Campaign, by: By, wish: PlanWish, *, expect: int | None = None
    ) -> Campaign:
        """
        Apply a wish to a judged plan, which `fill` then follows.

        Raises Conflict if the plan is not judged, would send nothing, or would send another
        number of letters than was expected.
        """
        plan = campaign.plan
        if plan is None:
            raise Conflict(
                f"replay {campaign.id} was planned with its letters chosen: its verdicts can no"
                " longer be left out or included. Plan it again"
            )
        check_judged(campaign)
        if plan.added:
            raise Conflict(f"replay {campaign.id} was started already: resume it")
        care = wish.made_to(campaign.care)
        if campaign.approved_by and care != campaign.care:
            raise Conflict(
                f"{campaign.approved_by} approved replay {campaign.id} as it is: to change it,"
                " cancel it and plan it again"
            )
        sendable = plan.sendable(care)
        if not sendable:
            raise Conflict(f"replay {campaign.id} would send no letter: see its verdicts")
        if expect is not None and expect != sendable:
            raise Conflict(
                f"replay {campaign.id} would send {many(sendable, 'letter')}, not {expect:,}:"
                " look at its verdicts again"
            )
        agreed = tuple(one for one in Verdict if plan.verdicts.get(one) and care.sends(one))
        after = structs.replace(campaign, care=care, plan=structs.replace(plan, agreed=agreed))
        detail = f"{many(sendable, 'letter')} of {plan.total:,} to be sent"
        change = PlanChange(campaign=after, by=by, detail=detail)
        if not await self._store.change_plan(campaign, change):
            raise Conflict(f"replay {campaign.id} was changed just now: look at it again")
        return after

    async def fill(self, campaign: Campaign, read: Callable[[], Awaitable[Campaign]]) -> Campaign:
        """Add the letters of a started plan to its campaign; return it with its counts."""
        while (plan := campaign.plan) is not None and plan.left:
            if campaign.state is not CampaignState.RUNNING:
                return campaign
            await self._fill_some(campaign, plan)
            campaign = await read()
        return campaign

    async def _fill_some(self, campaign: Campaign, plan: KeptPlan) -> None:
        first = plan.added // SLICE
        slices = list(await self._store.plan_slices(campaign.id, first=first, limit=_AT_ONCE))
        after, care = plan, campaign.care
        agreed = frozenset(plan.agreed or (one for one in Verdict if plan.verdicts.get(one)))
        renewed: dict[int, PlanSlice] = {}
        if self._is_old(plan):
            preflight = await self._prepare(campaign, plan)
            for n, one in enumerate(slices):
                known = one.letters[: len(one.verdicts)]
                verdicts, _ = await self._judge(preflight, known)
                slices[n] = PlanSlice(one.letters, tuple(verdicts))
                if slices[n] != one:
                    renewed[first + n] = slices[n]
                    after = _recounted(after, one.verdicts, slices[n].verdicts)
        add: list[str] = []
        chosen = plan.chosen
        for one in slices:
            for id_, verdict in zip(one.letters, one.verdicts, strict=False):
                if verdict is Verdict.PAST_CAP:
                    add.append(id_)  # to be quarantined when its turn comes
                elif _is_sent(verdict, care, agreed) and chosen != plan.limit:
                    add.append(id_)
                    chosen += 1
        looked_at = sum(len(one.verdicts) for one in slices)
        after = structs.replace(
            after, added=plan.added + looked_at, chosen=chosen, agreed=tuple(agreed)
        )
        if not looked_at:  # slices are missing: go on with what was added
            after = structs.replace(after, added=plan.judged)
        change = PlanChange(
            campaign=structs.replace(campaign, plan=after), slices=renewed, add=tuple(add)
        )
        await self._store.change_plan(campaign, change)

    async def verdicts(
        self, campaign: Campaign, *, verdict: Verdict | None, after: int, limit: int
    ) -> LetterVerdicts:
        """Return verdicts of a kept plan in sending order; `after` continues."""
        plan = campaign.plan
        assert plan is not None
        found: list[tuple[str, Verdict]] = []
        at = after
        while len(found) < limit and at < plan.judged:
            first = at // SLICE
            slices = await self._store.plan_slices(campaign.id, first=first, limit=_LOOK)
            if not slices:
                break
            every = [
                pair for one in slices for pair in zip(one.letters, one.verdicts, strict=False)
            ]
            for id_, one in every[at - first * SLICE :]:
                at += 1
                if one is not None and verdict in {None, one}:
                    found.append((id_, one))
                    if len(found) == limit:
                        break
            else:
                at = min(plan.judged, (first + len(slices)) * SLICE)
        named = await self._named(found, campaign.to)
        return LetterVerdicts(named, at if at < plan.judged else None)

    async def _named(
        self, found: Sequence[tuple[str, Verdict]], to: str | None
    ) -> tuple[LetterVerdict, ...]:
        verdicts = dict(found)
        named: list[LetterVerdict] = []
        async for letters in whole_letters(self._store, [*verdicts]):
            named += name_verdicts(letters, [verdicts[one.id] for one in letters], to)
        return tuple(named)

    async def _judge(
        self, preflight: Preflight, ids: Sequence[str]
    ) -> tuple[list[Verdict | None], dict[str, str]]:
        """Return the verdict on each letter, None where it is gone; and their mailboxes."""
        verdicts: dict[str, Verdict] = {}
        targets: dict[str, str] = {}
        async for letters in whole_letters(self._store, ids):
            for letter, verdict in zip(letters, await preflight.judge(letters), strict=True):
                verdicts[letter.id] = verdict
                targets[letter.id] = target_of(letter.head, preflight.to)
        return [verdicts.get(id_) for id_ in ids], targets

    def _is_old(self, plan: KeptPlan) -> bool:
        judged_at: datetime | None = plan.judged_at
        return judged_at is None or self._clock.now() - judged_at > FRESH


def check_judged(campaign: Campaign) -> None:
    """Raise Conflict if letters of a kept plan have no verdict yet."""
    plan = campaign.plan
    if plan is not None and not plan.is_judged:
        raise Conflict(
            f"{plan.judged:,} of {many(plan.total, 'letter')} of replay {campaign.id} are judged:"
            " wait for the others before it is started"
        )


def _is_sent(verdict: Verdict | None, care: Care, agreed: frozenset[Verdict]) -> bool:
    """Return whether a letter is sent; a verdict nobody saw must not need a confirmation."""
    if verdict is None or not care.sends(verdict):
        return False
    return verdict in agreed or care.treats(verdict) is Treatment.SEND


def _until_limit(
    verdicts: Sequence[Verdict | None], plan: KeptPlan, care: Care
) -> tuple[Verdict | None, ...]:
    """Return the verdicts up to the letter that reaches the limit of a plan."""
    if plan.limit is None:
        return tuple(verdicts)
    left = plan.limit - plan.sendable(care)
    for place, verdict in enumerate(verdicts):
        if not left:
            return tuple(verdicts[:place])
        left -= verdict is not None and care.sends(verdict)
    return tuple(verdicts)


def _is_full(plan: KeptPlan, care: Care) -> bool:
    return plan.limit is not None and plan.sendable(care) >= plan.limit


def _counted(
    plan: KeptPlan, verdicts: Sequence[Verdict | None], targets: Sequence[str | None]
) -> KeptPlan:
    """Return the plan with the verdicts of its next letters."""
    counts = Counter(plan.verdicts)
    mailboxes = {verdict: Counter(names) for verdict, names in plan.targets.items()}
    gone = plan.gone
    for verdict, target in zip(verdicts, targets, strict=False):
        if verdict is None or target is None:
            gone += 1
            continue
        counts[verdict] += 1
        mailboxes.setdefault(verdict, Counter())[target] += 1
    return structs.replace(
        plan,
        judged=plan.judged + len(verdicts),
        verdicts=dict(counts),
        targets={verdict: dict(names) for verdict, names in mailboxes.items()},
        gone=gone,
    )


def _recounted(
    plan: KeptPlan, old: Sequence[Verdict | None], new: Sequence[Verdict | None]
) -> KeptPlan:
    """Return the plan with other verdicts on some of its letters."""
    counts = Counter(plan.verdicts)
    counts.update(one for one in new if one is not None)
    counts.subtract(one for one in old if one is not None)
    gone = plan.gone + sum(one is None for one in new) - sum(one is None for one in old)
    return structs.replace(plan, verdicts={one: n for one, n in counts.items() if n}, gone=gone)
