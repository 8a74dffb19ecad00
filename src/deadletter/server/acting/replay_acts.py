"""Acts on replays: plan, start, pause, resume and cancel."""

from msgspec import Struct, structs

from deadletter.core.access import Identity, Role
from deadletter.core.campaign import Campaign, size_of
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.office.preflight import Plan
from deadletter.office.replay_plans import PlanWish
from deadletter.office.replay_sender import ReplaySender
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import Selected, check_not_elsewhere
from deadletter.server.auth.guards import check_role
from deadletter.server.context import ServerContext


class Planned(Struct, frozen=True, kw_only=True):
    """A planned replay and its expected result; `sendable` letters would be sent."""

    replay: Campaign
    plan: Plan
    sendable: int


async def judge(context: ServerContext, who: Identity, request: ReplayRequest) -> Selected:
    """Choose the letters of a replay that the caller may start; nothing is stored."""
    check_role(who, Role.OPERATOR)
    check_target(context, who, request.to)
    check_source(context, request.through)
    selected = await context.office.replays.select(request)
    if not selected.plan.total:
        raise NotFound("none of these letters exists: there is nothing to replay")
    check_not_elsewhere(selected)
    return selected


async def plan(context: ServerContext, who: Identity, request: ReplayRequest) -> Planned:
    """Record a replay that waits for its start."""
    selected = await judge(context, who, request)
    campaign = await context.office.replays.begin(request, hold=True, selected=selected)
    return Planned(replay=campaign, plan=selected.plan, sendable=selected.plan.sendable)


async def freeze(
    context: ServerContext, who: Identity, sender: ReplaySender, request: ReplayRequest
) -> Campaign:
    """Record a planned replay at once; its letters are judged in the background."""
    check_role(who, Role.OPERATOR)
    check_target(context, who, request.to)
    check_source(context, request.through)
    campaign = await context.office.replays.freeze(request)
    await sender.judge(campaign.id)
    return campaign


async def agree(
    context: ServerContext,
    who: Identity,
    name: str,
    wish: PlanWish,
    *,
    reason: str = "",
    expect: int | None = None,
) -> Campaign:
    """Change which verdicts a judged replay leaves out or includes, before its start."""
    campaign = await _find_to_change(context, who, name)
    return await context.office.replays.agree(campaign.id, who.by(reason), wish, expect=expect)


async def approve(
    context: ServerContext, who: Identity, name: str, *, reason: str = "", expect: int | None = None
) -> Campaign:
    """Agree to a replay that somebody else planned."""
    campaign = await _find_to_change(context, who, name)
    return await context.office.replays.approve(campaign.id, who.by(reason), expect=expect)


async def start_plan(
    context: ServerContext, sender: ReplaySender, found: Planned, by: By
) -> Planned:
    """Start a replay that was just planned; cancel it if no letter can be sent."""
    if not found.sendable:
        because = By(by.actor, "none of its letters can be sent")
        await context.office.replays.cancel(found.replay.id, because)
        raise Conflict("none of these letters can be sent: plan the replay to see why")
    campaign = await sender.start(found.replay.id, by)
    return structs.replace(found, replay=campaign)


async def start_at_once(
    context: ServerContext, who: Identity, sender: ReplaySender, request: ReplayRequest
) -> Planned:
    """Plan a replay and start it; cancel it if a verdict needs a confirmation."""
    found = await plan(context, who, request)
    if found.plan.asked:
        because = By(who.name, "some of its verdicts were not confirmed")
        await context.office.replays.cancel(found.replay.id, because)
        which = ", ".join(f"{found.plan.verdicts[one]:,} {one}" for one in found.plan.asked)
        raise Conflict(
            f"some of these letters need a confirmation: {which}. Name the verdict in"
            " care.include or care.skip, or plan the replay and start it"
        )
    return await start_plan(context, sender, found, request.by)


async def start(
    context: ServerContext,
    who: Identity,
    sender: ReplaySender,
    name: str,
    *,
    reason: str = "",
    expect: int | None = None,
) -> Campaign:
    """Start a replay that waits for it; `expect` is the number of letters it must have."""
    campaign = await _find_to_change(context, who, name)
    size = size_of(campaign)
    if expect is not None and expect != size:
        raise Conflict(f"the replay has {many(size, 'letter')}, not {expect:,}")
    check_target(context, who, campaign.to)
    return await sender.start(campaign.id, who.by(reason))


async def pause(context: ServerContext, who: Identity, name: str, *, reason: str = "") -> Campaign:
    """Pause a replay, wherever it is being sent."""
    campaign = await _find_to_change(context, who, name)
    return await context.office.replays.pause(campaign.id, who.by(reason))


async def resume(
    context: ServerContext,
    who: Identity,
    sender: ReplaySender,
    name: str,
    *,
    reason: str = "",
    take_over: bool = False,
) -> Campaign:
    """Continue a replay here; with `take_over` one whose sender has died."""
    campaign = await _find_to_change(context, who, name)
    check_target(context, who, campaign.to)
    return await sender.start(campaign.id, who.by(reason), take_over=take_over)


async def cancel(context: ServerContext, who: Identity, name: str, *, reason: str = "") -> Campaign:
    """Cancel a replay. Letters that were not sent keep their state."""
    campaign = await _find_to_change(context, who, name)
    return await context.office.replays.cancel(campaign.id, who.by(reason))


async def find(context: ServerContext, who: Identity, name: str) -> Campaign:
    """Return a replay, by its id or the beginning of it; limited callers see only their own."""
    # A replay may have letters of any mailbox.
    return await context.office.replays.status(name, seen=lambda one: who.owns(one.owner))


async def _find_to_change(context: ServerContext, who: Identity, name: str) -> Campaign:
    check_role(who, Role.OPERATOR)
    return await find(context, who, name)


def check_target(context: ServerContext, who: Identity, to: str | None) -> None:
    """
    Raise ConfigError unless the settings allow replays to this mailbox.

    A limited caller can only use mailboxes that the token sees. The error is the same in
    both cases, so that it does not reveal other mailboxes.
    """
    if to is not None and not (who.sees(to) and to in context.settings.serve.replay_to):
        raise ConfigError(
            f"letters cannot be replayed to {to!r}: name a mailbox that serve.replay_to"
            " contains and your token sees"
        )


def check_source(context: ServerContext, name: str | None) -> None:
    """Raise ConfigError unless the settings name the server; a URL is never accepted."""
    if name is not None and name not in context.settings.sources:
        raise ConfigError(
            f"there is no source {name!r} in the settings: add [sources.NAME] with its url"
            " to deadletter.toml"
        )
