"""Routes of saved searches: the dialog that saves one, and the forms."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get, post
from litestar.params import QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import QueryError
from deadletter.core.query.parse import MAX_TEXT
from deadletter.core.saved_search import LONGEST_NAME, LONGEST_QUERY, SavedSearch
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    Console,
    done,
    is_partial,
    page_before,
    render_page,
    render_part,
)
from deadletter.server.console.undo_keys import Opposite
from deadletter.server.context import Here, ServerContext, Who

from .list_queries import list_path

_OPERATOR: Final = [needs(Role.OPERATOR)]


class SaveDialog(Struct, frozen=True, kw_only=True):
    """The dialog that saves a search."""

    query: str
    back: str
    longest_name: int = LONGEST_NAME
    longest_query: int = LONGEST_QUERY


@get("/searches/dialog", guards=_OPERATOR, include_in_schema=False)
async def show_save_dialog(
    request: Request[Any, Any, Any], q: Annotated[str, QueryParameter(max_length=MAX_TEXT)] = ""
) -> Response[bytes]:
    """Show the form that saves a search."""
    query = q.strip()
    page = SaveDialog(query=query, back=list_path(query))
    if is_partial(request):
        return render_part(request, "letters/parts/save_dialog.html", page)
    about = About(title="Save this search", screen="letters", query=query)
    return await render_page(request, "letters/save.html", page, about)


class SaveForm(Struct, frozen=True, kw_only=True):
    """A search and its name."""

    name: Annotated[str, Meta(max_length=400)]
    query: Annotated[str, Meta(max_length=MAX_TEXT)]
    replace: bool = False


@post("/searches/save", guards=_OPERATOR, include_in_schema=False, status_code=200)
async def save_search(request: Request[Any, Any, Any], context: Here, who: Who) -> Response[bytes]:
    """Save a search under a name."""
    form = await read_form(request, SaveForm)
    query = form.query.strip()
    try:
        saved = await context.office.searches.save(
            form.name, query, who.by(), replace=form.replace, who=who
        )
    except QueryError as error:  # forms show a sentence alone, without a place
        where = f"at character {error.at + 1}: {error.text}"
        raise QueryError(where, query=query, at=error.at) from error
    return done(request, Notice(text=f"Saved as {saved.name}."), to=list_path(saved.query))


class DeleteForm(Struct, frozen=True, kw_only=True):
    """The name of a search to delete."""

    name: Annotated[str, Meta(max_length=400)]


@post("/searches/delete", guards=_OPERATOR, include_in_schema=False, status_code=200)
async def delete_search(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Delete a saved search; its letters stay."""
    form = await read_form(request, DeleteForm)
    gone = await context.office.searches.take(form.name, who.by(), who=who)
    console: Console = request.app.state.console
    undo = console.undoing.keep(who, _putting_back(gone))
    notice = Notice(text=f"Deleted the saved search {gone.name}. No letter changed.", undo=undo)
    return done(request, notice, to=page_before(request))


def _putting_back(search: SavedSearch) -> Opposite:
    async def put_back(context: ServerContext, who: Identity) -> Notice:
        await context.office.searches.put_back(search, who.by("undone"), who=who)
        return Notice(text=f"The search {search.name} is saved again.")

    return put_back


routes: Final[list[Any]] = [show_save_dialog, save_search, delete_search]
