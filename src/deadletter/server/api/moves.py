"""Routes that change letters: review, close, reopen, note, discard, restore, purge, edit."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Response, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter, JSONBody
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By, Changes
from deadletter.core.message import LONGEST_TEXT, Headers, Message
from deadletter.office.diff import Difference, differences
from deadletter.office.letters import LONGEST_NOTE, Letters, Moved
from deadletter.office.view import LetterView, view
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.problems import AnswerInstead
from deadletter.server.search import Id, Searches, Searching

from .letters import REVEAL, Reason, Selection, chosen, etag

IfMatch: TypeAlias = Annotated[
    str | None,
    HeaderParameter(
        name="if-match", max_length=100, description="The `ETag` of the letter as you have seen it."
    ),
]
ShortText: TypeAlias = Annotated[str, Meta(max_length=LONGEST_TEXT)]


class Edit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    Changes of a message; omitted fields keep their values.

    The body is given in one of three forms. Values of headers are base64, like those
    of the message itself.
    """

    body: bytes | UnsetType = UNSET  # base64: any bytes at all
    text: str | UnsetType = UNSET  # the body as text, stored as UTF-8
    json: Any = UNSET  # the body as a value, stored as JSON
    headers: Headers | UnsetType = UNSET
    content_type: ShortText | UnsetType | None = UNSET
    key: ShortText | UnsetType | None = UNSET
    reason: Reason = ""

    def changes(self) -> Changes:
        """Return the fields to change."""
        forms = [form for form in (self.body, self.text, self.json) if form is not UNSET]
        if len(forms) > 1:
            raise ConfigError("give the body once: as `body`, as `text` or as `json`")
        body: bytes | UnsetType = self.body
        if isinstance(self.text, str):
            body = self.text.encode("utf-8", "surrogatepass")
        elif self.json is not UNSET:
            body = msgspec.json.encode(self.json)
        return Changes(
            body=body, headers=self.headers, content_type=self.content_type, key=self.key
        )


@patch("/letters/{id:str}", guards=[needs(Role.OPERATOR)])
async def edit_letter(
    context: Here, who: Who, id: Id, data: JSONBody[Edit], if_match: IfMatch = None
) -> Response[LetterView]:
    """
    Change the message of an open letter. The original message is kept permanently.

    Requires `If-Match` with the `ETag` of the letter: 428 without it, 412 if the letter
    has changed since.
    """
    letter = await context.office.letters.get(id, sources=who.sources)
    revision = _revision(if_match, letter.head.revision)
    by = By(who.name, data.reason)
    try:
        await context.office.letters.edit(letter.id, data.changes(), by, revision=revision)
    except Conflict as error:
        now = await context.office.letters.get(letter.id)
        if now.head.revision != revision:
            raise _changed(now.head.revision) from error
        raise
    edited = await context.office.letters.get(letter.id)
    return Response(view(edited), headers={"etag": etag(edited.head.revision)})


@get("/letters/{id:str}/original", guards=REVEAL)
async def get_original(context: Here, who: Who, id: Id) -> Message:
    """Return the original message of an edited letter. Recorded in the audit."""
    _, found = await context.office.letters.message(
        id, By(who.name), original=True, sources=who.sources
    )
    return found


@get("/letters/{id:str}/diff", guards=[needs(Role.READER)])
async def get_difference(context: Here, who: Who, id: Id) -> tuple[Difference, ...]:
    """Return what was changed since the message died; secrets are masked."""
    letter = await context.office.letters.get(id, sources=who.sources)
    return differences(letter.as_it_died, letter.message)


def _revision(if_match: str | None, now: int) -> int:
    if if_match is None:
        raise AnswerInstead(
            428,
            "if-match",
            "If-Match is missing: send it with the ETag of the letter, so that no other"
            " edit is overwritten",
        )
    tags = {tag.strip() for tag in if_match.split(",")}
    if not tags & {etag(now), "*"}:
        raise _changed(now)
    return now


def _changed(now: int) -> AnswerInstead:
    return AnswerInstead(
        412,
        "changed",
        f"the letter has changed and is now at revision {now}: read it again and edit that",
        {"etag": etag(now)},
    )


Verb: TypeAlias = Callable[[Letters, Iterable[str], By], Awaitable[Moved]]
NoteText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST_NOTE)]
Unconfirmed: TypeAlias = Annotated[
    bool,
    Meta(
        description="Also a letter that waits for the outcome of its replay. Its copy"
        " may still be handled; what becomes of it is recorded."
    ),
]
_ACT: Final = [needs(Role.OPERATOR)]


