"""dlq review, note, close, reopen, discard, restore, purge: what people decide."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By, State
from deadletter.office.letters import IS_REPLAYING, Moved

from .asking import agreed
from .desk import AtDesk, Desk
from .exit_codes import ExitCode
from .office import SomeLetters
from .options import AtMost, Flag, FreeText, Reason, Yes
from .progress import through
from .targets import choose
from .times import many

_WAITING: Final = f"is:{State.REPLAYING}"

Verb = Callable[[SomeLetters, Iterable[str], By], Awaitable[Moved]]


async def review(
    *letters: str,
    reason: Reason = "",
    text: FreeText = False,
    limit: AtMost = None,
    desk: AtDesk,
) -> ExitCode:
    """
    Say that you have looked at letters: pending ones become reviewed.

    Args:
        letters: Ids, or a search.
        reason: What you found; goes into the audit.
        text: Also take letters that contain the words which name no field.
        limit: At most so many of what the search finds.
    """
    return await _change(
        desk,
        letters,
        text,
        limit,
        reason,
        lambda some, ids, by: some.review(ids, by),
        "reviewed",
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
    Say that letters are done with.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        unconfirmed: Also letters that wait for the outcome of a replay. If a copy
            fails later, its letter is open again. A search for is:replaying means
            them, too.
        text: Also take letters that contain the words which name no field.
        limit: At most so many of what the search finds.
    """
    unconfirmed = unconfirmed or _WAITING in " ".join(letters).split()

    async def verb(some: SomeLetters, ids: Iterable[str], by: By) -> Moved:
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
    Make letters pending again: reviewed, closed, replayed or quarantined ones.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        unconfirmed: Also letters that wait for the outcome of a replay. A letter
            whose copy is handled later becomes replayed.
        text: Also take letters that contain the words which name no field.
        limit: At most so many of what the search finds.
    """

    async def verb(some: SomeLetters, ids: Iterable[str], by: By) -> Moved:
        return await some.reopen(ids, by, unconfirmed=unconfirmed)

    return await _change(desk, letters, text, limit, reason, verb, "reopened")


async def confirm(*messages: str, reason: Reason = "", desk: AtDesk) -> ExitCode:
    """
    Say that consumers have handled messages that were sent back to them.

    Consumers that are not ours report nothing. A letter that waits for its outcome, or
    that was presumed handled, is confirmed by this.

    Args:
        messages: Ids of messages, as their producers gave them.
        reason: How you know; goes into the audit.
    """
    if not messages:
        raise ConfigError("name the messages that were handled, by their ids")
    async with desk.office() as office:
        result = await office.confirm(messages, desk.by(reason))
    if desk.as_json:
        desk.document(result)
    else:
        desk.tell(f"{many(result.confirmed, 'letter')} confirmed.")
        for id_ in result.unknown:
            desk.tell(f"No letter waits for message {id_}.", "yellow")
    return ExitCode.OK if result.confirmed else ExitCode.CONFLICT


async def note(
    note: str,
    /,
    *letters: str,
    text: FreeText = False,
    limit: AtMost = None,
    desk: AtDesk,
) -> ExitCode:
    """
    Write a note on letters, for whoever looks next.

    Args:
        note: The note, in quotes.
        letters: Ids, or a search.
        text: Also take letters that contain the words which name no field.
        limit: At most so many of what the search finds.
    """

    async def verb(some: SomeLetters, ids: Iterable[str], by: By) -> Moved:
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
    Throw letters away. They can be restored until they are purged.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        unconfirmed: Also letters that wait for the outcome of a replay. If a copy
            fails later, its letter is open again.
        text: Also take letters that contain the words which name no field.
        limit: At most so many of what the search finds.
        yes: Do not ask.
    """

    async def verb(some: SomeLetters, ids: Iterable[str], by: By) -> Moved:
        return await some.discard(ids, by, unconfirmed=unconfirmed)

    return await _change(
        desk,
        letters,
        text,
        limit,
        reason,
        verb,
        "discarded",
        "discard {}",
        yes=yes,
    )


async def restore(
    *letters: str,
    reason: Reason = "",
    text: FreeText = False,
    limit: AtMost = None,
    desk: AtDesk,
) -> ExitCode:
    """
    Take discarded letters out of the bin: they are pending again.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        text: Also take letters that contain the words which name no field.
        limit: At most so many of what the search finds.
    """
    return await _change(
        desk,
        letters,
        text,
        limit,
        reason,
        lambda some, ids, by: some.restore(ids, by),
        "restored",
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
    Delete letters for good. The audit keeps the fact and the reason, not the content.

    Args:
        letters: Ids, or a search.
        reason: Why; needed, and kept in the audit.
        text: Also take letters that contain the words which name no field.
        limit: At most so many of what the search finds.
        yes: Do not ask.
    """
    if not reason.strip():
        raise ConfigError("purging deletes for good: say why with --reason")
    return await _change(
        desk,
        letters,
        text,
        limit,
        reason,
        lambda some, ids, by: some.purge(ids, by),
        "purged",
        "delete {} for good",
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
            agreed(desk, what, yes=yes, count=count)
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
        desk.tell(f"{many(count, 'letter')} left alone: {why}.", "yellow")
    if IS_REPLAYING in result.skipped:
        desk.warn(
            "A replay has sent them, and no outcome has come yet. `close`, `discard`,"
            " `reopen` and `replay` take them with --unconfirmed."
        )
