"""One replay: its plan while it waits, its stages while it runs, its report at the end."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.campaign import (
    BLOCKED,
    DEFAULTS,
    Campaign,
    CampaignState,
    Care,
    Outcome,
    ReplayItem,
    Treatment,
    Verdict,
    size_of,
)
from deadletter.core.errors import QueryError
from deadletter.core.letter import LetterHead
from deadletter.core.query import first_word, parse
from deadletter.core.query.ast import All, Not, Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.parse import show
from deadletter.core.text import many
from deadletter.office.aftermath import Aftermath
from deadletter.office.approval import is_same_person, needs_approval
from deadletter.office.batches import batched
from deadletter.office.letter_search import of_sources
from deadletter.office.preflight import LetterVerdict
from deadletter.office.progress import ReplayProgress, StageState, stages_ahead
from deadletter.office.replay_plans import plan_of
from deadletter.server.acting import replay_acts
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

from . import sentences
from .care_form import PlanForm, plan_form
from .cautions import cautions_of

SIZE: Final = 50
"""Letters on one page of outcomes."""

Part: TypeAlias = Literal["stage", "verdicts", "preview", "outcomes", "causes"]
Shown: TypeAlias = Literal["all", "handled", "failed", "way", "waiting", "out"]
_SHOWN: Final[dict[str, tuple[str, tuple[Outcome, ...]]]] = {
    "all": ("All", ()),
    "handled": ("Handled", (Outcome.CONFIRMED, Outcome.PRESUMED)),
    "failed": ("Failed again", (Outcome.FAILED,)),
    "way": ("On their way", (Outcome.SENT, Outcome.SENDING, Outcome.UNCONFIRMED)),
    "waiting": ("To be sent", (Outcome.PLANNED, Outcome.WAITING)),
    "out": ("Left out", (Outcome.SKIPPED, Outcome.REFUSED, Outcome.HELD)),
}
_KINDS: Final = ("ready", "caution", "ask", "left", "never")
_PER_SEARCH: Final = 50
_SAMPLES: Final = 5
_ENDED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})
_GROUP: Final = re.compile(r"(?:.*\s)?group:([\w.-]+)\*?(?:\s.*)?")


class VerdictRow(Struct, frozen=True, kw_only=True):
    """Letters with one verdict, and whether they are sent."""

    verdict: Verdict
    count: int
    text: str
    more: str  # what follows from it
    kind: str  # ready, caution, ask, left, never
    can_choose: bool
    is_sent: bool
    default: str  # how such letters are treated unless somebody chooses
    samples: tuple[LetterVerdict, ...] = ()


class StageRow(Struct, frozen=True, kw_only=True):
    """One step of the ladder in words."""

    state: str  # done, current, ahead, paused, halted
    title: str
    told: str
    sent: int
    size: int


class OutcomeRow(Struct, frozen=True, kw_only=True):
    """One letter of a replay."""

    item: ReplayItem
    outcome: str
    at: datetime | None
    source: str
    error: str
    why: str


class ReplayPageValue(Struct, frozen=True, kw_only=True):
    """Everything that the page of one replay shows; parts have only what they need."""

    campaign: Campaign
    path: str
    standing: str
    progress: ReplayProgress
    headline: str
    bar_label: str
    stages: tuple[StageRow, ...]
    is_planned: bool
    is_over: bool
    is_judged: bool
    judged: str  # how many letters are judged, in words
    size: int
    button: str
    form: PlanForm
    verdicts: tuple[VerdictRow, ...] = ()
    targets: tuple[tuple[str, int], ...] = ()
    words: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    expected: int = 0  # letters that would be sent with the form as it is
    must_be_approved: bool = False
    may_approve: bool = False
    above: int = 0
    aftermath: Aftermath | None = None
    report: str = ""
    left_time: str = ""
    in_order: str = ""
    go_on: str = ""  # what the button says that continues it
    again: str = ""  # the path that plans the failed ones again
    others: str = ""  # the path that plans the rest without the groups that failed again
    group: str = ""
    outcomes: tuple[OutcomeRow, ...] = ()
    shown: str = "all"
    tabs: tuple[tuple[str, str, int | None, bool], ...] = ()
    outcomes_path: str = ""  # of the part with the letters, as it is shown now
    older: str = ""
    is_first: bool = True


async def load_replay(
    context: ServerContext,
    who: Identity,
    name: str,
    *,
    part: Part | None = None,
    shown: Shown = "all",
    after: int = 0,
    form: PlanForm | None = None,
) -> ReplayPageValue:
    """Return what this person sees of a replay, or what one part of its page needs."""
    campaign = await replay_acts.find(context, who, name)
    replays = context.office.replays
    progress = await replays.progress(campaign.id)
    if form is None or campaign.approved_by:  # what was approved cannot be changed
        form = plan_form(campaign)
    page = _frame(context, who, campaign, progress, form)
    fields: dict[str, object] = {}
    if page.is_planned:
        if part in {None, "verdicts", "preview"} and campaign.plan is not None:
            fields |= await _plan(context, who, page, with_samples=part != "preview")
        return _with(page, fields)
    if part in {None, "causes", "stage"} and progress.failed:
        aftermath = await replays.aftermath(campaign.id, sources=who.sources)
        fields["aftermath"] = aftermath
        if campaign.state is CampaignState.DONE:
            fields["report"] = sentences.report(progress, aftermath)
        if aftermath.causes:
            groups = ",".join(dict.fromkeys(one.fingerprint for one in aftermath.causes))
            query = f"is:open group:[{groups}]" if "," in groups else f"is:open group:{groups}"
            fields["again"] = path_to("replays", "new", q=query)
            if progress.left and not page.group:
                same = [one.fingerprint for one in aftermath.causes if one.is_same]
                fields["others"] = _without(campaign.query, same)
    if part in {None, "outcomes"}:
        fields |= await _outcomes(context, who, page, shown, after)
    return _with(page, fields)


def _without(query: str, groups: Sequence[str]) -> str:
    """Return the path of a plan of the same search without some groups; empty if there is none."""
    try:
        node = parse(query)
    except QueryError:  # its letters were chosen one by one
        return ""
    if not groups or first_word(node) is not None:
        return ""
    left_out = Not(Term("group", Op.IS, tuple(literal(name) for name in dict.fromkeys(groups))))
    terms = node.terms if isinstance(node, All) else (node,)
    return path_to("replays", "new", q=show(All((*terms, left_out))))


def _with(page: ReplayPageValue, fields: dict[str, object]) -> ReplayPageValue:
    known = {name: getattr(page, name) for name in page.__struct_fields__}
    return ReplayPageValue(**{**known, **fields})


def _frame(
    context: ServerContext,
    who: Identity,
    campaign: Campaign,
    progress: ReplayProgress,
    form: PlanForm,
) -> ReplayPageValue:
    plan, size = campaign.plan, size_of(campaign)
    above = context.settings.serve.approve_above
    found = _GROUP.fullmatch(campaign.query)
    is_planned = campaign.state is CampaignState.PLANNED
    return ReplayPageValue(
        campaign=campaign,
        path=path_to("replays", campaign.id),
        standing=sentences.standing(campaign, progress),
        progress=progress,
        headline=sentences.headline(campaign, progress),
        bar_label=sentences.bar_label(progress),
        stages=stage_rows(campaign, progress),
        is_planned=is_planned,
        is_over=campaign.state in _ENDED,
        is_judged=plan is None or plan.is_judged,
        judged="" if plan is None else f"{plan.judged:,} of {many(plan.total, 'letter')} judged",
        size=size,
        button=sentences.first_button(campaign.care, size),
        form=form,
        expected=size,
        must_be_approved=needs_approval(campaign, above),
        may_approve=not is_same_person(campaign, who.by()),
        above=above,
        left_time="" if progress.seconds_left is None else sentences.span(progress.seconds_left),
        in_order=sentences.order_kept(campaign),
        go_on=sentences.go_on(campaign, progress),
        report=sentences.report(progress) if campaign.state is CampaignState.DONE else "",
        group="" if found is None else found[1],
    )


async def _plan(
    context: ServerContext, who: Identity, page: ReplayPageValue, *, with_samples: bool
) -> dict[str, object]:
    """Return the verdicts of a plan, and what would happen with its form."""
    campaign, form = page.campaign, page.form
    plan = campaign.plan
    assert plan is not None
    wish = form.wish(campaign)
    care = wish.made_to(campaign.care)
    sent = {one for one in Verdict if plan.verdicts.get(one) and form.sends(campaign, one)}
    expected = sum(plan.verdicts[one] for one in sent if one not in BLOCKED)
    expected = expected if plan.limit is None else min(expected, plan.limit)
    rows = []
    for verdict in Verdict:
        if count := plan.verdicts.get(verdict, 0):
            samples: Sequence[LetterVerdict] = ()
            if with_samples and plan.is_judged and verdict is not Verdict.READY:
                found = await context.office.replays.kept_verdicts(
                    campaign.id, verdict=verdict, limit=_SAMPLES
                )
                samples = [one for one in found.letters if who.sees(one.source)]
            rows.append(_verdict(verdict, count, tuple(samples), is_sent=verdict in sent))
    is_keyed = bool(plan.verdicts.get(Verdict.ORDERED)) and Verdict.ORDERED in sent
    words = sentences.what_will_happen(
        care, expected, campaign.rate, keyed=is_keyed, reports=not campaign.through
    )
    return {
        "verdicts": tuple(sorted(rows, key=lambda row: _KINDS.index(row.kind))),
        "targets": tuple(plan_of(campaign).targets.items()),
        "words": words,
        "cautions": await cautions_of(context, campaign),
        "expected": expected,
        "button": sentences.first_button(care, expected),
        "stages": _ahead(care, expected),
        "may_approve": page.may_approve and expected == page.size,
        "must_be_approved": not campaign.approved_by and 0 < page.above < expected,
    }


def _verdict(
    verdict: Verdict, count: int, samples: tuple[LetterVerdict, ...], *, is_sent: bool
) -> VerdictRow:
    text, more = sentences.VERDICTS[verdict]
    default = DEFAULTS[verdict]
    kind = "ready" if verdict is Verdict.READY else "caution"
    if verdict in BLOCKED:
        kind = "never"
    elif default is Treatment.ASK:
        kind = "ask"
    elif default is Treatment.LEAVE_OUT:
        kind = "left"
    said = {Treatment.SEND: "sent", Treatment.ASK: "you decide", Treatment.LEAVE_OUT: "left out"}
    return VerdictRow(
        verdict=verdict,
        count=count,
        text=text,
        more=more,
        kind=kind,
        can_choose=verdict not in BLOCKED,
        is_sent=is_sent and verdict not in BLOCKED,
        default="never sent" if verdict in BLOCKED else said[default],
        samples=samples,
    )


def stage_rows(campaign: Campaign, progress: ReplayProgress) -> tuple[StageRow, ...]:
    """Return the ladder of a replay in words, the first step first."""
    if campaign.state is CampaignState.PLANNED:
        return _ahead(campaign.care, progress.total)
    allowed = sentences.percent(campaign.care.share)
    is_resumed = progress.began_again_at is not None and campaign.care.in_steps
    rows = []
    for stage, state in zip(progress.stages, _states(campaign, progress), strict=True):
        told = []
        if stage.handled is not None and stage.failed is not None and stage.sent:
            told.append(f"{stage.handled:,} handled, {stage.failed:,} failed")
            settled = stage.handled + stage.failed
            if stage.failed:
                share = sentences.percent(round(stage.failed / settled, 3))
                told[-1] += f": {share} failed, {allowed} may"
            if stage.sent > settled and stage.state is StageState.CURRENT:
                told.append(f"{stage.sent - settled:,} on their way")
        elif stage.state is not StageState.AHEAD:
            told.append(f"{stage.sent:,} of {stage.size:,} sent")
        rows.append(
            StageRow(
                state=state,
                title=_title(stage.after, stage.until, progress.total)
                if stage.after or not is_resumed
                else f"{stage.until:,} before",
                told=", ".join(told) or f"{many(stage.size, 'letter')}, not yet",
                sent=stage.sent,
                size=stage.size,
            )
        )
    return tuple(rows)


def _states(campaign: Campaign, progress: ReplayProgress) -> list[str]:
    """Return the state of each step; a replay that stopped by itself did after the last sent."""
    states: list[str] = [one.state.value for one in progress.stages]
    if campaign.state is not CampaignState.PAUSED or not progress.step:
        return states
    now = progress.step - 1
    is_halted = progress.pause is not None and progress.pause.by_itself
    if is_halted and now and not progress.stages[now].sent:
        states[now - 1 : now + 1] = ["halted", "ahead"]
    else:
        states[now] = "halted" if is_halted else "paused"
    return states


def _ahead(care: Care, total: int) -> tuple[StageRow, ...]:
    return tuple(
        StageRow(
            state="ahead",
            title=_title(one.after, one.until, total),
            told=many(one.size, "letter") if one.after == 0 else f"{one.size:,} more",
            sent=0,
            size=one.size,
        )
        for one in stages_ahead(care, total)
    )


def _title(after: int, until: int, total: int) -> str:
    if not after:
        return f"all {total:,}" if until == total else f"the first {until:,}"
    return f"up to {until:,}"


async def _outcomes(
    context: ServerContext, who: Identity, page: ReplayPageValue, shown: Shown, after: int
) -> dict[str, object]:
    """Return a page of letters with their outcomes."""
    campaign, counts = page.campaign, page.campaign.counts
    only = _SHOWN[shown][1]
    found = await context.office.replays.outcomes(campaign.id, after=after, limit=SIZE, only=only)
    heads = await _heads(context, who, [one.letter_id for one in found.items])
    tabs = []
    for name, (title, outcomes) in _SHOWN.items():
        count = sum(counts.get(one, 0) for one in outcomes or Outcome)
        count = page.size if name == "all" else count
        if count or name in {"all", shown}:
            query = "" if name == "all" else name
            path = path_to("replays", campaign.id, outcome=query)
            tabs.append((title, f"{path}#outcomes-title", count, name == shown))
    query = "" if shown == "all" else shown
    older = ""
    if found.after is not None:
        older = path_to("replays", campaign.id, outcome=query, after=str(found.after))
    return {
        "outcomes": tuple(_outcome(one, heads.get(one.letter_id)) for one in found.items),
        "shown": shown,
        "tabs": tuple(tabs),
        "older": older,
        "outcomes_path": path_to(
            "replays", campaign.id, part="outcomes", outcome=query, after=str(after or "")
        ),
        "is_first": not after,
    }


def _outcome(item: ReplayItem, head: LetterHead | None) -> OutcomeRow:
    failed = item.outcome is Outcome.FAILED
    error = f"{head.error_name} {head.error_text}".strip() if head is not None else ""
    return OutcomeRow(
        item=item,
        outcome=sentences.OUTCOMES[item.outcome],
        at=item.settled_at or item.sent_at or item.taken_at,
        source="" if head is None else head.source,
        error=error if failed else "",
        why=item.why or ("it was handled first, and failed later" if item.failed_late else ""),
    )


async def _heads(
    context: ServerContext, who: Identity, ids: Sequence[str]
) -> dict[str, LetterHead]:
    """Return the letters that exist and that this person may see."""
    heads: dict[str, LetterHead] = {}
    for some in batched(ids, _PER_SEARCH):
        node = of_sources(Term("id", Op.IS, tuple(some)), who.sources)
        page = await context.office.letters.search(node, limit=len(some))
        heads |= {head.id: head for head in page.heads}
    return heads
