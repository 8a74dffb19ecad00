"""dlq replay status, report, pause and cancel."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter
from msgspec import Struct
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deadletter.core.campaign import (
    BLOCKED,
    Campaign,
    CampaignState,
    Outcome,
    ReplayItem,
    Verdict,
    unsent,
)
from deadletter.core.letter import LetterHead, State, error_name
from deadletter.core.text import clean
from deadletter.office.aftermath import Cause
from deadletter.office.batches import batched
from deadletter.office.letters_protocol import LettersProtocol
from deadletter.office.office_protocol import OfficeProtocol
from deadletter.office.preflight import Plan

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import AtMost, Flag, Reason
from .replay_care import explain_pause, resume_command, same_way, warn_of_duplicates
from .ui import (
    NARROW,
    Name,
    ago,
    cell,
    error_of,
    firm_column,
    indented,
    local,
    many,
    number,
    number_column,
    pages,
    short,
    show_next_page,
    table,
    text_column,
)

_PER_SEARCH: Final = 50  # letters, because a search must not be too long
_MOST: Final = 500  # letters for which the office is asked whether they are open
_NAMED: Final = 10
_SINGULAR_PLURAL: Final = {
    Outcome.FAILED: ("letter failed again and is", "letters failed again and are"),
    Outcome.REFUSED: (
        "letter was refused by the target server and is",
        "letters were refused by the target server and are",
    ),
    Outcome.UNCONFIRMED: ("letter has no outcome and is", "letters have no outcome and are"),
    Outcome.HELD: (
        "letter was held behind another one of its key and is",
        "letters were held behind others of their key and are",
    ),
}


class Remaining(Struct, frozen=True):
    """Open letters that a replay sent without success, by their outcome."""

    ids: Mapping[Outcome, Sequence[str]] = {}
    at_least: bool = False  # only some were looked up, because there were too many


async def items_of(office: OfficeProtocol, campaign: str) -> AsyncIterator[Sequence[ReplayItem]]:
    """Yield the outcomes of a replay's letters, page by page."""
    after: int | None = 0
    while after is not None:
        page = await office.replays.outcomes(campaign, after=after)
        after = page.after
        yield page.items


async def still_to_replay(office: OfficeProtocol, campaign: Campaign) -> Remaining:
    """Return the letters that failed again or were held, and that are still open."""
    wanted = _outcomes_to_replay(campaign)
    if not wanted:
        return Remaining()
    found: dict[str, Outcome] = {}
    async for page in items_of(office, campaign.id):
        found |= {one.letter_id: one.outcome for one in page if one.outcome in wanted}
        if len(found) >= _MOST:
            break
    ids: dict[Outcome, list[str]] = {outcome: [] for outcome in wanted}
    for some in batched(found, _PER_SEARCH):
        opened = frozenset(await office.letters.freeze(f"is:open id:[{','.join(some)}]"))
        for id_ in some:
            if id_ in opened:
                ids[found[id_]].append(id_)
    return Remaining(ids, len(found) >= _MOST)


async def show_remaining(desk: Desk, office: OfficeProtocol, campaign: Campaign) -> ExitCode:
    """Print the letters that still need a replay, and the command that sends them."""
    left = await still_to_replay(office, campaign)
    every = [id_ for ids in left.ids.values() for id_ in ids]
    if not every:
        return ExitCode.OK
    least = "At least " if left.at_least else ""
    for outcome, ids in left.ids.items():
        if ids:
            which = _SINGULAR_PLURAL[outcome][len(ids) > 1]
            names = ", ".join(short(id_) for id_ in ids[:_NAMED])
            more = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
            desk.warn(f"{least}{len(ids):,} {which} open: {names}{more}.")
    they = "it" if len(every) == 1 else "them"
    if campaign.state is CampaignState.PAUSED:
        desk.warn(f"`dlq replay resume` does not send {they} again.")
    desk.warn(f"When the cause is fixed, send {they} again:")
    if len(every) <= _NAMED:
        names = " ".join(map(short, every))
        desk.warn(f"  {desk.dlq} replay {names}{same_way(desk, campaign)}")
    else:
        which = " ".join(f"--outcome {outcome}" for outcome in left.ids)
        report = f"{desk.dlq} replay report {campaign.id} {which} --ids"
        options = same_way(desk, campaign)
        desk.warn(f"  {report} | xargs {desk.dlq} replay --yes{options}")
    return ExitCode.CHECK_FAILED


