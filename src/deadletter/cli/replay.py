"""dlq replay: send letters back, slowly enough, watched, resumable."""

import asyncio
import signal
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec import structs

from deadletter.core.campaign import Campaign, CampaignState, unsent, unsettled
from deadletter.core.errors import ConfigError, Conflict
from deadletter.office.choosing import WIDEST
from deadletter.office.replay import CAP, FASTEST, HIGHEST_CAP
from deadletter.office.watch import PATIENCE

from .asking import agreed
from .campaigns import (
    cancel,
    elsewhere_hint,
    pause,
    show_campaign,
    show_plan,
    status,
)
from .caring import Caring, Treated, Waiting, how_it_went, tell_doubles, tell_why
from .desk import AtDesk, Desk
from .exit_codes import ExitCode
from .office import Office, SomeReplays, Wish
from .options import AtMost, Flag, FreeText, Reason, Seconds, Yes
from .progress import bar
from .remaining import tell_remaining
from .report import report
from .targets import choose
from .times import many
from .unconfirmed import stop_waiting
from .verdicts import show_verdicts
from .way_back import (
    Presume,
    check_way_back,
    name_way,
    presumption,
    resume_command,
)

ASK_FROM = 100  # letters; fewer are sent without a question

app = App(name="replay", help_format="markdown")
for command in (status, report, pause, cancel):
    app.command(command)

Rate = Annotated[float | None, Parameter(validator=Number(gt=0, lte=FASTEST))]
Cap = Annotated[int, Parameter(validator=Number(gte=1, lte=HIGHEST_CAP))]
AT_ONCE = Caring()
KEY_PATIENCE = 15.0  # seconds that letters of a key wait for the one before them
NAMED_NONE = Treated()


