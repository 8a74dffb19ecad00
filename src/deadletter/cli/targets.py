"""Which letters a command is about: ids, beginnings of ids, or a search."""

import re
from collections.abc import Sequence
from typing import Final

from deadletter.core.errors import ConfigError, NotFound
from deadletter.office.choosing import MOST, Chosen, check_words, found_by
from deadletter.office.letters import SHORTEST_PREFIX

from .office import SomeLetters

_LIKE_AN_ID: Final = re.compile(r"[A-Za-z2-7]{6,24}")


def letter_id(word: str) -> str:
    """A word that names one letter; one too short to do so is refused."""
    if len(word.strip()) < SHORTEST_PREFIX:
        raise ConfigError(
            f"{word!r} is too short for an id: give at least {SHORTEST_PREFIX}"
            " characters of it; `dlq list` shows them"
        )
    return word


async def choose(
    letters: SomeLetters,
    words: Sequence[str],
    *,
    text: bool,
    limit: int | None = None,
    widest: int = MOST,
) -> Chosen:
    """
    The letters that words on the command line stand for.

    Words that are all ids, or beginnings of them, name letters; anything else is
    a search. Nothing at all is refused: `'*'` says everything. Free words are
    refused, unless they are said to be `text`.
    """
    if not words:
        raise ConfigError(
            "say which letters: their ids, or a search such as "
            "'is:pending source:orders'; '*' is all of them"
        )
    named = await _named(letters, words)
    if named is not None:
        return Chosen(named[:limit], "", limit is not None and len(named) > limit)
    query = " ".join(words)
    check_words(query, allowed=text, how="add --text")
    return await found_by(letters, query, limit=limit, widest=widest)


async def _named(letters: SomeLetters, words: Sequence[str]) -> tuple[str, ...] | None:
    if not all(_LIKE_AN_ID.fullmatch(word) for word in words):
        return None
    ids: list[str] = []
    missing: list[NotFound] = []
    for word in words:
        try:
            ids.append((await letters.head(word)).id)
        except NotFound as error:
            missing.append(error)
    if not ids:
        return None  # plain words
    if missing:
        raise missing[0]
    return tuple(dict.fromkeys(ids))
