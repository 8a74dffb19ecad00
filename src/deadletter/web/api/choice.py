"""Which letters a request is about: named one by one, or found by a search."""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from deadletter.core.access import Pass
from deadletter.core.errors import ConfigError
from deadletter.core.query import parse
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.tokens import MAX_TEXT
from deadletter.office.batches import batched
from deadletter.office.choosing import MOST, WIDEST, Chosen, check_words, found_by
from deadletter.office.letters import of_sources
from deadletter.web.place import Place
from deadletter.web.searching import Searching

MOST_NAMED: Final = 10_000

Reason: TypeAlias = Annotated[
    str, Meta(max_length=4_000, description="Why; goes into the audit.")
]
Search: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_TEXT, description="A search; `*` is all.")
]
Named: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...],
    Meta(min_length=1, max_length=MOST_NAMED, description="Whole ids of letters."),
]
AtMost: TypeAlias = Annotated[
    int, Meta(ge=1, le=MOST, description="At most so many of what a search finds.")
]
FreeText: TypeAlias = Annotated[
    bool,
    Meta(
        description="The query may hold free words, which find letters that contain"
        " them. Without it a query names fields only."
    ),
]
Expect: TypeAlias = Annotated[
    int, Meta(ge=0, description="Refuse unless it is exactly this many letters.")
]


class Selection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some letters: either `ids`, or what `query` finds now."""

    ids: Named | None = None
    query: Search | None = None
    limit: AtMost | None = None
    expect: Expect | None = None
    free_text: FreeText = False
    reason: Reason = ""


async def chosen(
    place: Place,
    who: Pass,
    selection: Selection,
    searching: Searching,
    *,
    to_replay: bool = False,
) -> Chosen:
    """
    The letters that are meant; none of other people's are among them.

    The limit of a replay is not applied here: it counts letters that are sent.
    """
    if (selection.ids is None) == (selection.query is None):
        raise ConfigError("say which letters, either by `ids` or by a `query`")
    if selection.query is not None:
        query = parse(selection.query)
        check_words(query, allowed=selection.free_text, how="say free_text: true")
        node = of_sources(query, who.sources)
        found = await found_by(
            searching,
            node,
            limit=None if to_replay else selection.limit,
            widest=WIDEST if to_replay else MOST,
        )
    else:
        ids = tuple(dict.fromkeys(id_.lower() for id_ in selection.ids or ()))
        found = Chosen(await _seen(place, who, ids), "")
    found.check(selection.expect, selection.limit)
    return found


async def _seen(place: Place, who: Pass, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the ids that are any of the caller's business."""
    if not who.sources:
        return ids
    seen: list[str] = []
    for batch in batched(ids):
        node = of_sources(Term("id", Op.IS, batch), who.sources)
        page = await place.letters.search(node, limit=len(batch))
        seen += [head.id for head in page.heads]
    return tuple(seen)
