"""Letters out of one office and into another: export, import."""

from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from typing import Annotated, Any, Final

from litestar import Request, get, post
from litestar.params import QueryParameter, RawBody
from litestar.response import Stream
from msgspec.structs import replace

from deadletter.core.access import Pass, Role
from deadletter.core.errors import ConfigError
from deadletter.core.fingerprint import fingerprint_of
from deadletter.core.letter import By, DeadLetter
from deadletter.core.query import parse
from deadletter.office.archive import (
    FORMAT,
    VERSION,
    ArchiveHead,
    archive_lines,
    open_archive,
)
from deadletter.office.choosing import MOST
from deadletter.office.letters import of_sources
from deadletter.office.taking_in import TakenIn, take_in
from deadletter.web.auth.guards import needs, while_known
from deadletter.web.given import Here, Who
from deadletter.web.paging import Query
from deadletter.web.place import Place
from deadletter.web.searching import Searches

LINES: Final = "application/x-ndjson"
_FILE: Final = "letters.jsonl"


@get("/export", guards=[needs(Role.OPERATOR, recorded=True)], media_type=LINES)
async def export_letters(
    *,
    request: Request[Any, Any, Any],
    place: Here,
    who: Who,
    searching: Searches,
    *,
    search: Query = "",
    limit: Annotated[int, QueryParameter(ge=1, le=MOST)] = MOST,
    reason: Annotated[str, QueryParameter(max_length=4_000)] = "",
) -> Stream:
    """
    Whole letters as JSON lines, every byte of them; can be imported again.

    What is exported is chosen before the first line is sent. Goes into the audit. It
    is cut short when the token or session it was asked for with ends.
    """
    node = of_sources(parse(search), who.sources)
    ids = await searching.freeze(node, limit=limit)
    by = By(who.name, reason)
    detail = f"{len(ids)} letters as jsonl: {search or 'everything'}"
    await place.store.record("export", _FILE, by, detail)
    return Stream(
        while_known(request, _lines(place, ids, search)),
        media_type=LINES,
        headers={"content-disposition": f'attachment; filename="{_FILE}"'},
    )


@post("/import", guards=[needs(Role.ADMIN)], status_code=200)
async def import_letters(
    place: Here,
    who: Who,
    body: RawBody,
    archive: Annotated[str, QueryParameter(min_length=1, max_length=200)] = "request",
    reason: Annotated[str, QueryParameter(max_length=4_000)] = "",
) -> TakenIn:
    """
    Take in the letters of an export; those that are here already stay as they are.

    The lines are the body. Where one is wrong it stops; what stands above was taken
    in, and sending it all again is fine.
    """
    letters = open_archive(BytesIO(body))
    by = By(who.name, reason)
    return await take_in(place.store, _own(who, letters), by, archive=archive)


async def _lines(place: Place, ids: list[str], query: str) -> AsyncIterator[bytes]:
    head = ArchiveHead(
        format=FORMAT, version=VERSION, exported_at=place.clock.now(), query=query
    )
    async for _, lines in archive_lines(place.store, ids, head):
        yield lines


def _own(who: Pass, letters: Iterator[DeadLetter]) -> Iterator[DeadLetter]:
    if not who.sources:
        yield from letters
        return
    for letter in letters:
        if not who.sees(letter.head.source):
            raise ConfigError(
                f"letter {letter.id} is of a mailbox that is none of yours:"
                " leave it out"
            )
        # Which group it counts in is not theirs to say: it could be one of others.
        head = letter.head
        group = fingerprint_of(
            head.source, head.error_type, letter.frame, head.error_text
        )
        yield replace(letter, head=replace(head, fingerprint=group))


routes: Final[list[Any]] = [export_letters, import_letters]
