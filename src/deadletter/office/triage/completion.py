"""Completions of a search while somebody types it: fields, values with counts, places."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from msgspec import Struct

from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.query.fields import FIELDS, Field, Kind, field_called
from deadletter.core.query.match import decoded
from deadletter.core.redact import is_secret_name, redact

from .facets import term_text

MOST_OPTIONS: Final = 20
MOST_SAVED: Final = 5  # of these are saved searches
RECENT: Final = 1_000  # letters whose heads are counted
OPENED: Final = 100  # letters whose contents are looked at for places
LARGEST: Final = 64 * 1024  # bytes of such a body
_MOST_PLACES: Final = 200  # of one letter
_DEPTH: Final = 4
_LONGEST: Final = 200  # characters of a value that is offered


class Option(Struct, frozen=True, kw_only=True):
    """One completion: `text` replaces the characters from `start` to `end`."""

    text: str
    about: str
    start: int
    end: int
    count: int | None = None  # letters that have it


class SearchValues(Struct, frozen=True):
    """Values that a search can name, with the number of letters that have each."""

    values: Mapping[str, Mapping[str, int]]  # by field
    places: Mapping[str, int] = {}  # body.order.id, header.tenant
    saved: Mapping[str, str] = {}  # whole searches by their names


_RELATIVE: Final = ("15m", "1h", "24h", "7d", "30d")
_EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "since": _RELATIVE,
    "until": _RELATIVE,
    "age": (">1h", ">24h", "<24h", "<7d"),
    "attempts": (">1", ">3", "1"),
    "replays": ("0", ">0", ">3"),
    "size": (">1000", ">100000"),
}
_WORD: Final = re.compile(r"[^\s()]*\Z")
_PLACES: Final = ("body.", "header.")


def suggest(text: str, at: int, known: SearchValues) -> list[Option]:
    """
    Return completions of a search at a position, the most useful ones first.

    Args:
        text: The search so far.
        at: The position of the cursor in it.
        known: The values and places to offer.
    """
    before = text[: max(0, at)]
    if before.count('"') % 2:
        return []  # within quotes, where nothing is special
    start = _word_start(before)
    word = before[start:]
    name, colon, typed = word.partition(":")
    options: Iterator[Option]
    if colon:
        options = _values(name, typed, start, len(before), known)
    elif word.lower().startswith(_PLACES):
        options = _places(word, start, len(before), known)
    else:
        options = chain(_saved(text, at, known), _fields(word, start, len(before)))
    return [option for option, _ in zip(options, range(MOST_OPTIONS), strict=False)]


def may_be_name(text: str, at: int) -> bool:
    """Return whether a text may be the beginning of the name of a saved search."""
    return at == len(text) and not any(sign in text for sign in ':"()')


def query_before(text: str, at: int) -> str:
    """Return the search without the word that is being typed at a position."""
    before = text[: max(0, at)]
    return before[: _word_start(before)]


def _word_start(before: str) -> int:
    found = _WORD.search(before)
    start = found.start() if found else len(before)
    return start + 1 if before[start : start + 1] == "!" else start


def _saved(text: str, at: int, known: SearchValues) -> Iterator[Option]:
    wanted = " ".join(text.lower().split())
    found = (name for name in known.saved if wanted in name.lower())
    for name in islice(found, MOST_SAVED) if may_be_name(text, at) else ():
        yield Option(text=known.saved[name], about=f"saved as {name}", start=0, end=at)


def _fields(word: str, start: int, end: int) -> Iterator[Option]:
    typed = word.lower()
    for field in FIELDS.values():
        names = (field.name, *field.aliases)
        if any(name.startswith(typed) for name in names):
            sign = "." if field.kind is Kind.PATH else ":"
            about = f"{field.about}, such as {field.example}"
            yield Option(text=f"{field.name}{sign}", about=about, start=start, end=end)


def _values(name: str, typed: str, start: int, end: int, known: SearchValues) -> Iterator[Option]:
    field = field_called(name)
    if field is None or field.kind is Kind.PATH:
        return
    at = start + len(name) + 1
    if typed.startswith("[") and field.takes_lists:  # the last value of a list
        at += max(typed.rfind(","), 0) + 1
        typed = typed[max(typed.rfind(","), 0) + 1 :]
    for value, count in _counted(field, typed, known):
        shown = term_text(field.name, value).partition(":")[2]
        if shown:
            about = "letters" if count is not None else field.about
            yield Option(text=shown, about=about, start=at, end=end, count=count)
    for example in _EXAMPLES.get(field.name, ()):
        if example.startswith(typed):
            yield Option(text=example, about=field.about, start=at, end=end)


def _counted(field: Field, typed: str, known: SearchValues) -> Iterator[tuple[str, int | None]]:
    counts = known.values.get(field.name, {})
    wanted = typed.strip('"').lower()
    if field.choices:
        choices = sorted(field.choices, key=lambda one: -counts.get(one, 0))
        yield from ((one, counts.get(one)) for one in choices if one.startswith(wanted))
        return
    matching = [
        (value, count)
        for value, count in counts.items()
        if wanted in value.lower() and len(value) <= _LONGEST
    ]
    matching.sort(key=lambda one: (not one[0].lower().startswith(wanted), -one[1], one[0]))
    yield from matching


def _places(word: str, start: int, end: int, known: SearchValues) -> Iterator[Option]:
    typed = word.lower()
    matching = [one for one in known.places.items() if one[0].lower().startswith(typed)]
    for place, count in sorted(matching, key=lambda one: (-one[1], one[0])):
        yield Option(text=f"{place}:", about="letters", start=start, end=end, count=count)


_OF_HEADS: Final = ("source", "partition", "key", "business_key", "code", "version", "consumer")


def count_values(
    heads: Sequence[LetterHead], sources: Mapping[str, int], groups: Mapping[str, int]
) -> SearchValues:
    """
    Count the values of the newest letters.

    `sources` are all letters by mailbox, and `groups` letters by the name of their error: those
    of older letters are offered as well.
    """
    values: dict[str, Counter[str]] = {
        field: Counter(str(value) for head in heads if (value := getattr(head, field)))
        for field in _OF_HEADS
    }
    values["error"] = Counter(head.error_name for head in heads if head.error_name)
    values["group"] = Counter(head.fingerprint for head in heads)
    values["is"] = Counter(head.state.value for head in heads)
    values["reason"] = Counter(head.reason.value for head in heads)
    values["trouble"] = Counter(head.trouble.value for head in heads)
    values["category"] = Counter(head.category.value for head in heads)
    values["error"] |= Counter(groups)
    values["source"] |= Counter(sources)
    return SearchValues(values)


def count_places(letters: Iterable[DeadLetter]) -> dict[str, int]:
    """Return the places in contents of letters that can be searched, and how many have each."""
    places: Counter[str] = Counter()
    for letter in letters:
        mine = {
            f"header.{quoted(name)}"
            for name, _ in letter.message.headers[:_MOST_PLACES]
            if _fits(name)
        }
        if len(letter.message.body) <= LARGEST:
            paths = _paths(decoded(letter.message.body), ())
            mine.update(
                "body." + ".".join(map(quoted, path))
                for path, _ in zip(paths, range(_MOST_PLACES), strict=False)
            )
        places.update(mine)
    return dict(places)


_PLAIN: Final = re.compile(r"[\w-]+", re.ASCII)


def quoted(name: str) -> str:
    """Return the name of a place as a search has to spell it."""
    if _PLAIN.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*")
    return f'"{escaped}"'


def _paths(document: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the places of values that are neither objects nor lists of them."""
    if isinstance(document, dict) and len(path) < _DEPTH:
        for name, value in document.items():
            if _fits(name):
                yield from _paths(value, (*path, name))
    elif path and not isinstance(document, dict):
        yield path


def _fits(name: str) -> bool:
    """Return whether a name can be offered: it is neither masked, odd nor long."""
    if not 0 < len(name) <= 60 or not name.isprintable():
        return False
    return not is_secret_name(name) and redact(name) == name
