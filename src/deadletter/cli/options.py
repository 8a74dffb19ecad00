"""Arguments that several commands share: options, message bodies, and letters."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from deadletter.core.errors import ConfigError, NotFound
from deadletter.office.letters import SHORTEST_PREFIX, LettersProtocol
from deadletter.office.selection import MOST, Chosen, check_words, found_by

from .streams import interruptible, standard_input

Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Yes: TypeAlias = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)]
Reason: TypeAlias = Annotated[str, Parameter(show_default=False)]
OptionalText: TypeAlias = Annotated[str, Parameter(show_default=False)]
FreeText: TypeAlias = Annotated[bool, Parameter(name="--text", negative="", show_default=False)]
Shown: TypeAlias = Annotated[int, Parameter(name=["--limit", "-n"], validator=Number(gte=1))]
AtMost: TypeAlias = Annotated[
    int | None, Parameter(name=["--limit", "-n"], validator=Number(gte=1))
]
Count: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=0))]
Seconds: TypeAlias = Annotated[float | None, Parameter(validator=Number(gt=0))]


LARGEST: Final = 256 * 1024 * 1024


def read_body(file: Path) -> bytes:
    """The bytes of a file; - is standard input."""
    try:
        if str(file) == "-":
            with interruptible():
                data = standard_input().read(LARGEST + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > LARGEST:
        raise ConfigError(f"{file} is larger than {LARGEST // 1024**2} MB")
    return data


def given_body(text: str | None, file: Path | None) -> bytes:
    """A body given as text or as a file, one of them."""
    if (text is None) == (file is None):
        raise ConfigError("give the body as text, or a file with --file, one of them")
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    assert file is not None
    return read_body(file)


def header_of(text: str) -> tuple[str, bytes]:
    """A header written as name=value."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"a header is written name=value, not {text[:40]!r}")
    return name.strip(), value.encode("utf-8", "surrogateescape")


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
    letters: LettersProtocol,
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


async def _named(letters: LettersProtocol, words: Sequence[str]) -> tuple[str, ...] | None:
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