@app.default
async def replay(
    *letters: str,
    text: FreeText = False,
    dry_run: Flag = False,
    limit: AtMost = None,
    rate: Rate = None,
    to: str | None = None,
    through: str | None = None,
    presume: Presume = None,
    cap: Cap = CAP,
    how: Caring = AT_ONCE,
    treated: Treated = NAMED_NONE,
    wait: Seconds = None,
    unconfirmed: Flag = False,
    reason: Reason = "",
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Send letters back to be tried again, each to the mailbox it came from.

    What is sent is chosen when it starts. A letter that fails again comes back to
    itself, with its new attempts; when too many do, the replay stops by itself. One
    that stopped or was interrupted can be resumed. Expired messages go without their
    expiry, and only if you agree.

    Args:
        letters: Ids, or a search.
        text: Also take letters that contain the words which name no field.
        dry_run: Only say what would happen.
        limit: Send at most this many letters, the oldest; those left out do not count.
        rate: Letters a second; as fast as it goes without.
        to: Another mailbox than the one each came from. Letters that were drained from
            a server of others go to a mailbox of ours only with this.
        through: The server that `dlq drain` found them on, a name of [sources.NAME] or
            a URL; each goes back there in the form it had. Letters of a server that is
            named in the settings find it by themselves.
        presume: How long after sending a letter counts as presumed handled, where its
            consumer reports nothing, such as 10m; or never. Otherwise `presume_after`
            of the settings.
        cap: Letters that were replayed so often are quarantined instead.
        wait: Seconds to wait for the outcome of every letter.
        unconfirmed: Also letters that wait for the outcome of an earlier replay. If
            that copy is handled as well, the message is handled twice.
        reason: Why; goes into the audit.
        yes: Do not ask.
    """
    by, care = desk.by(reason), treated.care(how)
    care = structs.replace(care, presume_after=presumption(presume))
    async with desk.office() as office:
        way = name_way(office, through)
        chosen = await choose(office.letters, letters, text=text, widest=WIDEST)
        await check_way_back(office, way, chosen.ids, to)
        if unconfirmed and not dry_run:
            await stop_waiting(desk, office, chosen, by, yes=yes)
        wish = Wish(
            chosen=chosen,
            by=by,
            limit=limit,
            to=to,
            cap=cap,
            rate=rate,
            care=care,
            through=way,
        )
        plan = await office.plan(wish)
        if dry_run:
            show_plan(desk, plan)
            return ExitCode.OK
        if not plan.sendable:
            show_plan(desk, plan)
            raise Conflict(f"none of these letters can be sent{elsewhere_hint(plan)}")
        if not desk.as_json:
            show_plan(desk, plan, brief=True)
        if plan.sendable > ASK_FROM or plan.asked:
            what = f"send {many(plan.sendable, 'letter')} to {_targets(plan.targets)}"
            agreed(desk, what, yes=yes, count=plan.sendable)
        return await _run(desk, office, office.begin(wish), wait=wait)


@app.command
async def plan(
    *letters: str,
    text: FreeText = False,
    limit: AtMost = None,
    to: str | None = None,
    through: str | None = None,
    cap: Cap = CAP,
    treated: Treated = NAMED_NONE,
    per_letter: Annotated[bool, Parameter(name="--letters", negative="")] = False,
    desk: AtDesk,
) -> None:
    """
    Say what a replay would do, with a verdict for every letter; sends nothing.

    Where `app` in deadletter.toml or DLQ_APP names the App, bodies that its handlers
    cannot read have a verdict of their own.

    Args:
        letters: Ids, or a search.
        text: Also take letters that contain the words which name no field.
        limit: Send at most this many letters, the oldest; those left out do not count.
        to: Another mailbox than the one each came from.
        through: The server of others that they go back to: a name or a URL.
        cap: Letters that were replayed so often are quarantined instead.
        per_letter: List each letter with its verdict; with --json, one line each.
    """
    async with desk.office() as office:
        chosen = await choose(office.letters, letters, text=text, widest=WIDEST)
        wish = Wish(
            chosen=chosen,
            by=desk.by(),
            limit=limit,
            to=to,
            cap=cap,
            care=treated.care(),
            through=name_way(office, through),
        )
        if per_letter:
            await show_verdicts(desk, office, wish)
        if not per_letter or not desk.as_json:
            show_plan(desk, await office.plan(wish))


@app.command
async def start(
    *letters: str,
    text: FreeText = False,
    limit: AtMost = None,
    rate: Rate = None,
    to: str | None = None,
    through: str | None = None,
    presume: Presume = None,
    cap: Cap = CAP,
    how: Caring = AT_ONCE,
    treated: Treated = NAMED_NONE,
    reason: Reason = "",
    expect: int | None = None,
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Choose the letters of a replay now and send them later, with `replay resume`.

    Args:
        letters: Ids, or a search.
        text: Also take letters that contain the words which name no field.
        limit: Send at most this many letters, the oldest; those left out do not count.
        rate: Letters a second; as fast as it goes without.
        to: Another mailbox than the one each came from.
        through: The server of others that they go back to: a name or a URL.
        presume: How long after sending a letter counts as presumed handled, where its
            consumer reports nothing, such as 10m; or never.
        cap: Letters that were replayed so often are quarantined instead.
        reason: Why; goes into the audit.
        expect: Refuse unless it is exactly this many letters.
        yes: Do not ask.
    """
    by = desk.by(reason)
    async with desk.office() as office:
        chosen = await choose(office.letters, letters, text=text, widest=WIDEST)
        count = len(chosen.ids) if limit is None else min(limit, len(chosen.ids))
        if expect is not None and count != expect:
            match = many(count, "letter matches", "letters match")
            raise Conflict(f"{match} now, not {expect:,}")
        if count > ASK_FROM and expect is None:
            agreed(desk, f"plan {many(count, 'letter')}", yes=yes, count=count)
        wish = Wish(
            chosen=chosen,
            by=by,
            limit=limit,
            to=to,
            cap=cap,
            rate=rate,
            care=structs.replace(treated.care(how), presume_after=presumption(presume)),
            through=name_way(office, through),
        )
        campaign = await office.begin(wish, hold=True)
    show_campaign(desk, campaign)
    desk.hint(f"Nothing is sent yet. Send it: {resume_command(desk, campaign)}")
    return ExitCode.OK


@app.command
async def resume(
    campaign: str,
    /,
    *,
    rate: Rate = None,
    wait: Seconds = None,
    through: str | None = None,
    take_over: Flag = False,
    reason: Reason = "",
    desk: AtDesk,
) -> ExitCode:
    """
    Send what is left of a replay.

    Args:
        campaign: The replay's id, or the beginning of it.
        rate: Letters a second; as it was planned without.
        wait: Seconds to wait for the outcome of every letter.
        through: The URL of the server of others that it goes through, if settings do
            not name it.
        take_over: The process that was sending it is gone for sure. Were it not,
            letters could be sent twice.
        reason: Why; goes into the audit.
    """
    async with desk.office() as office:
        if (way := name_way(office, through)) is not None:
            await _check_way(office, campaign, way)
        resuming = office.resume(
            campaign, desk.by(reason), rate=rate, take_over=take_over
        )
        return await _run(desk, office, resuming, rate=rate, wait=wait)


async def _run(
    desk: Desk,
    office: Office,
    starting: Awaitable[Campaign],
    *,
    rate: float | None = None,
    wait: float | None,
) -> ExitCode:
    replay = office.replay
    with _interrupts() as stop:
        campaign = await starting
        with bar(desk, "sending", unsent(campaign)) as shown:
            campaign = await replay.run(
                campaign.id,
                rate=rate,
                stop=stop,
                on_progress=shown,
                on_wait=Waiting(desk, shown, campaign),
                patience=_patience(campaign, wait),
            )
        if wait is not None and unsettled(campaign) and not stop.is_set():
            campaign = await _watch(desk, replay, campaign, wait, stop)
    if stop.is_set() and campaign.state is CampaignState.RUNNING and unsent(campaign):
        campaign = await replay.pause(campaign.id, desk.by("interrupted"))
        show_campaign(desk, campaign)
        resume = resume_command(desk, campaign)
        desk.err.print(f"Paused. Go on with: {resume}", soft_wrap=True)
        return ExitCode.INTERRUPTED
    show_campaign(desk, campaign)
    await tell_doubles(desk, office, campaign)
    if campaign.state is CampaignState.PAUSED:
        code = await tell_why(desk, office, campaign)
        return max(code, await tell_remaining(desk, office, campaign))
    if unsettled(campaign) and (wait is None or stop.is_set()):
        desk.hint(f"What became of them: {desk.dlq} replay status {campaign.id}")
    if stop.is_set():
        return ExitCode.INTERRUPTED
    code = ExitCode.OK if wait is None else how_it_went(desk, campaign, wait)
    return max(code, await tell_remaining(desk, office, campaign))


async def _watch(
    desk: Desk,
    replay: SomeReplays,
    campaign: Campaign,
    wait: float,
    stop: asyncio.Event,
) -> Campaign:
    seen = unsettled(campaign)
    with bar(desk, "waiting for outcomes", seen) as advance:

        def look(now: Campaign) -> None:
            nonlocal seen
            advance(seen - unsettled(now))
            seen = unsettled(now)

        return await replay.wait_confirmed(
            campaign.id, timeout=wait, stop=stop, on_look=look
        )


@contextmanager
def _interrupts() -> Iterator[asyncio.Event]:
    """Interrupts set an event instead of breaking off in the middle of a batch."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for one in signals:
        loop.add_signal_handler(one, stop.set)
    try:
        yield stop
    finally:
        for one in signals:
            loop.remove_signal_handler(one)


def _patience(campaign: Campaign, wait: float | None) -> float:
    """Seconds without any outcome after which the command stops waiting for some."""
    if campaign.care.in_steps:
        return PATIENCE
    return max(KEY_PATIENCE, wait or 0.0)


async def _check_way(office: Office, campaign: str, way: str) -> None:
    planned = (await office.replay.status(campaign)).through
    if way != planned:
        goes = f"through {planned}" if planned else "to mailboxes of ours"
        raise ConfigError(f"this replay goes {goes}, not through {way}: start another")


def _targets(targets: dict[str, int]) -> str:
    names = list(targets)
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more mailboxes"
