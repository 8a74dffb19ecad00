"""Letters chosen to do something with: once, and for good."""

from typing import Final, Protocol

from msgspec import Struct

from deadletter.core.counts import many
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.query import first_word, parse, show
from deadletter.core.query.ast import Node

MOST: Final = 200_000  # letters changed at once, and in one replay
WIDEST: Final = 1_000_000  # letters among which the oldest are sought


class Chosen(Struct, frozen=True):
    """Letters somebody chose; `query` is empty when they were named one by one."""

    ids: tuple[str, ...]
    query: str
    more: bool = False  # the limit cut them off

    @property
    def said(self) -> str:
        """How they were chosen, for the record."""
        return self.query or " ".join(self.ids[:20])

    def check(self, expect: int | None, limit: int | None = None) -> None:
        """Refuse another number of letters than somebody has agreed to."""
        count = len(self.ids) if limit is None else min(limit, len(self.ids))
        if expect is not None and count != expect:
            match = many(count, "letter matches", "letters match")
            raise Conflict(f"{match} now, not {expect:,}: look at it again")


def check_words(query: str | Node, *, allowed: bool, how: str) -> None:
    """
    Refuse free words in a search that changes letters, unless they are `allowed`.

    A word may stand anywhere in a letter, so that `5` finds nearly all of them.
    `how` says how to allow them.
    """
    word = first_word(parse(query) if isinstance(query, str) else query)
    if word is not None and not allowed:
        raise ConfigError(
            f"{word.text!r} is neither the id of a letter nor a field with its value:"
            " letters that contain a text are not changed by accident. Name ids, or"
            f" fields as in source:orders or error:Timeout*; to mean the text, {how}"
        )


class Freezes(Protocol):
    """Letters of which some can be chosen for good, wherever they are."""

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """The ids a search finds now."""


async def found_by(
    letters: Freezes,
    query: str | Node,
    *,
    limit: int | None = None,
    widest: int = MOST,
) -> Chosen:
    """The letters a search finds now; none at all is NotFound."""
    text = query if isinstance(query, str) else show(query) or "*"
    most = min(limit or widest, widest)
    ids = await letters.freeze(query, limit=most)
    if not ids:
        raise NotFound(f"no letter matches {text}")
    return Chosen(tuple(ids), text, len(ids) == most)
