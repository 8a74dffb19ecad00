"""dlq workers: who works which mailbox, in which version."""

from cyclopts import App
from rich.text import Text

from deadletter.core.text import clean
from deadletter.office.workers import WorkerLine, version_spread

from .desk import AtDesk
from .ui import Name, ago, cell, firm_column, many, name_column, number, number_column, table

app = App(
    name="workers",
    help="List the workers that run: mailboxes, versions, brakes.",
    help_format="markdown",
)


@app.default
async def list_(mailbox: str | None = None, /, *, desk: AtDesk) -> None:
    """
    List the workers that the office has heard of lately.

    Each worker says every ten seconds that it runs. One that was not heard of for half a
    minute is shown as silent, and forgotten after five minutes.

    Args:
        mailbox: Only workers of this mailbox.
    """
    async with desk.office() as office:
        found = await office.workers()
    lines = [one for one in found if mailbox is None or mailbox in _names(one)]
    if desk.as_json:
        for line in lines:
            desk.document(line)
        return
    if not lines:
        where = f" of {mailbox}" if mailbox else ""
        desk.tell(f"No worker{where} was heard of in the last five minutes.")
        return
    now = desk.clock.now()
    shown = table()
    name_column(shown, "worker")
    name_column(shown, "mailbox")
    firm_column(shown, "version")
    number_column(shown, "in hand")
    firm_column(shown, "seen")
    name_column(shown, "state")
    for line in lines:
        boxes = [box for box in line.mailboxes if mailbox in (None, box.mailbox)]
        for place, box in enumerate(boxes):
            is_first = place == 0
            shown.add_row(
                Name(line.name if is_first else "", "cyan"),
                Name(box.mailbox),
                cell(clean(line.version) if is_first else ""),
                number(box.in_flight),
                cell(ago(line.seen_at, now) if is_first else ""),
                _state(line, box.brake, box.trouble),
            )
    desk.show(shown)
    spread = version_spread(lines)
    desk.tell(f"{many(len(lines), 'worker')}{f'; {spread}' if spread else ''}.")


def _names(line: WorkerLine) -> list[str]:
    return [box.mailbox for box in line.mailboxes]


def _state(line: WorkerLine, brake: str, trouble: str) -> Text:
    if line.is_silent:
        return Text("silent", "yellow")
    if brake:
        return cell(f"brake open: {brake}", "bold red")
    return cell(trouble, "yellow") if trouble else Text("works", "green")
