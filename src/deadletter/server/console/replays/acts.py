"""Acts on replays: start, approve, pause, resume, cancel; and what was done, in words."""

from typing import Literal

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.campaign import CampaignState, size_of, unsent
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.text import many
from deadletter.office.approval import needs_approval
from deadletter.office.replay_plans import PlanWish
from deadletter.office.replay_sender import ReplaySender
from deadletter.server.acting import replay_acts
from deadletter.server.console.notices import Notice
from deadletter.server.context import ServerContext

from .care_form import PlanForm
from .replay_page import ReplayPageValue
from .sentences import first_button


class Reasoned(Struct, frozen=True, kw_only=True):
    """A form with a reason."""

    reason: str = ""


class Counted(Reasoned, frozen=True, kw_only=True):
    """A form about a number of letters that somebody has seen."""

    expect: int


class Agreed(PlanForm, frozen=True, kw_only=True):
    """The form that starts a replay: the plan as it was shown, with its number of letters."""

    ramp: bool = False
    key_order: bool = False


class AskPage(Struct, frozen=True, kw_only=True):
    """A question before an act, as a page of its own."""

    act: Literal["start", "cancel", "approve", "resume"]
    replay: ReplayPageValue


def check_startable(page: ReplayPageValue) -> None:
    """Raise Conflict if a replay cannot be started now, and say why."""
    if not page.is_planned:
        raise Conflict(f"the replay is {page.campaign.state} already")
    if not page.is_judged:
        raise Conflict(f"{page.judged}: wait for the others before you start it")
    if not page.expected:
        raise Conflict("no letter would be sent: tick a verdict that has letters")


async def start(
    context: ServerContext, who: Identity, sender: ReplaySender, name: str, form: Agreed
) -> Notice:
    """Start a replay as it was agreed to; a large one asks for approval first."""
    if not form.reason.strip():
        raise ConfigError("a replay needs a reason: it stands in the audit")
    if form.expect is None:
        raise ConfigError("the form has no number of letters: open the replay again")
    campaign = await replay_acts.find(context, who, name)
    if campaign.plan is not None and not campaign.plan.added:
        wish = PlanWish() if campaign.approved_by else form.wish(campaign)
        campaign = await replay_acts.agree(
            context, who, campaign.id, wish, reason=form.reason, expect=form.expect
        )
    above = context.settings.serve.approve_above
    if needs_approval(campaign, above):
        return Notice(
            text=f"Nothing is sent yet: {many(size_of(campaign), 'letter')} need the approval of"
            " somebody else with the role operator. They see it under Needs you."
        )
    found = await replay_acts.start(
        context, who, sender, campaign.id, reason=form.reason.strip(), expect=form.expect
    )
    ends = found.care.steps(form.expect)
    first = first_button(found.care, form.expect).removeprefix("Send ")
    rest = form.expect - ends[0]
    then = f" {rest:,} wait for what becomes of them." if rest else ""
    return Notice(text=f"Started: {first} {'go' if ends[0] > 1 else 'goes'} out now.{then}")


async def approve(context: ServerContext, who: Identity, name: str, form: Counted) -> Notice:
    """Agree to a replay that somebody else planned."""
    found = await replay_acts.approve(context, who, name, reason=form.reason, expect=form.expect)
    letters = many(size_of(found), "letter")
    return Notice(text=f"Approved: the replay of {letters} can be started now.")


async def pause(context: ServerContext, who: Identity, name: str, form: Reasoned) -> Notice:
    """Pause a replay."""
    found = await replay_acts.pause(context, who, name, reason=form.reason)
    return Notice(text=f"Paused. {many(unsent(found), 'letter')} not sent yet.")


async def resume(
    context: ServerContext, who: Identity, sender: ReplaySender, name: str, form: Reasoned
) -> Notice:
    """Continue a replay; one that is sent in steps begins with the first again."""
    found = await replay_acts.resume(context, who, sender, name, reason=form.reason)
    left = unsent(found)
    first = min(left, found.care.first or left)
    steps = f" {many(first, 'letter')} first, then more." if first < left else ""
    return Notice(text=f"Goes on with {many(left, 'letter')}.{steps}")


async def cancel(context: ServerContext, who: Identity, name: str, form: Reasoned) -> Notice:
    """End a replay."""
    before = await replay_acts.find(context, who, name)
    left = size_of(before) if before.state is CampaignState.PLANNED else unsent(before)
    await replay_acts.cancel(context, who, name, reason=form.reason)
    return Notice(text=f"Cancelled. {many(left, 'letter')} were not sent and stay as they are.")
