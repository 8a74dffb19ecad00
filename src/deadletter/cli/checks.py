"""dlq verify, dlq doctor: does it add up, and is it well?"""

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from deadletter.core.safe import clean
from deadletter.office.doctor import Check, Health, examine, worst
from deadletter.office.verify import CONFLICTS, Conflicts
from deadletter.office.verify import verify as add_up

from .desk import AtDesk, Desk
from .exit_codes import ExitCode
from .progress import bar
from .tables import Name, name_column, number, number_column, table
from .times import many

_STYLES: Final = {Health.OK: "green", Health.WARN: "yellow", Health.FAIL: "bold red"}


async def verify(*, desk: AtDesk) -> ExitCode:
    """
    Add everything up: what came in must be what went out and what is still there.

    Exit code 6 when something is missing, doubled or was changed. Letters whose
    message id or key was used with another body as well are named; nothing is lost.
    """
    async with desk.engine() as engine:
        with bar(desk, "adding up", None):
            found = await add_up(engine.broker, engine.letters)
        counts = engine.broker.features.tallies
    code = ExitCode.OK if found.ok else ExitCode.CHECK_FAILED
    if desk.as_json:
        desk.document(
            {
                "ok": found.ok,
                "findings": found.findings,
                "mailboxes": found.mailboxes,
                "letters": found.letters,
                "conflicts": found.conflicts,
            }
        )
        return code
    if found.mailboxes:
        shown = table()
        name_column(shown, "mailbox")
        for name in ("sent", "left it", "in it", "difference"):
            number_column(shown, name)
        for line in found.mailboxes:
            shown.add_row(
                Name(line.mailbox, "cyan"),
                number(line.sent),
                number(line.left),
                number(line.present),
                number(line.sent - line.left - line.present, "bold red"),
            )
        desk.show(shown)
    for finding in found.findings:
        desk.show(Text(f"✗ {clean(finding)}", style="red"))
    if found.ok:
        total = sum(line.sent for line in found.mailboxes)
        messages = f"{many(total, 'message')} and " if counts else ""
        desk.tell(
            f"✓ {messages}{many(found.letters, 'letter')} "
            "add up; the audit is unbroken.",
            "green",
        )
    _show_conflicts(desk, found.conflicts)
    if not counts:
        desk.tell("This engine does not count messages: there is nothing to add up.")
    return code


def _show_conflicts(desk: Desk, found: Conflicts) -> None:
    if not found.total:
        return
    desk.show(
        Text(
            f"! {many(found.total, 'letter')} with an id or key that was used with"
            f" another body as well, {found.open:,} still open:",
            style="yellow",
        )
    )
    for id_ in found.ids:
        desk.show(Text(f"  {id_}", style="cyan"))
    if found.total > len(found.ids):
        desk.show(Text(f"  and {found.total - len(found.ids):,} more", style="dim"))
    desk.hint(f"See them all: {desk.dlq} list {CONFLICTS!r}")


async def doctor(*, desk: AtDesk) -> ExitCode:
    """
    Look at everything that tends to go wrong, and say what to do about it.

    Exit code 6 when something is broken; warnings alone are 0.
    """
    async with desk.engine() as engine:
        checks = await examine(engine, desk.clock, desk.file())
    return show_checks(desk, checks)


def show_checks(desk: Desk, checks: Sequence[Check]) -> ExitCode:
    """What was looked at and how it is; a failure is an exit code of its own."""
    failed = worst(checks) is Health.FAIL
    code = ExitCode.CHECK_FAILED if failed else ExitCode.OK
    if desk.as_json:
        for check in checks:
            desk.document(check)
        return code
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for check in checks:
        shown.add_row(
            Text(check.health, style=_STYLES[check.health]),
            Text(check.name),
            Text(clean(check.text)),
        )
    desk.show(shown)
    return code
