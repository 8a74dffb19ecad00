"""Completion of the search field, and the page that explains how to search."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.query import FIELDS, Field, Kind
from deadletter.core.query.parse import MAX_TEXT
from deadletter.core.text import clean
from deadletter.office.triage.completion import Option
from deadletter.server.auth.guards import needs
from deadletter.server.console.pages import About, render_page, render_part
from deadletter.server.context import Here, Who

from .list_queries import list_path


class Options(Struct, frozen=True):
    """Completions of a search."""

    options: tuple[Option, ...]


@get("/search/suggest", guards=[needs(Role.READER)], include_in_schema=False)
async def suggest(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    q: Annotated[str, QueryParameter(max_length=MAX_TEXT)] = "",
    at: Annotated[int | None, QueryParameter(ge=0, le=MAX_TEXT)] = None,
) -> Response[bytes]:
    """Return completions of a search as the options of a list."""
    found = await context.office.triage.suggest(q, at, who=who)
    # What cannot stand in a page as it is would be another search once it is taken.
    options = tuple(option for option in found if clean(option.text) == option.text)
    return render_part(request, "letters/parts/options.html", Options(options))


class FieldLine(Struct, frozen=True, kw_only=True):
    """A field of the search language."""

    name: str
    about: str
    values: str
    example: str
    path: str


class Example(Struct, frozen=True, kw_only=True):
    """A search and what it finds."""

    query: str
    about: str
    path: str


class SearchHelp(Struct, frozen=True, kw_only=True):
    """The page that explains how to search."""

    fields: tuple[FieldLine, ...]
    examples: tuple[Example, ...]


_VALUES: Final = {
    Kind.TEXT: "text; * stands for any text",
    Kind.NUMBER: "a whole number, also with > >= < <=",
    Kind.TIME: "2026-11-01, 2026-11-01T12:00 or 2026-11-01T12:00:00Z",
    Kind.DURATION: "90s, 15m, 24h, 7d or 2w, with > or <",
    Kind.PATH: "text or a number, also with > >= < <=",
}
_EXAMPLES: Final = (
    ("is:open source:orders", "both: terms stand beside each other"),
    ("error:TimeoutError OR error:KeyError", "either: OR stands between them"),
    ("is:[pending,reviewed]", "any value of a list"),
    ("is:open !source:mails", "not: an exclamation mark before a term"),
    ("is:open (age:>24h OR attempts:>3)", "brackets hold terms together"),
    ("error:Timeout*", "a star stands for any text"),
    ('text:"connection refused"', "quotes hold words together"),
    ("body.amount:>100", "a place in a JSON body"),
    ("header.tenant:eu", "a header of the message"),
    ("refused", "a word alone: anywhere in the error or the body"),
)


def search_help() -> SearchHelp:
    """Return all fields of the search language and some searches to try."""
    return SearchHelp(
        fields=tuple(map(_line, FIELDS.values())),
        examples=tuple(
            Example(query=query, about=about, path=list_path(query)) for query, about in _EXAMPLES
        ),
    )


def _line(field: Field) -> FieldLine:
    values = ", ".join((*field.choices, *field.also)) or _VALUES[field.kind]
    if field.relative:
        values += ", or a duration such as 7d"
    names = ", ".join((field.name, *field.aliases))
    path = list_path(field.example)
    return FieldLine(name=names, about=field.about, values=values, example=field.example, path=path)


@get("/help/search", guards=[needs(Role.READER)], include_in_schema=False)
async def show_help(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Show how to search: every field, with a search to try."""
    about = About(title="How to search", screen="letters", command="dlq list --help")
    return await render_page(request, "letters/help.html", search_help(), about)


routes: Final[list[Any]] = [suggest, show_help]
