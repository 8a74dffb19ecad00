"""The letters before and after one, in the search that it was found by."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from litestar import Request, Response, get

from deadletter.core.access import Identity, Role
from deadletter.core.letter import LetterHead
from deadletter.core.query import Node, parse, sealed
from deadletter.core.query.ast import All, Op, Term
from deadletter.core.query.fields import instant
from deadletter.server.auth.guards import needs
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import done, path_to, redirect
from deadletter.server.context import Here, Who
from deadletter.server.search import MOST, Id, Searches, Searching

from .page import InSearch

_STEP: Final = 100  # letters of one search
_PAGES: Final = 20  # of one span of time
_MICROSECOND: Final = timedelta(microseconds=1)
_SPANS: Final = (
    timedelta(seconds=2),
    timedelta(minutes=2),
    timedelta(hours=2),
    timedelta(days=3),
    timedelta(days=90),
    timedelta(days=3_650),
)


@get("/letters/{id:str}/older", guards=[needs(Role.READER)], include_in_schema=False)
async def show_older(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    id: Id,
    in_: InSearch = "",
) -> Response[bytes]:
    """Lead to the letter of the search that died before this one."""
    head = (await context.office.letters.get(id, sources=who.sources)).head
    found = await older(searching, _understood(who, in_), head)
    return _lead(request, found, head, in_, "This is the oldest letter of the search.")


@get("/letters/{id:str}/newer", guards=[needs(Role.READER)], include_in_schema=False)
async def show_newer(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    id: Id,
    in_: InSearch = "",
) -> Response[bytes]:
    """Lead to the letter of the search that died after this one."""
    head = (await context.office.letters.get(id, sources=who.sources)).head
    found = await newer(searching, _understood(who, in_), head)
    return _lead(request, found, head, in_, "This is the newest letter of the search.")


def _understood(who: Identity, text: str) -> Node:
    node = parse(text)
    return node if who.may(Role.OPERATOR) else sealed(node, text)


def _lead(
    request: Request[Any, Any, Any],
    found: LetterHead | None,
    head: LetterHead,
    query: str,
    end: str,
) -> Response[bytes]:
    if found is not None:
        return redirect(path_to("letters", found.id, **{"in": query}))
    return done(request, Notice(text=end), to=path_to("letters", head.id, **{"in": query}))


async def older(searching: Searching, query: Node, head: LetterHead) -> LetterHead | None:
    """Return the next letter of a search, which is sorted by death, newest first."""
    at = instant(head.dead_at + _MICROSECOND)
    until = All((query, Term("until", Op.IS, (at,))))
    after: str | None = None
    is_behind = False
    while True:
        page = await searching.search(until, limit=_STEP, after=after)
        for one in page.heads:
            if is_behind or one.dead_at < head.dead_at:
                return one
            is_behind = one.id == head.id
        after = page.after
        if after is None or not page.heads:
            return None


async def newer(searching: Searching, query: Node, head: LetterHead) -> LetterHead | None:
    """
    Return the letter before one in a search.

    Searches go from new to old only. So it looks at growing spans of time behind this death,
    until one has letters.
    """
    since = Term("since", Op.IS, (instant(head.dead_at),))
    for span in _SPANS:
        until = Term("until", Op.IS, (instant(head.dead_at + span),))
        found = await _all(searching, All((query, since, until)))
        before = _before(found, head)
        if before is not None:
            return before
    return None


async def _all(searching: Searching, query: Node) -> Sequence[LetterHead]:
    """Return the letters that a search finds, newest first, up to a limit."""
    heads: list[LetterHead] = []
    after: str | None = None
    for _ in range(_PAGES):
        page = await searching.search(query, limit=MOST, after=after)
        heads += page.heads
        after = page.after
        if after is None:
            break
    return heads


def _before(found: Sequence[LetterHead], head: LetterHead) -> LetterHead | None:
    before: LetterHead | None = None
    for one in found:
        if one.id == head.id or one.dead_at < head.dead_at:
            return before
        before = one
    return before


routes: Final[list[Any]] = [show_older, show_newer]
