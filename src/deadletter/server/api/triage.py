"""Routes for people who look at letters: facets, contents, common values, needs, a report."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from litestar import get
from litestar.params import QueryParameter

from deadletter.core.access import Role
from deadletter.core.letter import By
from deadletter.core.query import parse, sealed
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.triage.attention import Need
from deadletter.office.triage.common_values import CommonValues
from deadletter.office.triage.completion import Option
from deadletter.office.triage.facets import COUNTED, Facets, Nearby, count_facets
from deadletter.office.triage.layout import BodySlice, Form
from deadletter.office.triage.shift_report import ShiftReport
from deadletter.server.acting.office_views import needs_for, report_for
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who
from deadletter.server.search import Id, Query, Searches, in_utc

from .groups import Name

READ: Final = [needs(Role.READER)]
REVEAL: Final = [needs(Role.OPERATOR, recorded=True)]
_LARGEST: Final = 2**31  # bytes of a body
_STEP: Final = 500  # audit entries of one query

Start: TypeAlias = Annotated[
    int, QueryParameter(ge=0, le=_LARGEST, description="`after` of the part before.")
]
Shape: TypeAlias = Annotated[Form, QueryParameter(description="The form to show the body in.")]
Original: TypeAlias = Annotated[
    bool, QueryParameter(description="Show the body that died, not as it was edited.")
]


@get("/letters/facets", guards=READ)
async def count_facets_of_letters(who: Who, searching: Searches, search: Query = "") -> Facets:
    """
    Return the values of the newest letters that a search finds, by field.

    Each value comes with the search that finds its letters. Secrets are masked.
    """
    node = parse(search)
    if not who.may(Role.OPERATOR):
        node = sealed(node, search)
    page = await searching.search(node, limit=COUNTED, after=None)
    return count_facets(page.heads)


@get("/letters/{id:str}/nearby", guards=READ)
async def list_nearby(context: Here, who: Who, id: Id) -> Sequence[Nearby]:
    """Count the letters that share the key, trace, message id or group of a letter."""
    return await context.office.triage.nearby(id, sources=who.sources)


@get("/letters/{id:str}/contents", guards=READ)
async def get_contents(
    *,
    context: Here,
    who: Who,
    searching: Searches,
    id: Id,
    start: Start = 0,
    form: Shape = Form.PRETTY,
    original: Original = False,
) -> BodySlice:
    """
    Return a part of the body of a letter in lines; secrets are masked.

    A part has about 64 KB, and `after` continues it. Beyond a megabyte, download the body.
    """
    contents = context.office.triage.contents(
        id, By(who.name), start=start, form=form, original=original, sources=who.sources
    )
    return await (searching.look(contents) if start else contents)


@get("/letters/{id:str}/contents/revealed", guards=REVEAL)
async def reveal_contents(
    *,
    context: Here,
    who: Who,
    searching: Searches,
    id: Id,
    start: Start = 0,
    form: Shape = Form.PRETTY,
    original: Original = False,
) -> BodySlice:
    """Return a part of the body of a letter unmasked. Recorded in the audit."""
    contents = context.office.triage.contents(
        id,
        By(who.name),
        start=start,
        form=form,
        original=original,
        reveal=True,
        sources=who.sources,
    )
    return await (searching.look(contents) if start else contents)


@get("/groups/{name:str}/common", guards=READ)
async def get_common_values(
    context: Here, who: Who, searching: Searches, name: Name
) -> CommonValues:
    """
    Return what the newest letters of a group have in common, and what varies.

    `shared` are values that at least 80 % of the letters have. Secrets are masked.
    """
    return await searching.look(context.office.triage.common_values(name, sources=who.sources))


@get("/search/suggest", guards=READ)
async def suggest(
    context: Here,
    who: Who,
    search: Query = "",
    at: Annotated[
        int | None,
        QueryParameter(ge=0, le=MAX_TEXT, description="The position of the cursor (default: end)."),
    ] = None,
) -> Sequence[Option]:
    """
    Return completions of a search: fields, values with counts, places in contents, and whole
    searches that were saved.

    Each option replaces the characters from `start` to `end`.
    """
    return await context.office.triage.suggest(search, at, who=who)


@get("/needs", guards=READ)
async def list_needs(context: Here, who: Who) -> Sequence[Need]:
    """
    Return what needs somebody, the most urgent first.

    A caller limited to some mailboxes sees what is about them, and own replays.
    """
    return await needs_for(context, who)


@get("/report", guards=READ)
async def get_report(
    context: Here,
    who: Who,
    since: Annotated[datetime, QueryParameter(description="The beginning of the shift.")],
) -> ShiftReport:
    """
    Return what happened since a time, who did what, and what is open now.

    A caller limited to some mailboxes gets the report of these, and of own replays.
    """
    return await report_for(context, who, in_utc(since) or since)


routes: Final[list[Any]] = [
    *(count_facets_of_letters, list_nearby, get_contents, reveal_contents),
    *(get_common_values, suggest, list_needs, get_report),
]