class Why(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason of a change."""

    reason: Reason = ""


class WhyUnconfirmed(Why, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason of a change that may include a letter waiting for an outcome."""

    unconfirmed: Unconfirmed = False


class SelectionUnconfirmed(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters, and whether to include those that wait for an outcome."""

    unconfirmed: Unconfirmed = False


class Note(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note on a letter."""

    text: NoteText


class NoteOnMany(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note on letters."""

    text: NoteText


def _routes(
    name: str, verb: Verb, about: str, *, role: Role = Role.OPERATOR, careful: bool
) -> list[HTTPRouteHandler]:
    """Return the routes of one verb: for one letter, and for many."""
    guards = [needs(role)]

    @post(
        f"/letters/{{id:str}}/{name}",
        guards=guards,
        status_code=200,
        operation_id=f"{name}_letter",
        summary=f"{name.capitalize()} a letter",
        description=about,
    )
    async def on_one(context: Here, who: Who, id: Id, data: JSONBody[Why]) -> Moved:
        return await _one(context, who, id, verb, data.reason)

    @post(
        f"/letters/{name}",
        guards=guards,
        status_code=200,
        operation_id=f"{name}_letters",
        summary=f"{name.capitalize()} letters",
        description=about,
    )
    async def on_many(
        context: Here, who: Who, searching: Searches, data: JSONBody[Selection]
    ) -> Moved:
        if careful:
            _check_expected(name, data)
        return await _many(context, who, searching, data, verb)

    return [on_one, on_many]


def _waiting_routes(
    name: str, verb: Callable[..., Awaitable[Moved]], about: str, *, careful: bool
) -> list[HTTPRouteHandler]:
    """Return the routes of one verb that can include letters waiting for an outcome."""

    @post(
        f"/letters/{{id:str}}/{name}",
        guards=_ACT,
        status_code=200,
        operation_id=f"{name}_letter",
        summary=f"{name.capitalize()} a letter",
        description=about,
    )
    async def on_one(context: Here, who: Who, id: Id, data: JSONBody[WhyUnconfirmed]) -> Moved:
        return await _one(
            context, who, id, partial(verb, unconfirmed=data.unconfirmed), data.reason
        )

    @post(
        f"/letters/{name}",
        guards=_ACT,
        status_code=200,
        operation_id=f"{name}_letters",
        summary=f"{name.capitalize()} letters",
        description=about,
    )
    async def on_many(
        context: Here, who: Who, searching: Searches, data: JSONBody[SelectionUnconfirmed]
    ) -> Moved:
        if careful:
            _check_expected(name, data)
        return await _many(
            context, who, searching, data, partial(verb, unconfirmed=data.unconfirmed)
        )

    return [on_one, on_many]


def _check_expected(name: str, data: Selection) -> None:
    if data.query is not None and data.expect is None:
        raise ConfigError(
            f"to {name} letters by a query, `expect` is required: count the letters first,"
            " and give their number"
        )


@post("/letters/{id:str}/notes", guards=_ACT, status_code=200)
async def note_letter(context: Here, who: Who, id: Id, data: JSONBody[Note]) -> Moved:
    """Add a note to a letter."""
    return await _one(context, who, id, _noting(data.text), "")


@post("/letters/notes", guards=_ACT, status_code=200)
async def note_letters(
    context: Here, who: Who, searching: Searches, data: JSONBody[NoteOnMany]
) -> Moved:
    """Add a note to letters."""
    return await _many(context, who, searching, data, _noting(data.text))


def _noting(text: str) -> Verb:
    async def verb(letters: Letters, ids: Iterable[str], by: By) -> Moved:
        return await letters.note(ids, text, by)

    return verb


async def _one(context: ServerContext, who: Identity, id: str, verb: Verb, reason: str) -> Moved:
    letter = await context.office.letters.get(id, sources=who.sources)
    result = await verb(context.office.letters, [letter.id], By(who.name, reason))
    if not result.moved:
        why = " and ".join(result.skipped) or "did not change"
        raise Conflict(f"letter {letter.id} {why}: nothing was done")
    return result


async def _many(
    context: ServerContext, who: Identity, searching: Searching, data: Selection, verb: Verb
) -> Moved:
    found = await chosen(context, who, data, searching)
    result = await verb(context.office.letters, found.ids, By(who.name, data.reason))
    # Letters that the caller may not see count as missing.
    named = {id_.lower() for id_ in data.ids or found.ids}
    unseen = len(named) - len(found.ids)
    if unseen <= 0:
        return result
    skipped = dict(result.skipped)
    skipped["no longer there"] = skipped.get("no longer there", 0) + unseen
    return structs.replace(result, asked=result.asked + unseen, skipped=skipped)


VERB_ROUTES: Final[list[HTTPRouteHandler]] = [
    *_routes("review", Letters.review, "Mark pending letters as reviewed.", careful=False),
    *_waiting_routes("close", Letters.close, "Close letters.", careful=False),
    *_waiting_routes(
        "reopen",
        Letters.reopen,
        "Make reviewed, closed, replayed or quarantined letters pending again.",
        careful=False,
    ),
    *_waiting_routes(
        "discard",
        Letters.discard,
        "Discard letters. They can be restored until they are purged.",
        careful=True,
    ),
    *_routes("restore", Letters.restore, "Make discarded letters pending again.", careful=False),
    *_routes(
        "purge",
        Letters.purge,
        "Delete letters permanently. Requires a reason. The audit keeps no content.",
        role=Role.ADMIN,
        careful=True,
    ),
]
"""Routes of changes that take only letters and a reason: for one letter, and for many."""
routes: Final[list[Any]] = [
    *(edit_letter, get_original, get_difference, note_letter, note_letters),
    *VERB_ROUTES,
]
