"""dlq replay: plan, start and resume replays."""

import asyncio
import signal
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec import structs

from deadletter.core.campaign import Campaign, CampaignState, Verdict, unsent, unsettled
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By, State
from deadletter.office.batches import batched
from deadletter.office.letters_protocol import LettersProtocol
from deadletter.office.office_protocol import OfficeProtocol
from deadletter.office.replay import FASTEST, HIGHEST_CAP
from deadletter.office.replay_steps import PATIENCE
from deadletter.office.replay_verdicts import CAP
from deadletter.office.replays import ReplayRequest, ReplaysProtocol
from deadletter.office.selection import WIDEST, Chosen

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import AtMost, Flag, FreeText, Reason, Seconds, Yes, choose
from .replay_care import (
    Presume,
    StepOptions,
    VerdictOptions,
    Waiting,
    explain_pause,
    presumption,
    resume_command,
    summarize_wait,
    warn_of_duplicates,
)
from .replay_status import (
    approve,
    cancel,
    elsewhere_hint,
    pause,
    report,
    show_campaign,
    show_plan,
    show_remaining,
    status,
)
from .ui import NARROW, Name, ask_to_confirm, bar, cell, many, short, table

_NAMED: Final = 50  # letters in one search, which must not be too long
_WAITING: Final = f"is:{State.REPLAYING}"


async def stop_waiting(
    desk: Desk, office: OfficeProtocol, chosen: Chosen, by: By, *, yes: bool
) -> None:
    """
    Reopen the chosen letters that wait for an outcome, so that they can be sent again.

    Their copies may still be handled, and then the message is handled twice. So the
    user always has to confirm, even for one letter.
    """
    ids = await _waiting(office.letters, chosen)
    if not ids:
        return
    they = "letter that waits" if len(ids) == 1 else "letters that wait"
    what = (
        f"stop waiting for the outcome of {len(ids):,} {they}, and send"
        f" {'it' if len(ids) == 1 else 'them'} again; a copy that was already sent may"
        " be handled as well"
    )
    ask_to_confirm(desk, what, yes=yes, count=len(ids))
    result = await office.letters.reopen(ids, by, unconfirmed=True)
    if not desk.as_json:
        desk.tell(f"{many(result.moved, 'letter')} reopened.")


async def _waiting(letters: LettersProtocol, chosen: Chosen) -> list[str]:
    if chosen.query:
        found = frozenset(await letters.freeze(f"{_WAITING} ({chosen.query})"))
        return [id_ for id_ in chosen.ids if id_ in found]
    ids: list[str] = []
    for some in batched(chosen.ids, _NAMED):
        ids += await letters.freeze(f"{_WAITING} id:[{','.join(some)}]")
    return ids


async def show_verdicts(desk: Desk, office: OfficeProtocol, request: ReplayRequest) -> None:
    """Print each letter with its verdict, page by page."""
    width, is_first = desk.out.width, True
    async for some in office.replays.verdicts(request):
        if desk.as_json:
            for one in some:
                desk.document(one)
            continue
        shown = table()
        shown.show_header, is_first = is_first, False
        shown.add_column("letter", width=len(short("x" * 24, width)))
        shown.add_column("verdict", width=max(map(len, Verdict)))
        shown.add_column("to")
        if width >= NARROW:
            shown.add_column("source")
        for one in some:
            is_sent = request.care.sends(one.verdict)
            shown.add_row(
                cell(short(one.letter_id, width), "cyan"),
                cell(one.verdict, "green" if one.verdict is Verdict.READY else ""),
                Name(one.target if is_sent else ""),
                *([Name(one.source)] if width >= NARROW else []),
            )
        desk.show(shown)


ASK_FROM = 100  # letters; fewer are sent without a question

app = App(name="replay", help_format="markdown")
for command in (status, report, approve, pause, cancel):
    app.command(command)