def _outcomes_to_replay(campaign: Campaign) -> list[Outcome]:
    """Return the outcomes of letters that may need a replay, in printing order."""
    counts = campaign.counts
    wanted = [one for one in (Outcome.FAILED, Outcome.REFUSED, Outcome.HELD) if counts.get(one)]
    if Outcome.HELD in wanted and counts.get(Outcome.UNCONFIRMED):
        # Letters are also held behind these, and must not be sent before them.
        wanted.insert(-1, Outcome.UNCONFIRMED)
    return wanted


_SHOWN: Final = 20  # replays, unless --limit is given
_WHOLE_ID: Final = 110  # columns from which there is room for whole ids of replays
_VERDICT_TEXTS: Final = {
    Verdict.READY: "ready to be sent",
    Verdict.ORDERED: "with an ordering key: newer messages of it may have been processed",
    Verdict.CREDENTIALS: "with credentials in their headers, which may have expired",
    Verdict.NO_MAILBOX: "to a mailbox that does not exist yet; it will be created",
    Verdict.ID_IN_USE: "their job id is in use by another job: they are sent under a new"
    " id, and only with --include id-in-use",
    Verdict.EXPIRED: "expired: they will be sent without their expiry",
    Verdict.UNREADABLE: "with a body that the handler cannot read: would fail again",
    Verdict.PROCESSED: "already processed, according to the ledger",
    Verdict.ELSEWHERE: "not sent: drained from another server",
    Verdict.PAST_CAP: "not sent: replayed too often, they will be quarantined",
    Verdict.WRONG_STATE: "not sent: not open any more",
}
OUTCOMES: Final = {
    Outcome.CONFIRMED: ("handled", "green"),
    Outcome.PRESUMED: ("presumed handled: they did not fail again in time", "green"),
    Outcome.FAILED: ("failed again", "red"),
    Outcome.REFUSED: ("refused: the target server does not accept them", "red"),
    Outcome.SENT: ("sent, no outcome yet", "yellow"),
    Outcome.SENDING: ("being sent", "yellow"),
    Outcome.WAITING: ("waiting for an earlier letter of their key", ""),
    Outcome.UNCONFIRMED: ("sent, no longer waiting for an outcome", "dim"),
    Outcome.PLANNED: ("not sent yet", ""),
    Outcome.HELD: ("held back: an earlier letter of their key was not confirmed", "red"),
    Outcome.SKIPPED: ("skipped: not open any more, past the cap, or processed", "dim"),
}

_WITHOUT_OUTCOME: Final = (Outcome.SENT, Outcome.UNCONFIRMED)
_NEVER_SENT: Final = {  # texts for a cancelled replay
    Outcome.WAITING: ("not sent", ""),
    Outcome.PLANNED: ("not sent", ""),
}


async def status(
    campaign: str | None = None, /, *, limit: AtMost = None, after: str | None = None, desk: AtDesk
) -> None:
    """
    List replays, latest first, or show one of them.

    If there are more, standard error names the command that continues the list.

    Args:
        campaign: The id of the replay, or the beginning of it.
        limit: The most replays to show (default: 20; with --json, all).
        after: Continue a list: the value that the earlier list printed at its end.
    """
    if campaign:
        async with desk.office() as office:
            named = await office.replays.status(campaign)
            show_campaign(desk, named)
            await warn_of_duplicates(desk, office, named)
            await show_causes(desk, office, named)
            await explain_pause(desk, office, named)
            await show_remaining(desk, office, named)
        return
    most = limit or (None if desk.as_json else _SHOWN)
    found: list[Campaign] = []
    async with desk.office() as office:

        async def read(size: int, after: str | None) -> tuple[Sequence[Campaign], str | None]:
            page = await office.replays.page(limit=size, after=after)
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
    show_next_page(desk, ["replay", "status"], limit, after)


