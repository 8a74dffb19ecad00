"""What people decide: review, close, reopen, note, discard, restore, purge."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, Final, TypeAlias

from litestar import post
from litestar.params import JSONBody
from msgspec import Meta, Struct, structs

from deadletter.core.access import Pass, Role
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By
from deadletter.office.letters import LONGEST_NOTE, Letters, Moved
from deadletter.web.auth.guards import needs
from deadletter.web.given import Here, Who
from deadletter.web.paging import Id
from deadletter.web.place import Place
from deadletter.web.searching import Searches, Searching

from .choice import Reason, Selection, chosen

Verb: TypeAlias = Callable[[Letters, Iterable[str], By], Awaitable[Moved]]
NoteText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST_NOTE)]
_ACT: Final = [needs(Role.OPERATOR)]


class Why(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why somebody does it."""

    reason: Reason = ""


class Again(Why, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a letter needs somebody again."""

    unconfirmed: bool = False  # also while its replay has no outcome yet


class ManyAgain(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters that need somebody again."""

    unconfirmed: bool = False  # also those whose replay has no outcome yet


class Note(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note on a letter."""

    text: NoteText


class NoteOnMany(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note on letters."""

    text: NoteText


def _routes(
    name: str, verb: Verb, about: str, *, role: Role = Role.OPERATOR, careful: bool
) -> list[Any]:
    """The two forms of one verb: on one letter, and on many."""
    guards = [needs(role)]

    @post(
        f"/letters/{{id:str}}/{name}",
        guards=guards,
        status_code=200,
        operation_id=f"{name}_letter",
        summary=f"{name.capitalize()} a letter",
        description=about,
    )
    async def on_one(place: Here, who: Who, id: Id, data: JSONBody[Why]) -> Moved:
        return await _one(place, who, id, verb, data.reason)

    @post(
        f"/letters/{name}",
        guards=guards,
        status_code=200,
        operation_id=f"{name}_letters",
        summary=f"{name.capitalize()} letters",
        description=about,
    )
    async def on_many(
        place: Here, who: Who, searching: Searches, data: JSONBody[Selection]
    ) -> Moved:
        if careful and data.query is not None and data.expect is None:
            raise ConfigError(
                f"to {name} what a search finds takes `expect`, the number of letters:"
                " look first"
            )
        return await _many(place, who, searching, data, verb)

    return [on_one, on_many]


@post("/letters/{id:str}/reopen", guards=_ACT, status_code=200)
async def reopen_letter(place: Here, who: Who, id: Id, data: JSONBody[Again]) -> Moved:
    """Make a letter pending again: a reviewed, closed, replayed or quarantined one."""
    return await _one(place, who, id, _reopening(data.unconfirmed), data.reason)


@post("/letters/reopen", guards=_ACT, status_code=200)
async def reopen_letters(
    place: Here, who: Who, searching: Searches, data: JSONBody[ManyAgain]
) -> Moved:
    """Make letters pending again: reviewed, closed, replayed or quarantined ones."""
    return await _many(place, who, searching, data, _reopening(data.unconfirmed))


@post("/letters/{id:str}/notes", guards=_ACT, status_code=200)
async def note_letter(place: Here, who: Who, id: Id, data: JSONBody[Note]) -> Moved:
    """Write a note on a letter, for whoever looks next."""
    return await _one(place, who, id, _noting(data.text), "")


@post("/letters/notes", guards=_ACT, status_code=200)
async def note_letters(
    place: Here, who: Who, searching: Searches, data: JSONBody[NoteOnMany]
) -> Moved:
    """Write a note on letters, for whoever looks next."""
    return await _many(place, who, searching, data, _noting(data.text))


def _reopening(unconfirmed: bool) -> Verb:
    async def verb(letters: Letters, ids: Iterable[str], by: By) -> Moved:
        return await letters.reopen(ids, by, unconfirmed=unconfirmed)

    return verb


def _noting(text: str) -> Verb:
    async def verb(letters: Letters, ids: Iterable[str], by: By) -> Moved:
        return await letters.note(ids, text, by)

    return verb


async def _one(place: Place, who: Pass, id: str, verb: Verb, reason: str) -> Moved:
    letter = await place.letters.get(id, sources=who.sources)
    result = await verb(place.letters, [letter.id], By(who.name, reason))
    if not result.moved:
        why = " and ".join(result.skipped) or "is as it was"
        raise Conflict(f"letter {letter.id} {why}: nothing was done")
    return result


async def _many(
    place: Place, who: Pass, searching: Searching, data: Selection, verb: Verb
) -> Moved:
    found = await chosen(place, who, data, searching)
    result = await verb(place.letters, found.ids, By(who.name, data.reason))
    # Letters of others are as if they did not exist.
    named = {id_.lower() for id_ in data.ids or found.ids}
    unseen = len(named) - len(found.ids)
    if unseen <= 0:
        return result
    skipped = dict(result.skipped)
    skipped["no longer there"] = skipped.get("no longer there", 0) + unseen
    return structs.replace(result, asked=result.asked + unseen, skipped=skipped)


routes: Final[list[Any]] = [
    *_routes(
        "review",
        Letters.review,
        "Say that somebody has looked: pending letters become reviewed.",
        careful=False,
    ),
    *_routes("close", Letters.close, "Say that it is done with.", careful=False),
    reopen_letter,
    reopen_letters,
    note_letter,
    note_letters,
    *_routes(
        "discard",
        Letters.discard,
        "Throw it away. It can be restored until it is purged.",
        careful=True,
    ),
    *_routes(
        "restore", Letters.restore, "Take it out of the bin again.", careful=False
    ),
    *_routes(
        "purge",
        Letters.purge,
        "Delete it for good, with a reason. The audit keeps the fact, not the content.",
        role=Role.ADMIN,
        careful=True,
    ),
]