Rate = Annotated[float | None, Parameter(validator=Number(gt=0, lte=FASTEST))]
Cap = Annotated[int, Parameter(validator=Number(gte=1, lte=HIGHEST_CAP))]
AT_ONCE = StepOptions()
KEY_PATIENCE = 15.0  # seconds that a letter waits for the one before it of the same key
NO_VERDICTS = VerdictOptions()


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
    how: StepOptions = AT_ONCE,
    verdicts: VerdictOptions = NO_VERDICTS,
    wait: Seconds = None,
    unconfirmed: Flag = False,
    reason: Reason = "",
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Send letters back to the mailboxes they came from.

    The selection is fixed when the replay starts. A message that fails again returns to its
    letter, with the new attempts. If too many fail, the replay pauses. A paused or
    interrupted replay can be resumed. Expired messages are sent without their expiry, after
    you confirm it.

    Args:
        letters: Ids, or a search.
        text: Allow words without a field, which match the text of letters.
        dry_run: Show what would happen; send nothing.
        limit: Send at most this many letters, oldest first; skipped letters do not count.
        rate: Maximum letters per second (default: unlimited).
        to: Send all letters to this mailbox. Required to send letters that were drained
            from another server to a mailbox of this engine.
        through: The server that `dlq drain` took the letters from: a name of
            [sources.NAME], or a URL. Each letter returns there in its original form. Not
            needed for servers in the settings.
        presume: The time after which a sent letter is presumed handled if its consumer
            reports nothing, such as 10m, or never (default: `presume_after` in the
            settings).
        cap: Quarantine letters that have been replayed this many times already.
        wait: Seconds to wait for the outcomes of all letters.
        unconfirmed: Also send letters that wait for the outcome of an earlier replay. If
            that copy is handled as well, the message is handled twice.
        reason: Why; recorded in the audit.
        yes: Do not ask for confirmation.
    """
    by, care = desk.by(reason), verdicts.care(how)
    care = structs.replace(care, presume_after=presumption(presume))
    async with desk.office() as office:
        server = None if through is None else office.replays.name_server(through)
        chosen = await choose(office.letters, letters, text=text, widest=WIDEST)
        request = ReplayRequest(
            chosen=chosen, by=by, limit=limit, to=to, cap=cap, rate=rate, care=care, through=server
        )
        await office.replays.check_server(request)
        if unconfirmed and not dry_run:
            await stop_waiting(desk, office, chosen, by, yes=yes)
        plan = await office.replays.plan(request)
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
            ask_to_confirm(desk, what, yes=yes, count=plan.sendable)
        return await _run(desk, office, office.replays.begin(request), wait=wait)


@app.command
async def plan(
    *letters: str,
    text: FreeText = False,
    limit: AtMost = None,
    to: str | None = None,
    through: str | None = None,
    cap: Cap = CAP,
    verdicts: VerdictOptions = NO_VERDICTS,
    per_letter: Annotated[bool, Parameter(name="--letters", negative="")] = False,
    desk: AtDesk,
) -> None:
    """
    Show what a replay would do, with a verdict per letter; send nothing.

    If DLQ_APP or `app` in deadletter.toml names the App, bodies that its handlers cannot
    read get a verdict of their own.

    Args:
        letters: Ids, or a search.
        text: Allow words without a field, which match the text of letters.
        limit: Send at most this many letters, oldest first; skipped letters do not count.
        to: Send all letters to this mailbox.
        through: The server that the letters were drained from: a name or a URL.
        cap: Quarantine letters that have been replayed this many times already.
        per_letter: List each letter with its verdict; with --json, one line each.
    """
    async with desk.office() as office:
        chosen = await choose(office.letters, letters, text=text, widest=WIDEST)
        request = ReplayRequest(
            chosen=chosen,
            by=desk.by(),
            limit=limit,
            to=to,
            cap=cap,
            care=verdicts.care(),
            through=None if through is None else office.replays.name_server(through),
        )
        if per_letter:
            await show_verdicts(desk, office, request)
        if not per_letter or not desk.as_json:
            show_plan(desk, await office.replays.plan(request))


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
    how: StepOptions = AT_ONCE,
    verdicts: VerdictOptions = NO_VERDICTS,
    reason: Reason = "",
    expect: int | None = None,
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Select the letters of a replay now; `dlq replay resume` sends them later.

    Args:
        letters: Ids, or a search.
        text: Allow words without a field, which match the text of letters.
        limit: Send at most this many letters, oldest first; skipped letters do not count.
        rate: Maximum letters per second (default: unlimited).
        to: Send all letters to this mailbox.
        through: The server that the letters were drained from: a name or a URL.
        presume: The time after which a sent letter is presumed handled if its consumer
            reports nothing, such as 10m, or never.
        cap: Quarantine letters that have been replayed this many times already.
        reason: Why; recorded in the audit.
        expect: Refuse unless exactly this many letters were selected.
        yes: Do not ask for confirmation.
    """
    by = desk.by(reason)
    async with desk.office() as office:
        chosen = await choose(office.letters, letters, text=text, widest=WIDEST)
        count = len(chosen.ids) if limit is None else min(limit, len(chosen.ids))
        if expect is not None and count != expect:
            match = many(count, "letter matches", "letters match")
            raise Conflict(f"{match} now, not {expect:,}")
        if count > ASK_FROM and expect is None:
            ask_to_confirm(desk, f"plan {many(count, 'letter')}", yes=yes, count=count)
        request = ReplayRequest(
            chosen=chosen,
            by=by,
            limit=limit,
            to=to,
            cap=cap,
            rate=rate,
            care=structs.replace(verdicts.care(how), presume_after=presumption(presume)),
            through=None if through is None else office.replays.name_server(through),
        )
        campaign = await office.replays.begin(request, hold=True)
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
    Send the rest of a replay.

    Args:
        campaign: The id of the replay, or the beginning of it.
        rate: Maximum letters per second (default: as planned).
        wait: Seconds to wait for the outcomes of all letters.
        through: The URL of the server that the letters were drained from, if it is not
            in the settings.
        take_over: Continue a running replay whose sender has died. If the sender is
            alive, letters can be sent twice.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        if through is not None:
            await _check_server(office, campaign, office.replays.name_server(through))
        resuming = office.replays.resume(campaign, desk.by(reason), rate=rate, take_over=take_over)
        return await _run(desk, office, resuming, rate=rate, wait=wait)


