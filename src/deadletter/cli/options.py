"""Arguments that several commands share: options, message bodies, and letters."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from deadletter.core.errors import ConfigError, NotFound
from deadletter.office.letter_search import SHORTEST_PREFIX
from deadletter.office.letters_protocol import LettersProtocol
from deadletter.office.selection import MOST, Chosen, check_words, found_by

from .streams import interruptible, standard_input

Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Yes: TypeAlias = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)]
Several: TypeAlias = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
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
    """Return the bytes of a file; - is standard input."""
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
    """Return a body that was given either as text or as a file."""
    if (text is None) == (file is None):
        raise ConfigError("give the body either as text or with --file")
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    assert file is not None
    return read_body(file)


def header_of(text: str) -> tuple[str, bytes]:
    """Return the name and value of a header written as name=value."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"a header must be written as name=value, got {text[:40]!r}")
    return name.strip(), value.encode("utf-8", "surrogateescape")


_LIKE_AN_ID: Final = re.compile(r"[A-Za-z2-7]{6,24}")


def letter_id(word: str) -> str:
    """Return a word as the id of a letter; raise ConfigError if it is too short."""
    if len(word.strip()) < SHORTEST_PREFIX:
        raise ConfigError(
            f"{word!r} is too short for an id: give at least its first"
            f" {SHORTEST_PREFIX} characters; `dlq list` shows the ids"
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
    Return the letters that the words of a command line select.

    If all words are ids, or beginnings of ids, they name letters; otherwise they are a
    search. Raises ConfigError without any word (`'*'` selects all letters), and for
    words without a field unless `text` is true.
    """
    if not words:
        raise ConfigError(
            "name letters by their ids, or by a search such as "
            "'is:pending source:orders'; '*' selects all letters"
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
        return None  # the words are a search
    if missing:
        raise missing[0]
    return tuple(dict.fromkeys(ids))
