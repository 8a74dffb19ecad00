"""Routes that read letters: search, count, show, story, message, body."""

from typing import Annotated, Any, Final, TypeAlias

from litestar import Response, get
from litestar.params import QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By
from deadletter.core.message import Message
from deadletter.core.query import parse, sealed
from deadletter.office.exports import pack_files
from deadletter.office.letters_protocol import LetterCount
from deadletter.office.view import LetterView, Moment, view
from deadletter.ports import Page
from deadletter.server.acting.choice import Choice
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import After, Id, Limit, Query, Searches

READ: Final = [needs(Role.READER)]
REVEAL: Final = [needs(Role.OPERATOR, recorded=True)]

Capture: TypeAlias = Annotated[bool, QueryParameter(description="Include the header `dlq-found`.")]


class Timeline(Struct, frozen=True, kw_only=True):
    """Everything that happened to a letter, first to last."""

    id: str
    moments: tuple[Moment, ...]
    left_out: bool  # the audit has more entries about the letter


@get("/letters", guards=READ, operation_id="search_letters")
async def search_letters(
    who: Who, searching: Searches, search: Query = "", limit: Limit = 50, after: After = None
) -> Page:
    """
    Search letters, newest death first.

    The time of a search is limited: a page can be short or empty and still have an
    `after`. Then `looked_at` of `letters` letters were searched, those that died since
    `back_to`. Callers who see masked messages cannot search for masked values.
    """
    node = parse(search)
    if not who.may(Role.OPERATOR):
        node = sealed(node, search)
    return await searching.search(node, limit=limit, after=after)


@get("/letters/count", guards=READ, operation_id="count_letters")
async def count_letters(who: Who, searching: Searches, search: Query = "") -> LetterCount:
    """
    Count the letters that a search finds, as far as that is cheap.

    If `is_all` is false, there are more than `letters`.
    """
    node = parse(search)
    if not who.may(Role.OPERATOR):
        node = sealed(node, search)
    return await searching.count(node)


@get("/letters/{id:str}", guards=READ, operation_id="get_letter")
async def get_letter(
    context: Here, who: Who, id: Id, capture: Capture = False
) -> Response[LetterView]:
    """
    Return one letter with its attempts; secrets in its message are masked.

    With `capture` the headers of a drained letter include `dlq-found`, which holds the
    data needed to send it back.
    """
    letter = await context.office.letters.get(id, sources=who.sources)
    shown = view(letter, capture=capture)
    return Response(shown, headers={"etag": etag(letter.head.revision)})


@get("/letters/{id:str}/timeline", guards=READ, operation_id="get_timeline")
async def timeline(context: Here, who: Who, id: Id) -> Timeline:
    """Return the story of a letter: attempts, deaths, replays, and who did what."""
    found = await context.office.letters.details(id, By(who.name), sources=who.sources)
    return Timeline(id=found.view.head.id, moments=found.moments, left_out=found.left_out)


@get("/letters/{id:str}/message", guards=REVEAL, operation_id="get_message")
async def message(context: Here, who: Who, id: Id) -> Response[Message]:
    """Return the complete message of a letter. Recorded in the audit."""
    head, found = await context.office.letters.message(id, By(who.name), sources=who.sources)
    return Response(found, headers={"etag": etag(head.revision)})


@get(
    "/letters/{id:str}/body",
    guards=REVEAL,
    operation_id="download_body",
    media_type="application/octet-stream",
)
async def body(context: Here, who: Who, id: Id) -> Response[bytes]:
    """
    Download the body of a letter, unchanged. Recorded in the audit.

    A browser saves it and never displays it, regardless of its content type.
    """
    head, found = await context.office.letters.message(id, By(who.name), sources=who.sources)
    return Response(
        found.body,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{head.id}.bin"'},
    )


AppName: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        max_length=200,
        description="The App with the handler, as module:name (default: the setting `app`).",
    ),
]
OfOriginal: TypeAlias = Annotated[
    bool, QueryParameter(description="Use the message that died, not as it was edited.")
]
ZIP: Final = "application/zip"


@get("/letters/{id:str}/repro", guards=READ, media_type=ZIP)
async def get_repro(
    context: Here, who: Who, id: Id, app: AppName = None, original: OfOriginal = False
) -> Response[bytes]:
    """
    Download a failing test of a letter: a pytest file, and the message beside it.

    The test fails as the message did, until the handler is fixed. Secrets are masked.
    """
    return await _repro(context, who, id, app, original=original)


@get("/letters/{id:str}/repro/revealed", guards=REVEAL, media_type=ZIP)
async def reveal_repro(
    context: Here, who: Who, id: Id, app: AppName = None, original: OfOriginal = False
) -> Response[bytes]:
    """Download a failing test of a letter with its secrets. Recorded in the audit."""
    return await _repro(context, who, id, app, original=original, reveal=True)


async def _repro(
    context: ServerContext,
    who: Identity,
    id: str,
    app: str | None,
    *,
    original: bool,
    reveal: bool = False,
) -> Response[bytes]:
    app = app or context.settings.app
    if app is None:
        raise ConfigError("name the application with the handler, as in ?app=shop:app")
    files = await context.office.letters.repro(
        id, app, who.by(), original=original, reveal=reveal, sources=who.sources
    )
    *_, test = files
    name = test.removesuffix(".py")
    return Response(
        pack_files(files),
        media_type=ZIP,
        headers={"content-disposition": f'attachment; filename="{name}.zip"'},
    )


def etag(revision: int) -> str:
    """Return the value of `If-Match` for a letter at this revision."""
    return f'"{revision}"'


routes: Final[list[Any]] = [
    *(search_letters, count_letters, get_letter, timeline, message, body),
    *(get_repro, reveal_repro),
]


Reason: TypeAlias = Annotated[
    str, Meta(max_length=4_000, description="Why; recorded in the audit.")
]


class Selection(Choice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection of letters, and the reason of a change."""

    reason: Reason = ""
