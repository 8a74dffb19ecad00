"""Letters chosen to do something with: once, and for good."""

from typing import Final, Protocol

from msgspec import Struct

from deadletter.core.errors import Conflict, NotFound
from deadletter.core.query import show
from deadletter.core.query.ast import Node

MOST: Final = 200_000  # letters changed at once


class Chosen(Struct, frozen=True):
    """Letters somebody chose; `query` is empty when they were named one by one."""

    ids: tuple[str, ...]
    query: str
    more: bool = False  # the limit cut them off

    @property
    def said(self) -> str:
        """How they were chosen, for the record."""
        return self.query or " ".join(self.ids[:20])

    def check(self, expect: int | None) -> None:
        """Refuse another number of letters than somebody has agreed to."""
        if expect is not None and len(self.ids) != expect:
            raise Conflict(
                f"{len(self.ids):,} letters match now, not {expect:,}: look at it again"
            )


class Freezes(Protocol):
    """Letters of which some can be chosen for good, wherever they are."""

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """The ids a search finds now."""


async def found_by(
    letters: Freezes, query: str | Node, *, limit: int | None = None
) -> Chosen:
    """The letters a search finds now; none at all is NotFound."""
    text = query if isinstance(query, str) else show(query) or "*"
    most = min(limit or MOST, MOST)
    ids = await letters.freeze(query, limit=most)
    if not ids:
        raise NotFound(f"no letter matches {text}")
    return Chosen(tuple(ids), text, len(ids) == most)
