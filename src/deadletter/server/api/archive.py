"""Routes of archives: export and import letters."""

from collections.abc import AsyncIterator
from functools import partial
from io import BytesIO
from typing import Annotated, Any, Final

from litestar import Request, get, post
from litestar.params import QueryParameter, RawBody
from litestar.response import Stream
from msgspec.structs import replace

from deadletter.core.access import Identity, Role
from deadletter.core.failure.fingerprint import of_head
from deadletter.core.letter import By, DeadLetter
from deadletter.core.query import parse
from deadletter.office.archive import archive_lines
from deadletter.office.archive_import import TakenIn, take_in_archive
from deadletter.office.letter_search import of_sources
from deadletter.office.selection import MOST
from deadletter.server.auth.guards import needs, while_authorized
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import Query, Searches

LINES: Final = "application/x-ndjson"
_FILE: Final = "letters.jsonl"


@get("/export", guards=[needs(Role.OPERATOR, recorded=True)], media_type=LINES)
async def export_letters(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    search: Query = "",
    limit: Annotated[int, QueryParameter(ge=1, le=MOST)] = MOST,
    reason: Annotated[str, QueryParameter(max_length=4_000)] = "",
) -> Stream:
    """
    Export complete letters as JSON lines, which can be imported again.

    The letters are chosen before the first line is sent. Recorded in the audit. The
    export ends incomplete if the token or session of the caller ends.
    """
    node = of_sources(parse(search), who.sources)
    ids = await searching.freeze(node, limit=limit)
    await context.office.record_export(len(ids), "jsonl", search, _FILE, who.by(reason))
    return Stream(
        while_authorized(request, _lines(context, ids, search)),
        media_type=LINES,
        headers={"content-disposition": f'attachment; filename="{_FILE}"'},
    )


@post("/import", guards=[needs(Role.ADMIN)], status_code=200)
async def import_letters(
    context: Here,
    who: Who,
    *,
    body: RawBody,
    archive: Annotated[str, QueryParameter(min_length=1, max_length=200)] = "request",
    reason: Annotated[str, QueryParameter(max_length=4_000)] = "",
    salvage: Annotated[bool, QueryParameter()] = False,
    dry_run: Annotated[bool, QueryParameter()] = False,
) -> TakenIn:
    """
    Import the letters of an export; existing letters do not change.

    The body is the archive. The whole archive is checked first: if a letter, the number
    of letters or the last line is wrong, nothing is imported, and the answer lists the
    problems. With `salvage`, the intact letters of a damaged archive are imported. With
    `dry_run`, the archive is only checked. The same archive can be imported again.
    """
    return await take_in_archive(
        context.store,
        BytesIO(body),
        By(who.name, reason),
        archive=archive,
        salvage=salvage,
        dry_run=dry_run,
        reject=partial(_rejected, who),
        change=partial(_grouped, who),
    )


async def _lines(context: ServerContext, ids: list[str], query: str) -> AsyncIterator[bytes]:
    async for _, lines in archive_lines(context.store, ids, context.office.archive_head(query)):
        yield lines


def _rejected(who: Identity, letter: DeadLetter) -> str | None:
    if not who.sources or who.sees(letter.head.source):
        return None
    return "its mailbox is one that your token does not see: leave the letter out"


def _grouped(who: Identity, letter: DeadLetter) -> DeadLetter:
    if not who.sources:
        return letter
    # The group is computed again, because the archive could name a group of others.
    head = letter.head
    return replace(letter, head=replace(head, fingerprint=of_head(head, letter.frame)))


routes: Final[list[Any]] = [export_letters, import_letters]
