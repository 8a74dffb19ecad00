"""Routes that change letters: one for each verb, notes, and edits."""

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Response, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter, JSONBody
from msgspec import UNSET, Meta, Struct, UnsetType

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By, Changes
from deadletter.core.message import LONGEST_TEXT, Headers, Message
from deadletter.office.diff import Difference, differences
from deadletter.office.letters import LONGEST_NOTE
from deadletter.office.verbs import VERBS, Moved, Verb
from deadletter.office.view import LetterView, view
from deadletter.server.acting.letter_acts import (
    act_on_letter,
    act_on_letters,
    note_on_letter,
    note_on_letters,
)
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who
from deadletter.server.problems import AnswerInstead
from deadletter.server.search import Id, Searches

from .letters import REVEAL, Reason, Selection, etag

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


def _routes(verb: Verb) -> list[HTTPRouteHandler]:
    """Return the routes of one verb: for one letter, and for many."""
    name = verb.name

    async def on_one(context: Here, who: Who, id: Id, data: JSONBody[Why]) -> Moved:
        waiting = isinstance(data, WhyUnconfirmed) and data.unconfirmed
        return await act_on_letter(context, who, id, verb, reason=data.reason, unconfirmed=waiting)

    async def on_many(
        context: Here, who: Who, searching: Searches, data: JSONBody[Selection]
    ) -> Moved:
        waiting = isinstance(data, SelectionUnconfirmed) and data.unconfirmed
        return await act_on_letters(
            context, who, searching, data, verb, reason=data.reason, unconfirmed=waiting
        )

    if verb.takes_unconfirmed:
        on_one.__annotations__["data"] = JSONBody[WhyUnconfirmed]
        on_many.__annotations__["data"] = JSONBody[SelectionUnconfirmed]
    return [
        post(
            path,
            guards=[needs(verb.role)],
            status_code=200,
            operation_id=f"{name}_{what.rpartition(' ')[2]}",
            summary=f"{name.capitalize()} {what}",
            description=verb.help,
        )(act)
        for path, what, act in (
            (f"/letters/{{id:str}}/{name}", "a letter", on_one),
            (f"/letters/{name}", "letters", on_many),
        )
    ]


@post("/letters/{id:str}/notes", guards=_ACT, status_code=200)
async def note_letter(context: Here, who: Who, id: Id, data: JSONBody[Note]) -> Moved:
    """Add a note to a letter."""
    return await note_on_letter(context, who, id, data.text)


@post("/letters/notes", guards=_ACT, status_code=200)
async def note_letters(
    context: Here, who: Who, searching: Searches, data: JSONBody[NoteOnMany]
) -> Moved:
    """Add a note to letters."""
    return await note_on_letters(context, who, searching, data, data.text)


VERB_ROUTES: Final = [route for verb in VERBS for route in _routes(verb)]
"""Routes of the verbs of letters: for one letter, and for many."""
routes: Final[list[Any]] = [
    *(edit_letter, get_original, get_difference, note_letter, note_letters),
    *VERB_ROUTES,
]
