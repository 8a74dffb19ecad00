"""A letter's message put right: edited with care, the original kept."""

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Response, get, patch
from litestar.params import HeaderParameter, JSONBody
from msgspec import UNSET, Meta, Struct, UnsetType

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By, Changes
from deadletter.core.message import LONGEST_TEXT, Headers, Message
from deadletter.office.diff import Difference, differences
from deadletter.office.view import LetterView, view
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who
from deadletter.server.problems import Asked
from deadletter.server.searching import Id

from .letters import REVEAL, Reason, etag

IfMatch: TypeAlias = Annotated[
    str | None,
    HeaderParameter(
        name="if-match", max_length=100, description="The `ETag` of the letter as you have seen it."
    ),
]
ShortText: TypeAlias = Annotated[str, Meta(max_length=LONGEST_TEXT)]


class Edit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    What is to be another; what is not given stays as it is.

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
        """What is to be changed."""
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
    place: Here, who: Who, id: Id, data: JSONBody[Edit], if_match: IfMatch = None
) -> Response[LetterView]:
    """
    Change the message of an open letter. The one that died is kept aside for good.

    Takes `If-Match` with the `ETag` of the letter: 428 without, 412 if it has changed
    since.
    """
    letter = await place.office.letters.get(id, sources=who.sources)
    revision = _revision(if_match, letter.head.revision)
    by = By(who.name, data.reason)
    try:
        await place.office.letters.edit(letter.id, data.changes(), by, revision=revision)
    except Conflict as error:
        now = await place.office.letters.get(letter.id)
        if now.head.revision != revision:
            raise _changed(now.head.revision) from error
        raise
    edited = await place.office.letters.get(letter.id)
    return Response(view(edited), headers={"etag": etag(edited.head.revision)})


@get("/letters/{id:str}/original", guards=REVEAL)
async def get_original(place: Here, who: Who, id: Id) -> Message:
    """The message that died, every byte of it, as base64. Goes into the audit."""
    _, found = await place.office.letters.message(
        id, By(who.name), original=True, sources=who.sources
    )
    return found


@get("/letters/{id:str}/diff", guards=[needs(Role.READER)])
async def get_difference(place: Here, who: Who, id: Id) -> tuple[Difference, ...]:
    """What was changed since the message died; secrets are masked."""
    letter = await place.office.letters.get(id, sources=who.sources)
    return differences(letter.as_it_died, letter.message)


def _revision(if_match: str | None, now: int) -> int:
    if if_match is None:
        raise Asked(
            428,
            "if-match",
            "say which revision you have seen: send If-Match with the ETag of the"
            " letter, so that nobody's work is lost",
        )
    tags = {tag.strip() for tag in if_match.split(",")}
    if not tags & {etag(now), "*"}:
        raise _changed(now)
    return now


def _changed(now: int) -> Asked:
    return Asked(
        412,
        "changed",
        f"the letter is at revision {now} now: look again, then edit that",
        {"etag": etag(now)},
    )


routes: Final[list[Any]] = [edit_letter, get_original, get_difference]