async def pause(campaign: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    Pause a replay, whichever process is sending it.

    Args:
        campaign: The id of the replay, or the beginning of it.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        found = await office.replays.pause(campaign, desk.by(reason))
    show_campaign(desk, found)
    desk.hint(f"Continue with: {resume_command(desk, found)}")


async def cancel(campaign: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    Cancel a replay. Letters that were not sent do not change.

    Args:
        campaign: The id of the replay, or the beginning of it.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        found = await office.replays.cancel(campaign, desk.by(reason))
    show_campaign(desk, found)


async def approve(
    campaign: str, /, *, expect: int | None = None, reason: Reason = "", desk: AtDesk
) -> None:
    """
    Agree to a replay that somebody else planned, so that it can be started.

    A server needs this for replays of more letters than `serve.approve_above`. It refuses
    whoever planned the replay.

    Args:
        campaign: The id of the replay, or the beginning of it.
        expect: Refuse unless exactly this many letters would be sent.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        found = await office.replays.approve(campaign, desk.by(reason), expect=expect)
    show_campaign(desk, found)
    desk.hint(f"Start it with: {resume_command(desk, found)}")


async def show_causes(desk: Desk, office: OfficeProtocol, campaign: Campaign) -> None:
    """Print why letters of a replay failed again, by cause."""
    if desk.as_json or not campaign.counts.get(Outcome.FAILED):
        return
    found = await office.replays.aftermath(campaign.id)
    if found.causes:
        desk.show(_sums([(one.letters, _cause(one), "red") for one in found.causes]))


def _cause(cause: Cause) -> str:
    which = "the same error" if cause.is_same else "another error"
    error = f"{clean(error_name(cause.error_type))} {clean(cause.text)}".strip()
    return f"{which}: {error} (group {cause.fingerprint})"


def show_campaign(desk: Desk, campaign: Campaign) -> None:
    """Print a replay with its state and its counts."""
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
    texts = OUTCOMES | (_NEVER_SENT if is_cancelled else {})
    desk.show(_sums([(n, *texts[outcome]) for outcome, n in counts if n]))
    if is_cancelled and campaign.counts.get(Outcome.SENT):
        desk.hint("Letters without an outcome may still get one: their copies were sent.")
    if campaign.counts.keys() == {Outcome.CONFIRMED}:
        _hint_resolve(desk, campaign)


def _hint_resolve(desk: Desk, campaign: Campaign) -> None:
    """Print how to resolve the group if all its letters were handled."""
    group = re.fullmatch(r"group:([\w.-]+)\*?", campaign.query)
    if group is not None:
        resolve = f"{desk.dlq} groups resolve {group[1]} --in VERSION"
        desk.hint(f"If a version fixes the cause, resolve the group: {resolve}")


def show_plan(desk: Desk, plan: Plan, *, brief: bool = False) -> None:
    """Print what a replay would do; the brief form only if it has something to report."""
    if desk.as_json:
        desk.document(plan_fields(plan))
        return
    if brief and plan.verdicts.keys() == {Verdict.READY}:
        return
    rows = [
        (n, _text_of(plan, verdict), _style(plan, verdict)) for verdict, n in plan.verdicts.items()
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
    """Return a hint about letters that were drained from another server."""
    if not plan.verdicts.get(Verdict.ELSEWHERE):
        return ""
    return (
        ": letters drained from another server need --through NAME or URL, or --to for a"
        " mailbox of this engine. With [sources.NAME] in deadletter.toml a replay finds"
        " their server by itself, one server at a time"
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
        cells = [cell(one.id[:13] if width < _WHOLE_ID else one.id, "cyan"), cell(_standing(one))]
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
    """Return a replay as a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(campaign)
    return fields


def plan_fields(plan: Plan) -> dict[str, Any]:
    """Return a plan as a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    fields["sendable"] = plan.sendable
    return fields


def _standing(campaign: Campaign) -> str:
    if campaign.state is CampaignState.RUNNING and not unsent(campaign):
        return "all sent"  # it is done only when every copy has an outcome
    return campaign.state


def _sums(rows: list[tuple[int, str, str]]) -> Padding:
    sums = Table.grid(padding=(0, 2, 0, 0))
    sums.add_column(justify="right", no_wrap=True)
    sums.add_column(overflow="fold")
    for count, text, style in rows:
        sums.add_row(Text(f"{count:,}", style=style or "bold"), Text(text))
    return indented(sums)


def _text_of(plan: Plan, verdict: Verdict) -> str:
    if verdict in plan.left_out and verdict not in BLOCKED:
        return f"not sent: {_VERDICT_TEXTS[verdict]}"
    return _VERDICT_TEXTS[verdict]


def _style(plan: Plan, verdict: Verdict) -> str:
    if verdict in plan.left_out:
        return "red"
    return "green" if verdict is Verdict.READY else "yellow"


_ROOMY: Final = 100  # columns from which the source column is wider
_AGO: Final = 10  # columns: "59 min ago"
_REPORT_TEXTS: Final = {
    **{outcome: text for outcome, (text, _) in OUTCOMES.items()},
    Outcome.SENT: "sent",
    Outcome.PRESUMED: "presumed",
    Outcome.REFUSED: "refused",
    Outcome.UNCONFIRMED: "unconfirmed",
    Outcome.WAITING: "waiting",
    Outcome.SKIPPED: "skipped",
    Outcome.HELD: "held",
}

_LATE: Final = "confirmed, then failed again"


async def report(
    campaign: str,
    /,
    *,
    outcome: Annotated[tuple[Outcome, ...], Parameter(negative="", show_default=False)] = (),
    ids: Flag = False,
    desk: AtDesk,
) -> ExitCode:
    """
    List the outcome of each letter of a replay, in sending order.

    With --json, each letter is one line; the totals are in `dlq replay status ID --json`. A
    confirmed letter can fail again later: then its outcome is failed, and `confirmed_at` is
    the time of its confirmation. The exit code is 6 if there is such a letter.

    Args:
        campaign: The id of the replay, or the beginning of it.
        outcome: Only letters with this outcome: confirmed (handled), presumed (did not
            fail again in time), failed (failed again) or refused (never sent). Can be
            repeated.
        ids: Print only the ids, one per line, for other commands.
    """
    named = 0
    late: list[ReplayItem] = []
    async with desk.office() as office:
        found = await office.replays.status(campaign)
        if not desk.as_json and not ids:
            show_campaign(desk, found)
        async for page in items_of(office, found.id):
            late += (one for one in page if one.failed_late)
            items = [one for one in page if not outcome or one.outcome in outcome]
            if not items:
                continue
            if ids:
                for item in items:
                    desk.tell(item.letter_id)
            elif desk.as_json:
                for item in items:
                    desk.document(item)
            else:
                heads = await _heads(office.letters, items)
                shown = _table(desk, items, heads, with_header=not named)
                desk.show(shown if named else Padding(shown, (1, 0, 0, 0)))
            named += len(items)
    if not desk.as_json and not ids:
        _show_late(desk, late)
        _show_unlisted(desk, found, outcome, named)
    return ExitCode.CHECK_FAILED if late else ExitCode.OK


async def _heads(letters: LettersProtocol, items: Sequence[ReplayItem]) -> dict[str, LetterHead]:
    """Return the letters that exist and that the caller may see."""
    heads: dict[str, LetterHead] = {}
    for ids in batched((item.letter_id for item in items), _PER_SEARCH):
        page = await letters.search(f"id:[{','.join(ids)}]", limit=len(ids))
        heads |= {head.id: head for head in page.heads}
    return heads


def _table(
    desk: Desk, items: Sequence[ReplayItem], heads: Mapping[str, LetterHead], *, with_header: bool
) -> Table:
    # Only the last column has no fixed width, so that the columns of all pages align.
    width, now = desk.out.width, desk.clock.now()
    shown = table()
    shown.show_header = with_header
    shown.add_column("letter", width=len(short(items[0].letter_id, width)))
    shown.add_column("outcome", width=max(map(len, _REPORT_TEXTS.values())))
    shown.add_column("when", width=_AGO)
    if width >= NARROW:
        shown.add_column("source", width=18 if width >= _ROOMY else 12)
    shown.add_column("error")
    for item in items:
        head = heads.get(item.letter_id)
        at = item.settled_at or item.sent_at or item.taken_at
        _, style = OUTCOMES[item.outcome]
        shown.add_row(
            cell(short(item.letter_id, width), "cyan"),
            Text(_LATE if item.failed_late else _REPORT_TEXTS[item.outcome], style=style),
            cell(ago(at, now) if at else ""),
            *([Name(head.source if head else "")] if width >= NARROW else []),
            cell(f"refused: {item.why}" if item.why else error_of(head) if head else ""),
        )
    return shown


def _show_late(desk: Desk, late: Sequence[ReplayItem]) -> None:
    times = [one.settled_at for one in late if one.settled_at is not None]
    if not times:
        return
    were = "letter was" if len(late) == 1 else "letters were"
    last = f"at {local(max(times))}" if len(late) == 1 else f"last at {local(max(times))}"
    desk.tell(f"{len(late):,} {were} {_LATE}, {last}.", "red")


def _show_unlisted(
    desk: Desk, campaign: Campaign, outcome: tuple[Outcome, ...], named: int
) -> None:
    gone = sum(campaign.counts.values()) - named
    if outcome:
        if not named:
            desk.tell(f"No letter of this replay has the outcome {' or '.join(outcome)}.")
    elif gone > 0:
        desk.tell(f"{many(gone, 'letter')} purged since, not listed.", "dim")
    if not outcome and 0 < campaign.counts.get(Outcome.FAILED, 0) < named:
        only = f"{desk.dlq} replay report {campaign.id} --outcome {Outcome.FAILED}"
        desk.hint(f"Only those that failed again: {only}")
