"""dlq review, note, close, reopen, confirm, discard, restore, purge and retention."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from cyclopts import App

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By, State
from deadletter.office.letters import IS_REPLAYING, LettersProtocol, Moved
from deadletter.wiring.chores import retention_of

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import AtMost, Flag, FreeText, Reason, Yes, choose
from .ui import ask_to_confirm, bar, many, through

_WAITING: Final = f"is:{State.REPLAYING}"

Verb = Callable[[LettersProtocol, Iterable[str], By], Awaitable[Moved]]


async def review(
    *letters: str, reason: Reason = "", text: FreeText = False, limit: AtMost = None, desk: AtDesk
) -> ExitCode:
    """
    Mark pending letters as reviewed.

    Args:
        letters: Ids, or a search.
        reason: What you found; recorded in the audit.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to change.
    """
    return await _change(
        desk, letters, text, limit, reason, lambda some, ids, by: some.review(ids, by), "reviewed"
    )


async def close(
    *letters: str,
    reason: Reason = "",
    unconfirmed: Flag = False,
    text: FreeText = False,
    limit: AtMost = None,
    desk: AtDesk,
) -> ExitCode:
    """
    Close letters.

    Args:
        letters: Ids, or a search.
        reason: Why; recorded in the audit.
        unconfirmed: Also close letters that wait for the outcome of a replay. A letter
            whose copy fails later is reopened. The search is:replaying implies this.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to change.
    """
    unconfirmed = unconfirmed or _WAITING in " ".join(letters).split()

    async def verb(some: LettersProtocol, ids: Iterable[str], by: By) -> Moved:
        return await some.close(ids, by, unconfirmed=unconfirmed)

    return await _change(desk, letters, text, limit, reason, verb, "closed")


async def reopen(
    *letters: str,
    reason: Reason = "",
    unconfirmed: Flag = False,
    text: FreeText = False,
    limit: AtMost = None,
    desk: AtDesk,
) -> ExitCode:
    """
    Make reviewed, closed, replayed or quarantined letters pending again.

    Args:
        letters: Ids, or a search.
        reason: Why; recorded in the audit.
        unconfirmed: Also reopen letters that wait for the outcome of a replay. A letter
            whose copy is handled later becomes replayed.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to change.
    """

    async def verb(some: LettersProtocol, ids: Iterable[str], by: By) -> Moved:
        return await some.reopen(ids, by, unconfirmed=unconfirmed)

    return await _change(desk, letters, text, limit, reason, verb, "reopened")


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

    async def verb(some: LettersProtocol, ids: Iterable[str], by: By) -> Moved:
        return await some.note(ids, note, by)

    return await _change(desk, letters, text, limit, "", verb, "noted")


async def discard(
    *letters: str,
    reason: Reason = "",
    unconfirmed: Flag = False,
    text: FreeText = False,
    limit: AtMost = None,
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Discard letters. They can be restored until they are purged.

    Args:
        letters: Ids, or a search.
        reason: Why; recorded in the audit.
        unconfirmed: Also discard letters that wait for the outcome of a replay. A letter
            whose copy fails later is reopened.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to change.
        yes: Do not ask for confirmation.
    """

    async def verb(some: LettersProtocol, ids: Iterable[str], by: By) -> Moved:
        return await some.discard(ids, by, unconfirmed=unconfirmed)

    return await _change(
        desk, letters, text, limit, reason, verb, "discarded", "discard {}", yes=yes
    )


async def restore(
    *letters: str, reason: Reason = "", text: FreeText = False, limit: AtMost = None, desk: AtDesk
) -> ExitCode:
    """
    Restore discarded letters: they become pending again.

    Args:
        letters: Ids, or a search.
        reason: Why; recorded in the audit.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to change.
    """
    return await _change(
        desk, letters, text, limit, reason, lambda some, ids, by: some.restore(ids, by), "restored"
    )


async def purge(
    *letters: str,
    reason: Reason = "",
    text: FreeText = False,
    limit: AtMost = None,
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Delete letters permanently. The audit keeps the reason, not the content.

    Args:
        letters: Ids, or a search.
        reason: Why; required, and recorded in the audit.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to change.
        yes: Do not ask for confirmation.
    """
    if not reason.strip():
        raise ConfigError("purging deletes letters permanently: give the reason with --reason")
    return await _change(
        desk,
        letters,
        text,
        limit,
        reason,
        lambda some, ids, by: some.purge(ids, by),
        "purged",
        "delete {} permanently",
        yes=yes,
    )


async def _change(  # noqa: PLR0917 -- seven commands in one shape
    desk: Desk,
    words: tuple[str, ...],
    text: bool,
    limit: int | None,
    reason: str,
    verb: Verb,
    done: str,
    danger: str = "",
    *,
    yes: bool = False,
) -> ExitCode:
    async with desk.office() as office:
        chosen = await choose(office.letters, words, text=text, limit=limit)
        count = len(chosen.ids)
        if danger:
            what = danger.replace("{}", many(count, "letter"))
            ask_to_confirm(desk, what, yes=yes, count=count)
        with through(desk, f"being {done}", chosen.ids) as ids:
            result = await verb(office.letters, ids, desk.by(reason))
    if desk.as_json:
        desk.document(result)
    else:
        _report(desk, result, done)
        if chosen.more:
            desk.hint(f"The limit of {count:,} was reached; there may be more.")
    if result.moved == 0:
        if desk.as_json:
            return ExitCode.CONFLICT
        raise Conflict(f"nothing was {done}")
    return ExitCode.OK


def _report(desk: Desk, result: Moved, done: str) -> None:
    if result.moved:
        desk.tell(f"{many(result.moved, 'letter')} {done}.")
    for why, count in result.skipped.items():
        desk.tell(f"{many(count, 'letter')} skipped: {why}.", "yellow")
    if IS_REPLAYING in result.skipped:
        desk.warn(
            "A replay has sent letters that have no outcome yet. `close`, `discard`,"
            " `reopen` and `replay` include them with --unconfirmed."
        )


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
