"""The row of saved searches over the list of letters: the values that it shows."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.errors import DeadLetterError
from deadletter.core.saved_search import checked_query
from deadletter.office.searches import SearchLine
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

from .list_queries import list_path

SHOWN: Final = 6  # in the row; the others are in a menu


class SavedLink(Struct, frozen=True, kw_only=True):
    """A saved search as a link to what it finds."""

    name: str
    query: str
    path: str
    is_current: bool = False


class SavedRow(Struct, frozen=True, kw_only=True):
    """The saved searches, and what can be done with the search of the page."""

    url: str  # of the part
    links: tuple[SavedLink, ...] = ()
    more: tuple[SavedLink, ...] = ()
    save_path: str = ""  # of the dialog that saves the search of the page
    deletable: str = ""  # the name of the search of the page, if this person may delete it


async def load_saved(context: ServerContext, who: Identity, query: str) -> SavedRow:
    """Return the saved searches for the page of a search."""
    return saved_row(await context.office.searches.list(who=who), query)


def saved_row(searches: Sequence[SearchLine], query: str) -> SavedRow:
    """Return the row for a search; the one of the page is always among the links."""
    links = [link_to(one, query) for one in searches]
    current = next((one for one in searches if one.query == query), None)
    shown = links[:SHOWN]
    if current is not None and not any(link.is_current for link in shown):
        shown[-1:] = [link for link in links if link.is_current][:1]
    return SavedRow(
        url=list_path(query, part="saved"),
        links=tuple(shown),
        more=tuple(link for link in links if link not in shown),
        save_path=path_to("searches", "dialog", q=query) if not current and _fits(query) else "",
        deletable=current.name if current and current.can_change else "",
    )


def link_to(search: SearchLine, query: str = "") -> SavedLink:
    """Return a saved search as a link, on the page of a search."""
    return SavedLink(
        name=search.name,
        query=search.query,
        path=list_path(search.query),
        is_current=search.query == query,
    )


def _fits(query: str) -> bool:
    """Return whether a search can be saved."""
    try:
        checked_query(query)
    except DeadLetterError:
        return False
    return True
