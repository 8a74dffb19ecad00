"""dlq review, note, close, reopen, discard, restore, purge: what people decide."""

from collections.abc import Awaitable, Callable, Iterable

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By
from deadletter.office.letters import Moved

from .asking import agreed
from .desk import AtDesk, Desk
from .exit_codes import ExitCode
from .office import SomeLetters
from .options import AtMost, Flag, Reason, Yes
from .progress import through
from .targets import choose
from .times import many

Verb = Callable[[SomeLetters, Iterable[str], By], Awaitable[Moved]]


async def review(
    *letters: str, reason: Reason = "", limit: AtMost = None, desk: AtDesk
) -> ExitCode:
    """
    Say that you have looked at letters: pending ones become reviewed.

    Args:
        letters: Ids, or a search.
        reason: What you found; goes into the audit.
        limit: At most so many of what the search finds.
    """
    return await _change(
        desk,
        letters,
        limit,
        reason,
        lambda some, ids, by: some.review(ids, by),
        "reviewed",
    )


async def close(
    *letters: str, reason: Reason = "", limit: AtMost = None, desk: AtDesk
) -> ExitCode:
    """
    Say that letters are done with.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        limit: At most so many of what the search finds.
    """
    return await _change(
        desk,
        letters,
        limit,
        reason,
        lambda some, ids, by: some.close(ids, by),
        "closed",
    )


async def reopen(
    *letters: str,
    reason: Reason = "",
    unconfirmed: Flag = False,
    limit: AtMost = None,
    desk: AtDesk,
) -> ExitCode:
    """
    Make letters pending again: reviewed, closed, replayed or quarantined ones.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        unconfirmed: Also those whose replay has no outcome yet. Their copies may
            still be on their way.
        limit: At most so many of what the search finds.
    """

    async def verb(some: SomeLetters, ids: Iterable[str], by: By) -> Moved:
        return await some.reopen(ids, by, unconfirmed=unconfirmed)

    return await _change(desk, letters, limit, reason, verb, "reopened")


async def note(
    text: str, /, *letters: str, limit: AtMost = None, desk: AtDesk
) -> ExitCode:
    """
    Write a note on letters, for whoever looks next.

    Args:
        text: The note, in quotes.
        letters: Ids, or a search.
        limit: At most so many of what the search finds.
    """

    async def verb(some: SomeLetters, ids: Iterable[str], by: By) -> Moved:
        return await some.note(ids, text, by)

    return await _change(desk, letters, limit, "", verb, "noted")


async def discard(
    *letters: str,
    reason: Reason = "",
    limit: AtMost = None,
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Throw letters away. They can be restored until they are purged.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        limit: At most so many of what the search finds.
        yes: Do not ask.
    """
    return await _change(
        desk,
        letters,
        limit,
        reason,
        lambda some, ids, by: some.discard(ids, by),
        "discarded",
        "discard {}",
        yes=yes,
    )


async def restore(
    *letters: str, reason: Reason = "", limit: AtMost = None, desk: AtDesk
) -> ExitCode:
    """
    Take discarded letters out of the bin: they are pending again.

    Args:
        letters: Ids, or a search.
        reason: Why; goes into the audit.
        limit: At most so many of what the search finds.
    """
    return await _change(
        desk,
        letters,
        limit,
        reason,
        lambda some, ids, by: some.restore(ids, by),
        "restored",
    )


async def purge(
    *letters: str,
    reason: Reason = "",
    limit: AtMost = None,
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Delete letters for good. The audit keeps the fact and the reason, not the content.

    Args:
        letters: Ids, or a search.
        reason: Why; needed, and kept in the audit.
        limit: At most so many of what the search finds.
        yes: Do not ask.
    """
    if not reason.strip():
        raise ConfigError("purging deletes for good: say why with --reason")
    return await _change(
        desk,
        letters,
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
    limit: int | None,
    reason: str,
    verb: Verb,
    done: str,
    danger: str = "",
    *,
    yes: bool = False,
) -> ExitCode:
    async with desk.office() as office:
        chosen = await choose(office.letters, words, limit=limit)
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
