"""Acts on letters: any verb, and notes; on one letter, and on many."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.office.selection import Chosen
from deadletter.office.verbs import Moved, Verb
from deadletter.server.auth.guards import check_role
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

from .choice import Choice, choose

_Act: TypeAlias = Callable[[Sequence[str]], Awaitable[Moved]]


async def act_on_letter(
    context: ServerContext,
    who: Identity,
    id: str,
    verb: Verb,
    *,
    reason: str = "",
    unconfirmed: bool = False,
) -> Moved:
    """
    Do something with one letter, named by its id or the beginning of it.

    Raises `Conflict` with the state of the letter if it did not change.
    """
    check_role(who, verb.role)
    act = _doing(context, verb, who.by(reason), unconfirmed=unconfirmed)
    return await _on_one(context, who, id, act)


async def act_on_letters(
    context: ServerContext,
    who: Identity,
    searching: Searching,
    choice: Choice,
    verb: Verb,
    *,
    reason: str = "",
    unconfirmed: bool = False,
) -> Moved:
    """Do something with letters; a search for a dangerous verb needs their expected number."""
    check_choice(who, choice, verb)
    act = _doing(context, verb, who.by(reason), unconfirmed=unconfirmed)
    return await _on_many(context, who, searching, choice, act)


async def choose_for_act(
    context: ServerContext, who: Identity, searching: Searching, choice: Choice, verb: Verb
) -> Chosen:
    """Return the letters that somebody wants to change, who is then free to go in steps."""
    check_choice(who, choice, verb)
    return await choose(context, who, searching, choice)


def check_choice(who: Identity, choice: Choice, verb: Verb) -> None:
    """Raise 403 without the role, and ConfigError for a search without the number needed."""
    check_role(who, verb.role)
    if verb.needs_count:
        choice.check_count(verb.name)


async def note_on_letter(context: ServerContext, who: Identity, id: str, text: str) -> Moved:
    """Add a note to one letter, named by its id or the beginning of it."""
    check_role(who, Role.OPERATOR)
    return await _on_one(context, who, id, _noting(context, text, who.by()))


async def note_on_letters(
    context: ServerContext, who: Identity, searching: Searching, choice: Choice, text: str
) -> Moved:
    """Add a note to letters."""
    check_role(who, Role.OPERATOR)
    return await _on_many(context, who, searching, choice, _noting(context, text, who.by()))


def _doing(context: ServerContext, verb: Verb, by: By, *, unconfirmed: bool) -> _Act:
    letters = context.office.letters
    return lambda ids: letters.act(verb, ids, by, unconfirmed=unconfirmed)


def _noting(context: ServerContext, text: str, by: By) -> _Act:
    letters = context.office.letters
    return lambda ids: letters.note(ids, text, by)


async def _on_one(context: ServerContext, who: Identity, id: str, act: _Act) -> Moved:
    letter = await context.office.letters.get(id, sources=who.sources)
    result = await act([letter.id])
    if not result.moved:
        why = " and ".join(result.skipped) or "did not change"
        raise Conflict(f"letter {letter.id} {why}: nothing was done")
    return result


async def _on_many(
    context: ServerContext, who: Identity, searching: Searching, choice: Choice, act: _Act
) -> Moved:
    found = await choose(context, who, searching, choice)
    return with_unseen(await act(found.ids), choice, found.ids)


def with_unseen(result: Moved, choice: Choice, ids: Sequence[str]) -> Moved:
    """Return a result that counts letters which the caller may not see as missing."""
    named = {id_.lower() for id_ in choice.ids or ids}
    unseen = len(named) - len(ids)
    if unseen <= 0:
        return result
    skipped = dict(result.skipped)
    skipped["no longer there"] = skipped.get("no longer there", 0) + unseen
    return structs.replace(result, asked=result.asked + unseen, skipped=skipped)
