"""The progress of a replay as a value: its stages, its pace, and why it is paused."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Final

from msgspec import Struct, structs

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Care,
    Outcome,
    ReplayItem,
    handled,
    size_of,
    unsent,
    unsettled,
)
from deadletter.core.letter import AuditEntry
from deadletter.ports import LetterStore

from .outcomes import ITSELF

ITEMS: Final = 500
"""Items that are looked at; stages behind them have no outcomes of their own."""

_ACTS: Final = 100
_TAIL: Final = 100  # items at the end, which tell when the last letter was settled
_STANDING: Final = "campaign"  # the audit's word for a change of the state of a replay
_RUNNING: Final = f"to {CampaignState.RUNNING}"
_NEVER_SENT: Final = (Outcome.SKIPPED, Outcome.REFUSED, Outcome.HELD)
_SETTLED: Final = {Outcome.CONFIRMED: True, Outcome.PRESUMED: True, Outcome.FAILED: False}


_UNSETTLED: Final = frozenset({Outcome.PLANNED, Outcome.WAITING, Outcome.SENDING, Outcome.SENT})


class StageState(StrEnum):
    """The states of one stage."""

    DONE = "done"
    CURRENT = "current"
    AHEAD = "ahead"


class Stage(Struct, frozen=True, kw_only=True):
    """
    One step of a replay: the letters behind `after`, up to `until`, in sending order.

    `handled` and `failed` are None where they were not counted.
    """

    after: int
    until: int
    state: StageState
    sent: int = 0
    handled: int | None = None
    failed: int | None = None

    @property
    def size(self) -> int:
        """Return the number of its letters."""
        return self.until - self.after


class Pause(Struct, frozen=True, kw_only=True):
    """Who or what paused a replay, and why."""

    at: datetime
    actor: str
    reason: str
    by_itself: bool


class ReplayProgress(Struct, frozen=True, kw_only=True):
    """How far a replay is, in numbers of letters; times are in seconds."""

    total: int
    sent: int  # of these: settled, on their way, or no longer waited for
    handled: int
    failed: int
    on_the_way: int
    left: int  # still to be sent
    left_out: int  # never sent: skipped, refused or held
    stages: tuple[Stage, ...] = ()  # none if it was resumed, and the letters are too many
    started_at: datetime | None = None
    began_again_at: datetime | None = None  # when it was resumed last
    settled_at: datetime | None = None  # when the last outcome arrived
    seconds_left: float | None = None
    pause: Pause | None = None

    @property
    def step(self) -> int:
        """Return the number of the current stage, from 1; 0 if there is none."""
        current = (n for n, one in enumerate(self.stages, 1) if one.state is StageState.CURRENT)
        return next(current, 0)

    @property
    def seconds(self) -> float | None:
        """Return how long it took from its start to the last outcome."""
        if self.started_at is None or self.settled_at is None:
            return None
        return max(0.0, (self.settled_at - self.started_at).total_seconds())


async def load_progress(store: LetterStore, campaign: Campaign, now: datetime) -> ReplayProgress:
    """Return the progress of a replay from a bounded number of its acts and items."""
    acts = await store.latest_audit(target=campaign.id, limit=_ACTS)
    total = size_of(campaign)
    begun = total - campaign.counts.get(Outcome.PLANNED, 0) if campaign.counts else 0
    if not begun:
        return progress_of(campaign, acts, (), now)
    items = list((await store.campaign_items(campaign.id, limit=ITEMS)).items)
    if total > ITEMS and campaign.state is CampaignState.DONE:
        items += (await store.campaign_items(campaign.id, after=max(ITEMS, total - _TAIL))).items
    return progress_of(campaign, acts, items, now)


def progress_of(
    campaign: Campaign, acts: Sequence[AuditEntry], items: Sequence[ReplayItem], now: datetime
) -> ReplayProgress:
    """
    Return the progress of a replay.

    Args:
        campaign: The replay, with its counts.
        acts: Its latest acts in the audit, newest first.
        items: Its first items in sending order, and perhaps the last ones.
        now: The time.
    """
    counts = campaign.counts
    total, left = size_of(campaign), unsent(campaign)
    left_out = sum(counts.get(one, 0) for one in _NEVER_SENT)
    if campaign.plan is not None and campaign.plan.left:
        left = total
    sent = max(0, sum(counts.values()) - left_out - left) if counts else 0
    started_at, again_at = _starts(campaign, acts)
    failed = counts.get(Outcome.FAILED, 0)
    settled_at = max((one.settled_at for one in items if one.settled_at), default=None)
    found = ReplayProgress(
        total=total,
        sent=sent,
        handled=handled(campaign),
        failed=failed,
        on_the_way=unsettled(campaign),
        left=left,
        left_out=left_out,
        stages=_stages(campaign, items, total, sent + left_out, again_at),
        started_at=started_at,
        began_again_at=again_at,
        settled_at=settled_at,
        pause=why_paused(campaign, acts),
    )
    if campaign.state is not CampaignState.RUNNING:
        return found
    return _with_pace(found, campaign, now)


def why_paused(campaign: Campaign, acts: Iterable[AuditEntry]) -> Pause | None:
    """Return why a replay is paused, from its acts, newest first; None if it is not."""
    if campaign.state is not CampaignState.PAUSED:
        return None
    last = next((one for one in acts if one.action == _STANDING), None)
    if last is None:
        return None
    return Pause(at=last.at, actor=last.actor, reason=last.reason, by_itself=last.actor == ITSELF)


def _starts(
    campaign: Campaign, acts: Sequence[AuditEntry]
) -> tuple[datetime | None, datetime | None]:
    """Return when a replay began, and when it was resumed last, if it was."""
    if campaign.state is CampaignState.PLANNED:
        return None, None
    times = sorted(
        one.at for one in acts if one.action == _STANDING and one.detail.endswith(_RUNNING)
    )
    was_planned = any(one.detail.startswith(CampaignState.PLANNED) for one in acts)
    if not was_planned:  # it ran from the beginning
        return campaign.created_at, times[-1] if times else None
    return (times[0] if times else None), (times[-1] if len(times) > 1 else None)


def _with_pace(found: ReplayProgress, campaign: Campaign, now: datetime) -> ReplayProgress:
    """Return the progress with the time that is left at the pace so far."""
    since = found.began_again_at or found.started_at
    settled = found.handled + found.failed
    waiting = found.left + found.on_the_way
    if since is None or not settled or found.began_again_at is not None or not waiting:
        return found
    pace = settled / max(0.001, (now - since).total_seconds())
    seconds = waiting / pace
    if campaign.rate is not None:
        seconds = max(seconds, found.left / campaign.rate)
    return structs.replace(found, seconds_left=seconds)


def _stages(
    campaign: Campaign,
    items: Sequence[ReplayItem],
    total: int,
    gone: int,
    again_at: datetime | None,
) -> tuple[Stage, ...]:
    """Return the stages; after a resumption they begin anew behind what was sent before."""
    if not total:
        return ()
    before, ends = 0, campaign.care.steps(total)
    is_complete = len(items) >= total
    if again_at is not None and campaign.care.in_steps:
        if not is_complete:
            return ()
        before = sum(one.taken_at is not None and one.taken_at < again_at for one in items)
        rest = campaign.care.steps(total - before) if total > before else ()
        ends = tuple(before + end for end in rest)
    elif again_at is not None:
        ends = (total,)
    in_order = _in_order(items) if is_complete else list(items[:ITEMS])
    marks = [0, before, *ends] if before else [0, *ends]
    found: list[Stage] = []
    is_reached = campaign.state is not CampaignState.PLANNED
    for after, until in pairwise(marks):
        found.append(_stage(after, until, gone, in_order, campaign, is_reached=is_reached))
        is_reached = found[-1].state is StageState.DONE
    return tuple(found)


def _in_order(items: Sequence[ReplayItem]) -> list[ReplayItem]:
    """Return items as they were sent: letters of one key wait for each other."""
    return sorted(items, key=lambda one: (one.taken_at is None, one.taken_at or 0))


def _stage(
    after: int,
    until: int,
    gone: int,
    items: Sequence[ReplayItem],
    campaign: Campaign,
    *,
    is_reached: bool,
) -> Stage:
    """Return one stage; `gone` letters were sent or left out so far."""
    out = min(max(0, gone - after), until - after)
    mine = items[after:until] if until <= len(items) else ()
    if mine:
        is_settled = all(one.outcome not in _UNSETTLED for one in mine)
    else:
        is_settled = gone > until or not unsettled(campaign)
    is_over = campaign.state is CampaignState.DONE
    is_cancelled = campaign.state is CampaignState.CANCELLED
    if not is_reached or (is_cancelled and not out):
        state = StageState.AHEAD
    elif is_over or is_cancelled or (out == until - after and is_settled):
        state = StageState.DONE
    else:
        state = StageState.CURRENT
    known = [_SETTLED[one.outcome] for one in mine if one.outcome in _SETTLED]
    return Stage(
        after=after,
        until=until,
        state=state,
        sent=out,
        handled=sum(known) if mine else None,
        failed=len(known) - sum(known) if mine else None,
    )


def stages_ahead(care: Care, total: int) -> tuple[Stage, ...]:
    """Return the stages that a replay of so many letters would have."""
    marks = (0, *care.steps(total)) if total else ()
    return tuple(
        Stage(after=after, until=until, state=StageState.AHEAD) for after, until in pairwise(marks)
    )
