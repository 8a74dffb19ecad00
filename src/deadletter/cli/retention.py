"""dlq retention: let go of what is finished and old."""

from cyclopts import App

from deadletter.wiring.chores import retention_of

from .desk import AtDesk, Desk
from .options import Flag, Yes
from .ui import agreed, bar, many

app = App(
    name="retention",
    help="Let go of finished letters past their time. The unreviewed never expires.",
    help_format="markdown",
)


@app.default
@app.command
async def due(*, desk: AtDesk) -> None:
    """Say how many letters are past their time; deletes nothing."""
    async with desk.here() as office:
        count = await retention_of(office, desk.settings.retention_days).due()
    if desk.as_json:
        desk.document({"due": count})
        return
    desk.tell(f"{many(count, 'letter')} past their time: {_rules(desk)}.")


@app.command
async def run(
    *, force: Flag = False, yes: Yes = False, reason: str = "retention", desk: AtDesk
) -> None:
    """
    Delete letters that were closed, replayed or discarded and are past their time.

    Refuses when more than half of all letters would go: the clock may have jumped.

    Args:
        force: Also if more than half of all letters would go.
        yes: Do not ask for confirmation.
        reason: Why; recorded in the audit.
    """
    async with desk.here() as office:
        retention = retention_of(office, desk.settings.retention_days)
        count = await retention.due()
        if count:
            what = f"delete {many(count, 'letter')} for good"
            agreed(desk, what, yes=yes, count=count)
        with bar(desk, "deleting", count) as advance:
            swept = await retention.run(desk.by(reason), force=force, on_progress=advance)
    if desk.as_json:
        desk.document(swept)
        return
    desk.tell(f"{many(swept.letters, 'letter')} and {many(swept.ledger, 'ledger key')} deleted.")


def _rules(desk: Desk) -> str:
    days = desk.settings.retention_days
    return f"closed {days.closed:g} days, replayed {days.replayed:g}, discarded {days.discarded:g}"
