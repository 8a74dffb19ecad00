"""dlq replay status, pause, cancel; and how plans and replays look."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deadletter.core.campaign import Campaign, CampaignState, Outcome, unsent
from deadletter.core.letter import State
from deadletter.core.safe import clean
from deadletter.core.verdicts import BLOCKED, Verdict
from deadletter.office.preflight import Plan

from .caring import tell_doubles, tell_why
from .desk import AtDesk, Desk
from .options import AtMost, Reason
from .paging import pages, tell_of_more
from .remaining import tell_remaining
from .tables import (
    NARROW,
    cell,
    firm_column,
    indented,
    number,
    number_column,
    short,
    table,
    text_column,
)
from .times import ago, many
from .way_back import resume_command

_SHOWN: Final = 20  # replays, unless somebody says how many
_WHOLE_ID: Final = 110  # columns from which there is room for whole ids of replays
_SAID: Final = {
    Verdict.READY: "ready to be sent",
    Verdict.ORDERED: "with an ordering key: newer messages of it may have gone ahead",
    Verdict.CREDENTIALS: "with credentials in their headers, perhaps stale by now",
    Verdict.NO_MAILBOX: "to a mailbox that does not exist yet; it will be made",
    Verdict.ID_IN_USE: "their job id is in use by another job: they go under a new id,"
    " and only with --include id-in-use",
    Verdict.EXPIRED: "expired: too late by their own word, sent without their expiry",
    Verdict.UNREADABLE: "with a body that the handler cannot read: would die again",
    Verdict.PROCESSED: "processed meanwhile, says the ledger",
    Verdict.ELSEWHERE: "not sent: drained from another server of others",
    Verdict.PAST_CAP: "not sent: replayed too often, they will be quarantined",
    Verdict.WRONG_STATE: "not sent: not open any more",
}
OUTCOMES: Final = {
    Outcome.CONFIRMED: ("handled", "green"),
    Outcome.PRESUMED: ("presumed handled: they did not die again in time", "green"),
    Outcome.FAILED: ("failed again", "red"),
    Outcome.REFUSED: ("refused: the server they go to does not take them", "red"),
    Outcome.SENT: ("sent, no outcome yet", "yellow"),
    Outcome.SENDING: ("being sent", "yellow"),
    Outcome.WAITING: ("waiting for the letter before them of their key", ""),
    Outcome.UNCONFIRMED: ("sent, nobody waits for an outcome any more", "dim"),
    Outcome.PLANNED: ("not sent yet", ""),
    Outcome.HELD: ("held back: one before them of their key was not confirmed", "red"),
    Outcome.SKIPPED: ("skipped: not open any more, past the cap, or processed", "dim"),
}

_WITHOUT_OUTCOME: Final = (Outcome.SENT, Outcome.UNCONFIRMED)
_NEVER_SENT: Final = {  # of a replay that was cancelled
    Outcome.WAITING: ("not sent", ""),
    Outcome.PLANNED: ("not sent", ""),
}


async def status(
    campaign: str | None = None,
    /,
    *,
    limit: AtMost = None,
    after: str | None = None,
    desk: AtDesk,
) -> None:
    """
    Show the replays, latest first, or one of them.

    Where there is more, standard error says how to go on.

    Args:
        campaign: The replay's id, or the beginning of it.
        limit: How many to show. Otherwise 20; with --json, all of them.
        after: Where an earlier list ended, to go on from there.
    """
    if campaign:
        async with desk.office() as office:
            named = await office.replay.status(campaign)
            show_campaign(desk, named)
            await tell_doubles(desk, office, named)
            await tell_why(desk, office, named)
            await tell_remaining(desk, office, named)
        return
    most = limit or (None if desk.as_json else _SHOWN)
    found: list[Campaign] = []
    async with desk.office() as office:

        async def read(
            size: int, after: str | None
        ) -> tuple[Sequence[Campaign], str | None]:
            page = await office.replay.page(limit=size, after=after)
            return page.replays, page.after

        async for replays, ended in pages(read, most, after):
            if desk.as_json:
                for one in replays:
                    desk.document(campaign_fields(one))
            found += replays
            after = ended
    if found and not desk.as_json:
        desk.show(_replays(found, desk.clock.now(), desk.out.width))
    elif not desk.as_json:
        desk.tell("Nothing has been replayed yet.")
    tell_of_more(desk, ["replay", "status"], limit, after)


async def pause(campaign: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    Stop sending a replay for now, wherever it is being sent.

    Args:
        campaign: The replay's id, or the beginning of it.
        reason: Why; goes into the audit.
    """
    async with desk.office() as office:
        found = await office.replay.pause(campaign, desk.by(reason))
    show_campaign(desk, found)
    desk.hint(f"Go on with: {resume_command(desk, found)}")


