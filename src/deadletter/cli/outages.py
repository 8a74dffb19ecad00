"""dlq outages: when brakes were open, what they held, and the word to go on."""

from collections.abc import Sequence

from cyclopts import App
from rich.text import Text

from deadletter.core.brake import BrakeKind, WindowState
from deadletter.core.text import clean
from deadletter.office.mailboxes import Outage

from .desk import AtDesk, Desk
from .options import Flag, Reason, Shown, Yes
from .ui import (
    Name,
    ago,
    agreed,
    cell,
    firm_column,
    many,
    name_column,
    number,
    number_column,
    span,
    table,
)

app = App(
    name="outages",
    help="Times that mailboxes were held back by the brake: list them, go on.",
    help_format="markdown",
)
_STYLES = {WindowState.OPEN: "bold red", WindowState.SILENT: "yellow", WindowState.CLOSED: "dim"}


@app.default
@app.command(name="list")
async def list_(
    mailbox: str | None = None, /, *, open: Flag = False, limit: Shown = 20, desk: AtDesk
) -> None:
    """
    List the times that mailboxes were held back, the latest first.

    An *outage* is transient failures: something is down. *Systemic* is one cause
    that fails nearly everything: a bad deploy. Meanwhile nothing is charged or buried.

    Args:
        mailbox: Only of this mailbox.
        open: Only those that last.
        limit: How many to show.
    """
    async with desk.office() as office:
        found = await office.mailboxes.outages(mailbox=mailbox, only_open=open, limit=limit)
    if desk.as_json:
        for outage in found:
            desk.document(outage)
        return
    if not found:
        desk.tell("No mailbox is held back." if open else "No mailbox was held back.")
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


@app.command
async def release(mailbox: str, /, *, reason: Reason = "", yes: Yes = False, desk: AtDesk) -> None:
    """
    Go on, though everything fails: messages are judged by their policy again.

    Those that fail for good are buried. Workers hear of it within seconds, and do
    not stop for the same cause for a day.

    Args:
        mailbox: Whose messages are to be tried again.
        reason: Why; recorded in the audit.
        yes: Do not ask for confirmation.
    """
    agreed(desk, f"let messages of {mailbox} be charged and buried", yes=yes)
    async with desk.office() as office:
        done = await office.mailboxes.release(mailbox, desk.by(reason))
    if desk.as_json:
        desk.document(done)
    else:
        workers = many(done.windows, "worker")
        desk.tell(f"{workers} of {mailbox} told to go on; {desk.dlq} outages shows it.")


def show_open(desk: Desk, outages: Sequence[Outage]) -> None:
    """Say what is held back now, why, and what to do."""
    for outage in outages:
        window = outage.window
        if outage.state is not WindowState.OPEN:
            continue
        since = span((desk.clock.now() - window.opened_at).total_seconds())
        desk.tell(
            f"{window.mailbox} has been held back for {since} ({window.kind}): {window.text}",
            "bold red",
        )
        if window.release is not None:
            desk.tell(f"  {window.release.actor} has said to go on.", "dim")
        elif window.kind is BrakeKind.SYSTEMIC:
            desk.tell(
                "  It goes on by itself when a probe is handled. To have them buried: "
                f"{desk.dlq} outages release {window.mailbox}",
                "dim",
            )
