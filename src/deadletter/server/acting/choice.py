"""Choices of letters: by ids, or by a search."""

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from deadletter.core.access import Identity
from deadletter.core.errors import ConfigError
from deadletter.core.query import parse
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.batches import batched
from deadletter.office.letter_search import of_sources
from deadletter.office.selection import MOST, WIDEST, Chosen, check_words, found_by
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

MOST_NAMED: Final = 10_000

Search: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_TEXT, description="A search; `*` is all.")
]
Named: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...],
    Meta(min_length=1, max_length=MOST_NAMED, description="Whole ids of letters."),
]
AtMost: TypeAlias = Annotated[
    int, Meta(ge=1, le=MOST, description="The most letters that a search may choose.")
]
FreeText: TypeAlias = Annotated[
    bool,
    Meta(description="Allow words without a field in the query, which match the text of letters."),
]
Expect: TypeAlias = Annotated[
    int, Meta(ge=0, description="Refuse unless it is exactly this many letters.")
]


class Choice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters to act on: either `ids`, or what `query` finds now."""

    ids: Named | None = None
    query: Search | None = None
    limit: AtMost | None = None
    expect: Expect | None = None
    free_text: FreeText = False

    def check_count(self, verb: str, first: str = "count the letters") -> None:
        """Raise ConfigError for a search without the expected number of letters."""
        if self.query is not None and self.expect is None:
            raise ConfigError(
                f"to {verb} letters by a query, `expect` is required: {first} first, and give"
                " the number of letters"
            )


async def choose(
    context: ServerContext,
    who: Identity,
    searching: Searching,
    choice: Choice,
    *,
    to_replay: bool = False,
) -> Chosen:
    """
    Return the letters of a choice that the caller may see.

    The limit of a replay is not applied here: it counts letters that are sent.
    """
    if (choice.ids is None) == (choice.query is None):
        raise ConfigError("select letters either by `ids` or by a `query`")
    if choice.query is not None:
        query = parse(choice.query)
        check_words(query, allowed=choice.free_text, how="set free_text: true")
        node = of_sources(query, who.sources)
        found = await found_by(
            searching,
            node,
            limit=None if to_replay else choice.limit,
            widest=WIDEST if to_replay else MOST,
        )
    else:
        ids = tuple(dict.fromkeys(id_.lower() for id_ in choice.ids or ()))
        found = Chosen(await _seen(context, who, ids), "")
    found.check(choice.expect, choice.limit)
    return found


async def _seen(context: ServerContext, who: Identity, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of letters that the caller may see."""
    if not who.sources:
        return ids
    seen: list[str] = []
    for batch in batched(ids):
        node = of_sources(Term("id", Op.IS, batch), who.sources)
        page = await context.office.letters.search(node, limit=len(batch))
        seen += [head.id for head in page.heads]
    return tuple(seen)