async def _run(
    desk: Desk,
    office: OfficeProtocol,
    starting: Awaitable[Campaign],
    *,
    rate: float | None = None,
    wait: float | None,
) -> ExitCode:
    replay = office.replays
    with _interrupts() as stop:
        campaign = await starting
        with bar(desk, "sending", unsent(campaign)) as shown:
            campaign = await replay.run(
                campaign.id,
                rate=rate,
                stop=stop,
                on_progress=shown,
                on_wait=Waiting(desk, shown, campaign),
                patience=_wait_limit(campaign, wait),
            )
        if wait is not None and unsettled(campaign) and not stop.is_set():
            campaign = await _watch(desk, replay, campaign, wait, stop)
    if stop.is_set() and campaign.state is CampaignState.RUNNING and unsent(campaign):
        campaign = await replay.pause(campaign.id, desk.by("interrupted"))
        show_campaign(desk, campaign)
        resume = resume_command(desk, campaign)
        desk.err.print(f"Paused. Continue with: {resume}", soft_wrap=True)
        return ExitCode.INTERRUPTED
    show_campaign(desk, campaign)
    await warn_of_duplicates(desk, office, campaign)
    if campaign.state is CampaignState.PAUSED:
        code = await explain_pause(desk, office, campaign)
        return max(code, await show_remaining(desk, office, campaign))
    if unsettled(campaign) and (wait is None or stop.is_set()):
        desk.hint(f"See the outcomes: {desk.dlq} replay status {campaign.id}")
    if stop.is_set():
        return ExitCode.INTERRUPTED
    code = ExitCode.OK if wait is None else summarize_wait(desk, campaign, wait)
    return max(code, await show_remaining(desk, office, campaign))


async def _watch(
    desk: Desk, replay: ReplaysProtocol, campaign: Campaign, wait: float, stop: asyncio.Event
) -> Campaign:
    seen = unsettled(campaign)
    with bar(desk, "waiting for outcomes", seen) as advance:

        def look(now: Campaign) -> None:
            nonlocal seen
            advance(seen - unsettled(now))
            seen = unsettled(now)

        return await replay.wait_confirmed(campaign.id, timeout=wait, stop=stop, on_look=look)


@contextmanager
def _interrupts() -> Iterator[asyncio.Event]:
    """Yield an event that interrupts set, so that a batch in progress is finished."""
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


def _wait_limit(campaign: Campaign, wait: float | None) -> float:
    """Return the seconds without any outcome after which the command stops waiting."""
    if campaign.care.in_steps:
        return PATIENCE
    return max(KEY_PATIENCE, wait or 0.0)


async def _check_server(office: OfficeProtocol, campaign: str, server: str) -> None:
    planned = (await office.replays.status(campaign)).through
    if server != planned:
        target = f"through {planned}" if planned else "to mailboxes of this engine"
        raise ConfigError(
            f"this replay sends its letters {target}, not through {server}: start a new one"
        )


def _targets(targets: dict[str, int]) -> str:
    names = list(targets)
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more mailboxes"
