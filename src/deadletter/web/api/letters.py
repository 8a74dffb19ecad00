"""Letters: searched, read, told."""

from typing import Annotated, Any, Final, TypeAlias

from litestar import Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.letter import By
from deadletter.core.message import Message
from deadletter.core.query import parse, sealed
from deadletter.office.letters import LetterCount
from deadletter.office.story import Moment, reveal, tell
from deadletter.office.view import LetterView, view
from deadletter.ports import Page
from deadletter.web.auth.guards import needs
from deadletter.web.given import Here, Who
from deadletter.web.paging import After, Id, Limit, Query
from deadletter.web.searching import Searches

READ: Final = [needs(Role.READER)]
REVEAL: Final = [needs(Role.OPERATOR, recorded=True)]

Capture: TypeAlias = Annotated[
    bool, QueryParameter(description="Include the header `dlq-found`.")
]


class Timeline(Struct, frozen=True, kw_only=True):
    """Everything that happened to a letter, first to last."""

    id: str
    moments: tuple[Moment, ...]
    left_out: bool  # there are more acts than are told here


@get("/letters", guards=READ, operation_id="search_letters")
async def search_letters(
    who: Who,
    searching: Searches,
    search: Query = "",
    limit: Limit = 50,
    after: After = None,
) -> Page:
    """
    Search letters, newest death first.

    A search takes a bounded time: a page may be short, or empty, and still have an
    `after`. Then it has looked at `looked_at` of `letters` letters, at those that died
    since `back_to`. Who sees messages masked cannot search for what is masked.
    """
    sought = parse(search)
    if not who.may(Role.OPERATOR):
        sought = sealed(sought, search)
    return await searching.search(sought, limit=limit, after=after)


@get("/letters/count", guards=READ, operation_id="count_letters")
async def count_letters(
    who: Who, searching: Searches, search: Query = ""
) -> LetterCount:
    """
    How many letters a search finds, as far as it is cheap to know.

    Where `is_all` is false there are more than `letters`.
    """
    sought = parse(search)
    if not who.may(Role.OPERATOR):
        sought = sealed(sought, search)
    return await searching.count(sought)


@get("/letters/{id:str}", guards=READ, operation_id="get_letter")
async def get_letter(
    place: Here, who: Who, id: Id, capture: Capture = False
) -> Response[LetterView]:
    """
    One letter with its attempts; secrets in its message are masked.

    With `capture` the headers of a drained letter include `dlq-found`: everything that
    is needed to send it back.
    """
    letter = await place.letters.get(id, sources=who.sources)
    shown = view(letter, capture=capture)
    return Response(shown, headers={"etag": etag(letter.head.revision)})


@get("/letters/{id:str}/timeline", guards=READ, operation_id="get_timeline")
async def timeline(place: Here, who: Who, id: Id) -> Timeline:
    """A letter's whole story: sent, tried, died, replayed, and who did what."""
    letter = await place.letters.get(id, sources=who.sources)
    story = await tell(place.store, letter)
    return Timeline(id=letter.id, moments=story.moments, left_out=story.left_out)


@get("/letters/{id:str}/message", guards=REVEAL, operation_id="get_message")
async def message(place: Here, who: Who, id: Id) -> Response[Message]:
    """A letter's message, every byte of it, as base64. Goes into the audit."""
    letter = await place.letters.get(id, sources=who.sources)
    await reveal(place.store, letter, By(who.name))
    return Response(letter.message, headers={"etag": etag(letter.head.revision)})


@get(
    "/letters/{id:str}/body",
    guards=REVEAL,
    operation_id="download_body",
    media_type="application/octet-stream",
)
async def body(place: Here, who: Who, id: Id) -> Response[bytes]:
    """
    A letter's body as it is, to be saved. Goes into the audit.

    Whatever its message claims to be, it is never shown by a browser.
    """
    letter = await place.letters.get(id, sources=who.sources)
    await reveal(place.store, letter, By(who.name))
    return Response(
        letter.message.body,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{letter.id}.bin"'},
    )


def etag(revision: int) -> str:
    """What `If-Match` must say for a letter at this revision."""
    return f'"{revision}"'


routes: Final[list[Any]] = [
    *(search_letters, count_letters, get_letter, timeline, message, body),
]
