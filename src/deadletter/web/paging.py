"""What all lists take: how many, and where the last page ended."""

from typing import Annotated, Final, TypeAlias

from litestar.params import PathParameter, QueryParameter

from deadletter.core.query.tokens import MAX_TEXT

MOST: Final = 500  # on one page

Query: TypeAlias = Annotated[
    str,
    QueryParameter(
        name="query",
        max_length=MAX_TEXT,
        description="A search such as `is:pending source:orders`; empty is everything.",
    ),
]
Limit: TypeAlias = Annotated[
    int, QueryParameter(ge=1, le=MOST, description="How many at most.")
]
After: TypeAlias = Annotated[
    str | None,
    QueryParameter(
        max_length=200,
        description="`after` of the page before: what comes behind it.",
    ),
]
Id: TypeAlias = Annotated[
    str,
    PathParameter(
        max_length=200, description="The letter's id, or the beginning of it."
    ),
]
