"""The list of letters: which messages?"""

from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get
from litestar.params import QueryParameter

from deadletter.core.access import Role
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.batches import BATCH
from deadletter.server.auth.guards import needs
from deadletter.server.console.pages import About, path_to, render_page, render_part
from deadletter.server.context import Here, Who
from deadletter.server.search import After, Searches

from .letter_list import (
    PAGE,
    LetterList,
    ListRequest,
    ahead_of,
    command_of,
    load_alone,
    load_count,
    load_facets,
    load_list,
    load_rows,
)
from .list_queries import DEFAULT, understand
from .saved_row import load_saved
from .sheet import sheet_of

Typed = Annotated[str | None, QueryParameter(max_length=MAX_TEXT)]
Ids = Annotated[str, QueryParameter(max_length=PAGE * 25)]
Via = Annotated[str, QueryParameter(max_length=1_000)]
Top = Annotated[str, QueryParameter(max_length=40)]
Part = Annotated[
    Literal["found", "rows", "count", "facets", "alone", "saved"] | None, QueryParameter()
]
_BAD: Final = 400


@get("/letters", guards=[needs(Role.READER)], include_in_schema=False)
async def show_letters(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    q: Typed = None,
    after: After = None,
    via: Via = "",
    ids: Ids = "",
    top: Top = "",
    show: Annotated[Literal["facets", "found"] | None, QueryParameter()] = None,
    part: Part = None,
) -> Response[bytes]:
    """Show the letters that a search finds; without one, the open ones."""
    query = DEFAULT if q is None else q.strip()
    if part == "rows":
        wanted = tuple(filter(None, ids.split(",")))[:BATCH]
        rows = await load_rows(who, searching, query, wanted, top)
        return render_part(request, "letters/parts/rows.html", rows)
    if part == "count":
        count = await load_count(context, who, searching, query)
        return render_part(request, "letters/parts/count.html", count)
    if part == "facets":
        facets = await load_facets(who, searching, query)
        return render_part(request, "letters/parts/facets.html", facets)
    if part == "alone":
        alone = await load_alone(who, searching, query)
        return render_part(request, "letters/parts/alone.html", alone)
    if part == "saved":
        saved = await load_saved(context, who, query)
        return render_part(request, "letters/parts/saved.html", saved)
    asked = ListRequest(query=query, after=after, via=tuple(filter(None, via.split(","))))
    if part is None and show is None and (ahead := ahead_of(who, asked)) is not None:
        about = About(title="Letters", screen="letters", command=command_of(query), query=query)
        return await render_page(request, "letters/searching.html", ahead, about)
    page = await load_list(context, who, searching, asked, with_facets=show == "facets")
    if part == "found":
        return render_part(request, "letters/found.html", page)
    status = 200 if page.mistake is None else _BAD
    return await render_page(request, "letters/list.html", page, _about(query, page), status=status)


def _about(query: str, page: LetterList) -> About:
    return About(
        title="Letters",
        screen="letters",
        command=command_of(query) if page.mistake is None else "",
        api=path_to("letters", query=query) if page.mistake is None else "",
        query=query,
    )


@get("/letters/sheet", guards=[needs(Role.READER)], include_in_schema=False)
async def download_sheet(
    context: Here, who: Who, searching: Searches, q: Typed = None
) -> Response[bytes]:
    """Download the letters of a search as a sheet."""
    query = DEFAULT if q is None else q.strip()
    node = understand(query, masked=not who.may(Role.OPERATOR))
    stamp = f"{context.clock.now():%Y-%m-%d-%H%M}"
    return Response(
        await sheet_of(searching, node),
        media_type="text/csv",
        headers={"content-disposition": f'attachment; filename="letters-{stamp}.csv"'},
    )


routes: Final[list[Any]] = [show_letters, download_sheet]
