"""Letters out of one office and into another: export, import."""

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
from deadletter.office.letters import of_sources
from deadletter.office.selection import MOST
from deadletter.server.auth.guards import needs, while_known
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
    Whole letters as JSON lines, every byte of them; can be imported again.

    What is exported is chosen before the first line is sent. Goes into the audit. It
    is cut short when the token or session it was asked for with ends.
    """
    node = of_sources(parse(search), who.sources)
    ids = await searching.freeze(node, limit=limit)
    await context.office.record_export(len(ids), "jsonl", search, _FILE, who.by(reason))
    return Stream(
        while_known(request, _lines(context, ids, search)),
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
    Take in the letters of an export; those that are here already stay as they are.

    The archive is the body. All of it is checked first: if a letter, the number of
    letters or the last line is wrong, nothing is taken, and the answer names what is
    wrong. With `salvage`, the intact letters of a damaged archive are taken. With
    `dry_run`, it is only checked. Sending the same archive again is fine.
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
    return "it is of a mailbox that is none of yours: leave it out"


def _grouped(who: Identity, letter: DeadLetter) -> DeadLetter:
    if not who.sources:
        return letter
    # Which group it counts in is not theirs to say: it could be one of others.
    head = letter.head
    return replace(letter, head=replace(head, fingerprint=of_head(head, letter.frame)))


routes: Final[list[Any]] = [export_letters, import_letters]