async def cancel(campaign: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    Send no more of a replay. Letters that were not sent stay as they are.

    Args:
        campaign: The replay's id, or the beginning of it.
        reason: Why; goes into the audit.
    """
    async with desk.office() as office:
        found = await office.replay.cancel(campaign, desk.by(reason))
    show_campaign(desk, found)


def show_campaign(desk: Desk, campaign: Campaign) -> None:
    """One replay, its counts and where it stands."""
    if desk.as_json:
        desk.document(campaign_fields(campaign))
        return
    now = desk.clock.now()
    title = Text("Replay ", style="bold")
    title.append(campaign.id, style="bold cyan")
    title.append(f"  {_standing(campaign)}")
    desk.show(title)
    about = [
        f"by {campaign.actor} {ago(campaign.created_at, now)}",
        campaign.reason,
        f"through {campaign.through}" if campaign.through else "",
    ]
    desk.show(Text(f"  {clean(' · '.join(part for part in about if part))}", "dim"))
    desk.show(Text(f"  {clean(campaign.query)}", "dim", overflow="ellipsis"))
    counts = [(one, campaign.counts.get(one, 0)) for one in OUTCOMES]
    is_cancelled = campaign.state is CampaignState.CANCELLED
    said = OUTCOMES | (_NEVER_SENT if is_cancelled else {})
    desk.show(_sums([(n, *said[outcome]) for outcome, n in counts if n]))
    if is_cancelled and campaign.counts.get(Outcome.SENT):
        desk.hint("Those without an outcome may still get one: their copies are sent.")
    if campaign.counts.keys() == {Outcome.CONFIRMED}:
        _hint_resolve(desk, campaign)


def _hint_resolve(desk: Desk, campaign: Campaign) -> None:
    """Say how to resolve the group whose letters were all handled."""
    group = re.fullmatch(r"group:([\w.-]+)\*?", campaign.query)
    if group is not None:
        resolve = f"{desk.dlq} groups resolve {group[1]} --in VERSION"
        desk.hint(f"If this will not happen again, say since which version: {resolve}")


def show_plan(desk: Desk, plan: Plan, *, brief: bool = False) -> None:
    """What a replay would do; the brief form only if there is something to say."""
    if desk.as_json:
        desk.document(plan_fields(plan))
        return
    if brief and plan.verdicts.keys() == {Verdict.READY}:
        return
    rows = [
        (n, _said(plan, verdict), _style(plan, verdict))
        for verdict, n in plan.verdicts.items()
    ]
    desk.show(_sums(rows))
    if brief:
        return
    for verdict in (one for one in plan.verdicts if one is not Verdict.READY):
        some = ", ".join(short(one) for one in plan.samples[verdict])
        desk.hint(f"  {verdict}: {some}")
    if plan.targets:
        targets = ", ".join(f"{name} ({n:,})" for name, n in plan.targets.items())
        through = f" through {plan.through}" if plan.through else ""
        letters = many(plan.sendable, "letter")
        desk.tell(f"{letters} would be sent to {targets}{through}.")
    else:
        desk.tell("Nothing would be sent.")
    if plan.verdicts.get(Verdict.ELSEWHERE):
        desk.warn(f"Some letters stay{elsewhere_hint(plan)}.")
    if waiting := plan.states.get(State.REPLAYING):
        they = "letter waits" if waiting == 1 else "letters wait"
        desk.warn(
            f"{waiting:,} {they} for the outcome of an earlier replay; --unconfirmed"
            f" sends {'it' if waiting == 1 else 'them'} again."
        )
    if plan.more:
        desk.hint(f"The limit of {plan.sendable:,} was reached; there may be more.")


def elsewhere_hint(plan: Plan) -> str:
    """What to do about letters that were drained from another server."""
    if not plan.verdicts.get(Verdict.ELSEWHERE):
        return ""
    return (
        ": those drained from a server of others go back with --through NAME or URL,"
        " or to a mailbox of ours with --to. With [sources.NAME] in deadletter.toml"
        " they find their server by themselves, one server at a time"
    )


def _replays(found: Sequence[Campaign], now: datetime, width: int) -> Table:
    is_narrow = width < NARROW
    shown = table()
    firm_column(shown, "replay")
    firm_column(shown, "state")
    if not is_narrow:
        number_column(shown, "to send")
        number_column(shown, "no outcome")
    number_column(shown, "handled")
    is_presumed = any(one.counts.get(Outcome.PRESUMED) for one in found)
    if is_presumed:
        number_column(shown, "presumed")
    number_column(shown, "failed")
    if not is_narrow:
        firm_column(shown, "started")
    text_column(shown, "what")
    for one in found:
        sent = sum(one.counts.get(how, 0) for how in _WITHOUT_OUTCOME)
        cells = [
            cell(one.id[:13] if width < _WHOLE_ID else one.id, "cyan"),
            cell(_standing(one)),
        ]
        if not is_narrow:
            is_cancelled = one.state is CampaignState.CANCELLED
            to_send = 0 if is_cancelled else unsent(one)
            cells += [number(to_send), number(sent, "yellow")]
        cells.append(number(one.counts.get(Outcome.CONFIRMED, 0), "green"))
        if is_presumed:
            cells.append(number(one.counts.get(Outcome.PRESUMED, 0), "green"))
        cells.append(number(one.counts.get(Outcome.FAILED, 0), "red"))
        if not is_narrow:
            cells.append(cell(ago(one.created_at, now)))
        shown.add_row(*cells, cell(one.query))
    return shown


def campaign_fields(campaign: Campaign) -> dict[str, Any]:
    """A replay as a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(campaign)
    return fields


def plan_fields(plan: Plan) -> dict[str, Any]:
    """A plan as a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    fields["sendable"] = plan.sendable
    return fields


def _standing(campaign: Campaign) -> str:
    if campaign.state is CampaignState.RUNNING and not unsent(campaign):
        return "all sent"  # and not done before every copy has an outcome
    return campaign.state


def _sums(rows: list[tuple[int, str, str]]) -> Padding:
    sums = Table.grid(padding=(0, 2, 0, 0))
    sums.add_column(justify="right", no_wrap=True)
    sums.add_column(overflow="fold")
    for count, text, style in rows:
        sums.add_row(Text(f"{count:,}", style=style or "bold"), Text(text))
    return indented(sums)


def _said(plan: Plan, verdict: Verdict) -> str:
    if verdict in plan.left_out and verdict not in BLOCKED:
        return f"not sent: {_SAID[verdict]}"
    return _SAID[verdict]


def _style(plan: Plan, verdict: Verdict) -> str:
    if verdict in plan.left_out:
        return "red"
    return "green" if verdict is Verdict.READY else "yellow"
