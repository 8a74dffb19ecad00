"""dlq replay: send letters back, slowly enough, watched, resumable."""

import asyncio
import signal
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from deadletter.core.campaign import Campaign, CampaignState, unsent, unsettled
from deadletter.core.care import Care
from deadletter.core.errors import ConfigError, Conflict
from deadletter.office.preflight import Verdict
from deadletter.office.replay import CAP, FASTEST, HIGHEST_CAP

from .asking import agreed
from .campaigns import cancel, pause, show_campaign, show_plan, status
from .caring import Caring, Waiting, how_it_went, tell_why
from .desk import AtDesk, Desk
from .exit_codes import ExitCode
from .office import Office, SomeReplays, Wish
from .options import AtMost, Flag, Reason, Seconds, Yes
from .progress import bar
from .report import report
from .targets import choose
from .times import many
from .way_back import check_way_back, way_back

ASK_FROM = 100  # letters; fewer are sent without a question
_DOUBTFUL = frozenset({Verdict.PROCESSED, Verdict.EXPIRED})  # never without one

app = App(name="replay", help_format="markdown")
for command in (status, report, pause, cancel):
    app.command(command)

Rate = Annotated[float | None, Parameter(validator=Number(gt=0, lte=FASTEST))]
Cap = Annotated[int, Parameter(validator=Number(gte=1, lte=HIGHEST_CAP))]
AT_ONCE = Caring()


@app.default
async def replay(
    *letters: str,
    dry_run: Flag = False,
    limit: AtMost = None,
    rate: Rate = None,
    to: str | None = None,
    through: str | None = None,
    cap: Cap = CAP,
    how: Caring = AT_ONCE,
    wait: Seconds = None,
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
        dry_run: Only say what would happen.
        limit: At most so many letters.
        rate: Letters a second; as fast as it goes without.
        to: Another mailbox than the one each came from.
        through: The server that `dlq drain` found them on; each goes back there in
            the form it had.
        cap: Letters that were replayed so often are quarantined instead.
        wait: Seconds to wait for the outcome of every letter.
        reason: Why; goes into the audit.
        yes: Do not ask.
    """
    by, care = desk.by(reason), how.care()
    if through is not None:
        _check_outcomes(care)
    async with desk.office() as here, way_back(here, through, desk) as office:
        chosen = await choose(office.letters, letters, limit=limit)
        await check_way_back(office, chosen.ids, to)
        wish = Wish(chosen=chosen, by=by, to=to, cap=cap, rate=rate, care=care)
        plan = await office.plan(wish)
        if dry_run:
            show_plan(desk, plan)
            return ExitCode.OK
        if not plan.sendable:
            show_plan(desk, plan)
            raise Conflict("none of these letters can be sent")
        if not desk.as_json:
            show_plan(desk, plan, brief=True)
        doubtful = plan.verdicts.keys() & _DOUBTFUL
        if len(chosen.ids) > ASK_FROM or doubtful:
            what = f"send {many(plan.sendable, 'letter')} to {_targets(plan.targets)}"
            agreed(desk, what, yes=yes, count=plan.sendable)
        return await _run(desk, office, office.begin(wish), wait=wait)


@app.command
async def plan(
    *letters: str,
    limit: AtMost = None,
    to: str | None = None,
    cap: Cap = CAP,
    desk: AtDesk,
) -> None:
    """
    Say what a replay would do, with a verdict for every letter; sends nothing.

    Args:
        letters: Ids, or a search.
        limit: At most so many letters.
        to: Another mailbox than the one each came from.
        cap: Letters that were replayed so often are quarantined instead.
    """
    async with desk.office() as office:
        chosen = await choose(office.letters, letters, limit=limit)
        wish = Wish(chosen=chosen, by=desk.by(), to=to, cap=cap)
        found = await office.plan(wish)
    show_plan(desk, found)


@app.command
async def start(
    *letters: str,
    limit: AtMost = None,
    rate: Rate = None,
    to: str | None = None,
    cap: Cap = CAP,
    how: Caring = AT_ONCE,
    reason: Reason = "",
    expect: int | None = None,
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Choose the letters of a replay now and send them later, with `replay resume`.

    Args:
        letters: Ids, or a search.
        limit: At most so many letters.
        rate: Letters a second; as fast as it goes without.
        to: Another mailbox than the one each came from.
        cap: Letters that were replayed so often are quarantined instead.
        reason: Why; goes into the audit.
        expect: Refuse unless it is exactly this many letters.
        yes: Do not ask.
    """
    by = desk.by(reason)
    async with desk.office() as office:
        chosen = await choose(office.letters, letters, limit=limit)
        count = len(chosen.ids)
        if expect is not None and count != expect:
            raise Conflict(f"{count:,} letters match now, not {expect:,}")
        if count > ASK_FROM and expect is None:
            agreed(desk, f"plan {many(count, 'letter')}", yes=yes, count=count)
        wish = Wish(chosen=chosen, by=by, to=to, cap=cap, rate=rate, care=how.care())
        campaign = await office.begin(wish, hold=True)
    show_campaign(desk, campaign)
    desk.hint(f"Nothing is sent yet. Send it: {desk.dlq} replay resume {campaign.id}")
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
        through: The server it was sent through so far, if it was.
        take_over: The process that was sending it is gone for sure. Were it not,
            letters could be sent twice.
        reason: Why; goes into the audit.
    """
    async with desk.office() as here, way_back(here, through, desk) as office:
        if through is not None:
            _check_outcomes((await office.replay.status(campaign)).care)
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
                on_wait=Waiting(desk, shown),
            )
        if wait is not None and unsettled(campaign) and not stop.is_set():
            campaign = await _watch(desk, replay, campaign, wait, stop)
    if stop.is_set() and campaign.state is CampaignState.RUNNING and unsent(campaign):
        campaign = await replay.pause(campaign.id, desk.by("interrupted"))
        show_campaign(desk, campaign)
        resume = f"{desk.dlq} replay resume {campaign.id}"
        desk.err.print(f"Paused. Go on with: {resume}", soft_wrap=True)
        return ExitCode.INTERRUPTED
    show_campaign(desk, campaign)
    if campaign.state is CampaignState.PAUSED:
        return await tell_why(desk, office, campaign)
    if unsettled(campaign) and (wait is None or stop.is_set()):
        desk.hint(f"What became of them: {desk.dlq} replay status {campaign.id}")
    if stop.is_set():
        return ExitCode.INTERRUPTED
    return ExitCode.OK if wait is None else how_it_went(desk, campaign, wait)


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


def _check_outcomes(care: Care) -> None:
    if care.in_steps:
        raise ConfigError(
            "what becomes of letters sent --through a server of others is not told to"
            " us: with --canary, --ramp or --halt-on it would wait for ever"
        )


def _targets(targets: dict[str, int]) -> str:
    names = list(targets)
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more mailboxes"
