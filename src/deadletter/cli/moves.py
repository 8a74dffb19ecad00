"""dlq note, confirm and retention."""

from collections.abc import Iterable

from cyclopts import App

from deadletter.core.errors import ConfigError
from deadletter.office.letters_protocol import LettersProtocol
from deadletter.office.verbs import Moved
from deadletter.wiring.chores import retention_of

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import AtMost, Flag, FreeText, Reason, Yes
from .ui import ask_to_confirm, bar, many
from .verbs import change


async def confirm(*messages: str, reason: Reason = "", desk: AtDesk) -> ExitCode:
    """
    Confirm that consumers have handled replayed messages.

    Consumers outside deadletter do not report outcomes. This confirms letters that wait
    for an outcome or were presumed handled.

    Args:
        messages: The message ids that the producers set.
        reason: How you know; recorded in the audit.
    """
    if not messages:
        raise ConfigError("name at least one message by its id")
    async with desk.office() as office:
        result = await office.replays.confirm(messages, desk.by(reason))
    if desk.as_json:
        desk.document(result)
    else:
        desk.tell(f"{many(result.confirmed, 'letter')} confirmed.")
        for id_ in result.unknown:
            desk.tell(f"No letter waits for message {id_}.", "yellow")
    return ExitCode.OK if result.confirmed else ExitCode.CONFLICT


async def note(
    note: str, /, *letters: str, text: FreeText = False, limit: AtMost = None, desk: AtDesk
) -> ExitCode:
    """
    Add a note to letters.

    Args:
        note: The note, in quotes.
        letters: Ids, or a search.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to change.
    """

    async def act(some: LettersProtocol, ids: Iterable[str]) -> Moved:
        return await some.note(ids, note, desk.by(""))

    return await change(desk, letters, act, "noted", text=text, limit=limit)


retention_app = App(
    name="retention",
    help="Delete finished letters after their retention. Unreviewed letters never expire.",
    help_format="markdown",
)


@retention_app.default
@retention_app.command
async def due(*, desk: AtDesk) -> None:
    """Count the letters whose retention has ended; delete nothing."""
    async with desk.here() as office:
        count = await retention_of(office, desk.settings.retention_days).due()
    if desk.as_json:
        desk.document({"due": count})
        return
    desk.tell(f"{many(count, 'letter')} past their retention: {_rules(desk)}.")


@retention_app.command
async def run(
    *, force: Flag = False, yes: Yes = False, reason: str = "retention", desk: AtDesk
) -> None:
    """
    Delete closed, replayed and discarded letters whose retention has ended.

    Refuses to delete more than half of all letters: the clock may be wrong.

    Args:
        force: Delete even if that is more than half of all letters.
        yes: Do not ask for confirmation.
        reason: Why; recorded in the audit.
    """
    async with desk.here() as office:
        retention = retention_of(office, desk.settings.retention_days)
        count = await retention.due()
        if count:
            what = f"delete {many(count, 'letter')} permanently"
            ask_to_confirm(desk, what, yes=yes, count=count)
        with bar(desk, "deleting", count) as advance:
            swept = await retention.run(desk.by(reason), force=force, on_progress=advance)
    if desk.as_json:
        desk.document(swept)
        return
    desk.tell(f"{many(swept.letters, 'letter')} and {many(swept.ledger, 'ledger key')} deleted.")


def _rules(desk: Desk) -> str:
    days = desk.settings.retention_days
    return f"closed {days.closed:g} days, replayed {days.replayed:g}, discarded {days.discarded:g}"
