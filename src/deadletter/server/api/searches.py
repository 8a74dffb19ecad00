"""Routes of saved searches."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

from litestar import delete, get, put
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Role
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.searches import SearchLine
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who

from .letters import Reason

Name: TypeAlias = Annotated[
    str, PathParameter(max_length=400, description="The name of the search.")
]


class SearchToSave(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search, and whether it replaces another one of its name."""

    query: Annotated[str, Meta(max_length=MAX_TEXT)]
    replace: bool = False
    reason: Reason = ""


@get("/searches", guards=[needs(Role.READER)])
async def list_searches(context: Here, who: Who) -> Sequence[SearchLine]:
    """
    List the saved searches, by name. Everybody shares them.

    A caller limited to some mailboxes gets own searches, those that look into these mailboxes
    only, and those that tell nothing of letters, such as `is:open age:>24h`. Searches for what
    is masked are not listed for readers.
    """
    return await context.office.searches.list(who=who)


@put("/searches/{name:path}", guards=[needs(Role.OPERATOR)])
async def save_search(
    context: Here, who: Who, name: Name, data: JSONBody[SearchToSave]
) -> SearchLine:
    """
    Save a search under a name of up to 80 characters; an office keeps 200 of them.

    If the name has another query it is a conflict, except with `replace`. A caller limited to
    some mailboxes replaces own searches only.
    """
    return await context.office.searches.save(
        name.removeprefix("/"), data.query, who.by(data.reason), replace=data.replace, who=who
    )


@delete("/searches/{name:path}", guards=[needs(Role.OPERATOR)], status_code=200)
async def delete_search(
    context: Here,
    who: Who,
    name: Name,
    reason: Annotated[str, QueryParameter(max_length=4_000)] = "",
) -> SearchLine:
    """
    Delete a saved search; the answer is what it was.

    A caller limited to some mailboxes deletes own searches only.
    """
    return await context.office.searches.delete(name.removeprefix("/"), who.by(reason), who=who)


routes: Final[list[Any]] = [list_searches, save_search, delete_search]
