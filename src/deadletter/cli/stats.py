"""dlq stats: what is where, in numbers."""

from rich.table import Table
from rich.text import Text

from deadletter.core.letter import State
from deadletter.office.stats import Arrivals, Stats

from .desk import AtDesk
from .tables import cell, indented, number, number_column, state, table, text_column
from .times import many, span


async def stats(*, desk: AtDesk) -> None:
    """Count what is where: messages by mailbox, letters by state."""
    async with desk.office() as office:
        found = await office.stats()
    if desk.as_json:
        desk.document(found)
        return
    desk.show(Text("Mailboxes", style="bold"))
    desk.show(indented(_mailboxes(found), below=1))
    desk.show(Text("Letters", style="bold"))
    desk.show(indented(_letters(found)))
    arrived = " · ".join(_arrived(one) for one in found.arrivals)
    if arrived:
        desk.show(indented(Text(arrived, style="dim"), above=1))


def _mailboxes(found: Stats) -> Table | Text:
    if not found.mailboxes:
        return Text("none yet", style="dim")
    shown = table()
    text_column(shown, "mailbox")
    for name in ("ready", "delayed", "claimed", "suspects"):
        number_column(shown, name)
    for name in ("sent", "handled", "buried", "failed"):
        number_column(shown, name)
    for line in found.mailboxes:
        shown.add_row(
            cell(line.mailbox, "cyan"),
            number(line.ready),
            number(line.delayed),
            number(line.claimed),
            number(line.suspects, "red"),
            number(line.sent),
            number(line.handled, "green"),
            number(line.buried, "yellow"),
            number(line.failed, "red"),
        )
    return shown


def _letters(found: Stats) -> Table | Text:
    if not found.sources:
        return Text("none", style="dim")
    states = [one for one in State if found.letters.get(one)]
    shown = table()
    text_column(shown, "source")
    for one in states:
        shown.add_column(state(one), justify="right", no_wrap=True)
    for source, counts in sorted(found.sources.items()):
        shown.add_row(cell(source), *(number(counts.get(one, 0)) for one in states))
    if len(found.sources) > 1:
        totals = (number(found.letters[one], "bold") for one in states)
        shown.add_row(Text("all", style="bold"), *totals)
    return shown


def _arrived(arrivals: Arrivals) -> str:
    least = "at least " if arrivals.at_least else ""
    window = span(arrivals.seconds).replace("1 h", "hour").replace("1 d", "day")
    return f"{least}{many(arrivals.count, 'death')} in the last {window}"
