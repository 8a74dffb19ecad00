"""dlq without a command, dlq stats and dlq outages: open problems, counts, and outages."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from cyclopts import App
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deadletter.core.brake import BrakeKind, WindowState
from deadletter.core.campaign import Unsettled, together
from deadletter.core.deaths import sparkline, told
from deadletter.core.letter import State, still_open
from deadletter.core.text import clean
from deadletter.office.mailboxes import Outage, unworked
from deadletter.office.stats import Arrivals, Stats
from deadletter.ports import QueueInfo

from .desk import AtDesk, Desk
from .groups import group_table
from .options import Flag, Reason, Shown, Yes
from .ui import (
    Counts,
    Name,
    ago,
    ask_to_confirm,
    cell,
    count_tables,
    firm_column,
    indented,
    many,
    name_column,
    number,
    number_column,
    span,
    state,
    table,
)

outages_app = App(
    name="outages",
    help="List outages, during which workers stopped receiving; end them by hand.",
    help_format="markdown",
)
_STYLES = {WindowState.OPEN: "bold red", WindowState.SILENT: "yellow", WindowState.CLOSED: "dim"}


@outages_app.default
@outages_app.command(name="list")
async def list_(
    mailbox: str | None = None, /, *, open: Flag = False, limit: Shown = 20, desk: AtDesk
) -> None:
    """
    List outages, during which workers stopped receiving messages, latest first.

    An *outage* is a series of transient failures: a service is down. *Systemic* means
    that nearly all messages fail for one cause, such as a bad deploy. During both, no
    attempts are counted and no messages are buried.

    Args:
        mailbox: Only outages of this mailbox.
        open: Only outages that have not ended.
        limit: The most outages to show.
    """
    async with desk.office() as office:
        found = await office.mailboxes.outages(mailbox=mailbox, only_open=open, limit=limit)
    if desk.as_json:
        for outage in found:
            desk.document(outage)
        return
    if not found:
        desk.tell("No outage is open." if open else "No outages.")
        return
    now = desk.clock.now()
    shown = table()
    firm_column(shown, "state")
    name_column(shown, "mailbox")
    for name in ("kind", "since", "lasted"):
        firm_column(shown, name)
    number_column(shown, "held")
    firm_column(shown, "version")
    for outage in found:
        window = outage.window
        end = now if outage.state is WindowState.OPEN else window.until
        shown.add_row(
            Text(outage.state, _STYLES[outage.state]),
            Name(window.mailbox, "cyan"),
            cell(window.kind),
            cell(ago(window.opened_at, now)),
            cell(span((end - window.opened_at).total_seconds())),
            number(window.held),
            cell(clean(window.version)),
        )
    desk.show(shown)
    show_open(desk, found)


@outages_app.command
async def release(mailbox: str, /, *, reason: Reason = "", yes: Yes = False, desk: AtDesk) -> None:
    """
    End an outage by hand: workers receive messages again, and policies apply.

    Messages that fail permanently are buried. Workers continue within seconds, and do
    not stop for the same cause for a day.

    Args:
        mailbox: The mailbox to release.
        reason: Why; recorded in the audit.
        yes: Do not ask for confirmation.
    """
    ask_to_confirm(desk, f"count attempts for {mailbox} and bury its messages", yes=yes)
    async with desk.office() as office:
        done = await office.mailboxes.release(mailbox, desk.by(reason))
    if desk.as_json:
        desk.document(done)
    else:
        workers = many(done.windows, "worker")
        desk.tell(f"Released {workers} of {mailbox}. See the result: {desk.dlq} outages")


def show_open(desk: Desk, outages: Sequence[Outage]) -> None:
    """Show the open outages, their causes, and what to do."""
    for outage in outages:
        window = outage.window
        if outage.state is not WindowState.OPEN:
            continue
        since = span((desk.clock.now() - window.opened_at).total_seconds())
        desk.tell(
            f"{window.mailbox} has been stopped for {since} ({window.kind}): {window.text}",
            "bold red",
        )
        if window.release is not None:
            desk.tell(f"  {window.release.actor} has released it.", "dim")
        elif window.kind is BrakeKind.SYSTEMIC:
            desk.tell(
                "  It ends by itself when a probe is handled. To bury its messages: "
                f"{desk.dlq} outages release {window.mailbox}",
                "dim",
            )


_TOP = 5


async def overview(*, desk: AtDesk) -> None:
    """Show the open problems and the commands to continue with."""
    file = desk.file() if desk.server is None else None
    if file is not None and not file.exists() and not desk.as_json:
        _welcome(desk)
        return
    async with desk.office() as office:
        counts = await office.letters.counts()
        top = await office.groups.list(limit=_TOP)
        queues = await office.mailboxes.list()
        outages = await office.mailboxes.outages(only_open=True)
        unsettled = await office.waiting()
    totals = {state: sum(states.get(state, 0) for states in counts.values()) for state in State}
    now = desk.clock.now()
    waiting = sum(queue.ready + queue.delayed for queue in queues)
    suspects = sum(queue.suspects for queue in queues)
    if desk.as_json:
        desk.document(
            {
                "open": still_open(totals),
                "letters": totals,
                "groups": top.groups,
                "waiting": waiting,
                "suspects": suspects,
                "held_back": outages,
                "unsettled": unsettled,
                "unworked": [one.options.name for one in unworked(queues, now)],
            }
        )
        return
    opened = still_open(totals)
    show_open(desk, outages)
    if not opened:
        desk.tell("No open letters.", "" if unsettled or outages else "green")
    elif not top.groups:
        desk.tell(f"{many(opened, 'open letter')} in snoozed or muted groups.", "bold")
        desk.tell(f"  {desk.dlq} groups --all", "dim")
    else:
        desk.tell(f"{many(opened, 'open letter')}, by cause:", "bold")
        shown = group_table(top.groups, now, desk.out.width - 2)
        desk.show(indented(shown))
        if top.after is not None:
            desk.tell(f"  … and more: {desk.dlq} groups", "dim")
    if unsettled:
        desk.tell(f"{waiting_text(unsettled, now)}.", "yellow")
        desk.tell(f"  {desk.dlq} list is:{State.REPLAYING}", "dim")
    for queue in unworked(queues, now)[:_TOP]:
        desk.tell(f"{unworked_text(queue, now)}.", "yellow")
    desk.tell(_totals(totals, waiting, suspects), "dim")
    _show_next(desk, top.groups[0].fingerprint if top.groups else "")


def waiting_text(waits: Iterable[Unsettled], now: datetime) -> str:
    """Return a sentence about letters that wait for an outcome."""
    letters, since = together(waits)
    text = f"{letters:,} {'letter waits' if letters == 1 else 'letters wait'}"
    text += " for the outcome of a replay"
    if since is None:
        return text
    waited = span(max((now - since).total_seconds(), 0.0))
    return f"{text}, {'' if letters == 1 else 'the oldest '}for {waited}"


def unworked_text(queue: QueueInfo, now: datetime) -> str:
    """Return a sentence about a mailbox that seems to have no worker."""
    ready = f"{queue.ready:,} {'message is' if queue.ready == 1 else 'messages are'}"
    name = clean(queue.options.name)
    text = f"Is a worker running for {name}? {ready} ready, and no worker holds any"
    if queue.oldest_at is None:
        return text
    return f"{text}; the oldest was sent {ago(queue.oldest_at, now)}"


def _totals(totals: dict[State, int], waiting: int, suspects: int) -> str:
    parts = [f"{many(waiting, 'message')} waiting"]
    if suspects:
        parts.append(f"{many(suspects, 'suspect')} of lost workers")
    parts += [
        f"{totals[state]:,} {state}"
        for state in State
        if state is not State.PENDING and totals[state]
    ]
    return " · ".join(parts)


def _welcome(desk: Desk) -> None:
    desk.tell(f"There is no office at {desk.file()} yet.")
    steps = Table.grid(padding=(0, 2, 0, 0))
    steps.add_row(Text("dlq send orders '{\"id\": 1}'", "cyan"), "send a message")
    steps.add_row(Text("dlq work shop:app", "cyan"), "run the handlers of an App")
    steps.add_row(Text("dlq --url sqlite:///other.db", "cyan"), "use another engine")
    steps.add_row(Text("dlq --help", "cyan"), "all commands")
    desk.show(indented(steps))


def _show_next(desk: Desk, group: str) -> None:
    dlq = desk.dlq
    if group:
        query = f"group:{clean(group)}"
        rows = [
            (f"{dlq} groups show {clean(group)}", "what its letters share"),
            (f"{dlq} list {query}", "its letters"),
            (f"{dlq} show ID", "the whole story of a letter"),
            (f"{dlq} replay {query} --dry-run", "what a replay would do"),
        ]
    else:
        rows = [
            (f"{dlq} stats", "count messages and letters"),
            (f"{dlq} verify", "check that no message was lost"),
        ]
    rows.append(("dlq --help", "all commands"))
    steps = Table.grid(padding=(0, 2, 0, 0))
    for command, what in rows:
        steps.add_row(Text(command, "cyan"), Text(what))
    if desk.dlq == "dlq":
        desk.show(indented(steps, above=1))
        return
    desk.show(Text())
    for command, _ in rows:  # long commands, one per line, so that they can be copied
        desk.tell(f"  {command}", "cyan")


_COUNTED: Final = {
    "ready": "",
    "delayed": "",
    "claimed": "",
    "suspects": "red",
    "sent": "",
    "handled": "green",
    "buried": "yellow",
    "failed": "red",
}


async def stats(*, desk: AtDesk) -> None:
    """Count messages by mailbox and letters by state."""
    async with desk.office() as office:
        found = await office.stats()
    if desk.as_json:
        desk.document(found)
        return
    width = desk.out.width - 2  # because the tables are indented
    desk.show(Text("Mailboxes", style="bold"))
    for shown in _mailboxes(found, width):
        desk.show(indented(shown, below=1))
    desk.show(Text("Letters", style="bold"))
    for above, shown in enumerate(_letters(found, width)):
        desk.show(indented(shown, above=min(above, 1)))
    if found.unsettled:
        text = f"{waiting_text(found.unsettled, desk.clock.now())}."
        desk.show(indented(Text(text, style="yellow"), above=1))
    arrived = " · ".join(_arrived(one) for one in found.arrivals)
    if arrived:
        desk.show(indented(Text(arrived, style="dim"), above=1))
    if found.deaths_by_hour:
        line = f"{sparkline(found.deaths_by_hour)}  {told(found.deaths_by_hour)}"
        desk.show(indented(Text(f"{line}, last 24 hours", style="dim")))


def _mailboxes(found: Stats, width: int) -> Iterable[RenderableType]:
    lines = found.mailboxes
    if not lines:
        return [Text("none yet", style="dim")]
    columns = [
        Counts(Text(name), [number(getattr(line, name), style) for line in lines])
        for name, style in _COUNTED.items()
    ]
    names = [Name(line.mailbox, "cyan") for line in lines]
    return count_tables("mailbox", names, columns, width)


def _letters(found: Stats, width: int) -> Iterable[RenderableType]:
    if not found.sources:
        return [Text("none", style="dim")]
    sources = sorted(found.sources.items())
    names = [Name(source) for source, _ in sources]
    is_summed = len(sources) > 1
    columns = []
    for one in (one for one in State if found.letters.get(one)):
        numbers = [number(counts.get(one, 0)) for _, counts in sources]
        if is_summed:
            numbers.append(number(found.letters[one], "bold"))
        columns.append(Counts(state(one), numbers))
    if is_summed:
        names.append(Name("all", "bold"))
    return count_tables("source", names, columns, width)


def _arrived(arrivals: Arrivals) -> str:
    window = span(arrivals.seconds).replace("1 h", "hour").replace("1 d", "day")
    return f"{many(arrivals.count, 'death')} in the last {window}"
