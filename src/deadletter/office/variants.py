"""
Values that letters of one group share, and those in which they differ.

Values are counted over a sample of letters, masked like everything that people see. Each value
is also counted in letters of other groups: values that nearly all letters of a group share and
others do not come first. Fields such as ids, with another value in nearly each letter, and
masked ones come last.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from deadletter.core.failure.fingerprint import normalise
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message
from deadletter.core.query.ast import All, Node, Not, Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.match import decoded
from deadletter.core.redact import MASK, is_secret_name, redact
from deadletter.ports import LetterStore

from .groups import get_group

_LONGEST: Final = 120  # characters of a value or a name
_MOST_TRAITS: Final = 20
_MOST_VALUES: Final = 5
_MOST_TEXTS: Final = 10
_INDIVIDUAL: Final = 0.8  # of letters with a value of their own
_FREQUENT: Final = 0.05  # of letters that have the same value


class Extent(Struct, frozen=True, kw_only=True):
    """How much of each letter is looked at."""

    depth: int  # body.amount is 1 deep, body.order.id 2
    places: int  # headers, and body fields, of one letter
    largest: int  # bytes of a message whose contents are read
    total: int  # bytes of contents that are read
    heads: bool = False  # also fields with another value in nearly each letter: key, size


MOST_BYTES: Final = 8_000_000  # of contents, for the group and for others
LARGEST: Final = 256_000  # bytes of a message whose contents are read
_EXTENT: Final = Extent(depth=2, places=40, largest=LARGEST, total=MOST_BYTES)


class ValueCount(Struct, frozen=True, kw_only=True):
    """A value, and how many letters have it."""

    value: str
    count: int
    elsewhere: int = 0  # letters of other groups that have it


class Trait(Struct, frozen=True, kw_only=True):
    """One field of letters: its most frequent values."""

    field: str  # version, worker, consumer, header.NAME or body.PATH
    present: int  # letters that have it
    distinct: int  # different values
    values: tuple[ValueCount, ...]

    @property
    def is_individual(self) -> bool:
        """Return whether nearly each letter has another value, or none is frequent."""
        if self.present < 2:
            return False
        most = self.values[0].count / self.present
        return self.distinct >= _INDIVIDUAL * self.present or most < _FREQUENT

    @property
    def is_masked(self) -> bool:
        """Return whether its values are secrets, which are not compared."""
        return all(one.value == MASK for one in self.values)

    @property
    def tells(self) -> bool:
        """Return whether the field characterises the group."""
        return not (self.is_individual or self.is_masked)


class Variants(Struct, frozen=True, kw_only=True):
    """
    The values that letters of a group share, and those in which they differ.

    `looked_at` of its `letters` were examined, the newest; the contents of `opened` of those
    were read. `compared` letters of other groups were examined beside them.
    """

    group: str
    letters: int
    looked_at: int
    opened: int
    compared: int
    distinct_texts: int
    texts: tuple[ValueCount, ...]  # error texts without what varies
    traits: tuple[Trait, ...]


def variants(
    group: str,
    letters: Sequence[DeadLetter],
    others: Sequence[DeadLetter],
    *,
    total: int,
    opened: int,
) -> Variants:
    """Count the values of a group's letters, and of others beside them."""
    texts = Counter(_cut(normalise(one.head.error_text, one.head.error_type)) for one in letters)
    ours, theirs = count_fields(letters, _EXTENT), count_fields(others, _EXTENT)
    traits = [_trait(field, values, theirs.get(field, Counter())) for field, values in ours.items()]
    traits.sort(key=lambda one: _rank(one, len(letters), len(others)))
    return Variants(
        group=group,
        letters=total,
        looked_at=len(letters),
        opened=opened,
        compared=len(others),
        distinct_texts=len(texts),
        texts=tuple(ValueCount(value=text, count=n) for text, n in texts.most_common(_MOST_TEXTS)),
        traits=tuple(traits[:_MOST_TRAITS]),
    )


def count_fields(letters: Iterable[DeadLetter], extent: Extent) -> Mapping[str, Counter[str]]:
    """Return the masked values of letters by field, and how many letters have each."""
    tally: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for letter in letters:
        for field, value in dict.fromkeys(_fields(letter, extent)):
            tally[field][value] += 1
    return tally


def _trait(field: str, values: Counter[str], elsewhere: Counter[str]) -> Trait:
    return Trait(
        field=field,
        present=values.total(),
        distinct=len(values),
        values=tuple(
            ValueCount(value=value, count=n, elsewhere=elsewhere[value])
            for value, n in values.most_common(_MOST_VALUES)
        ),
    )


def _rank(trait: Trait, letters: int, others: int) -> tuple[bool, float, int, str]:
    """
    Return the sort key of a field: the most characteristic ones first.

    Differences of a few percent are chance: then the value that more letters share comes first.
    """
    apart = max(
        one.count / letters - (one.elsewhere / others if others else 0.0) for one in trait.values
    )
    return not trait.tells, -round(apart, 1), -trait.values[0].count, trait.field


def _fields(letter: DeadLetter, extent: Extent) -> Iterator[tuple[str, str]]:
    head = letter.head
    story = letter.story() if letter.history else []
    for name, value in (
        ("version", head.version),
        ("worker", story[-1].worker if story else ""),
        ("consumer", head.consumer),
        ("code", head.code),
        ("partition", head.partition),
    ):
        if value:
            yield name, _cut(redact(value))
    if extent.heads:
        yield "size", str(head.size)
        for name, text in (("key", head.key), ("trace", head.trace_id), ("reason", head.reason)):
            if text:
                yield name, _cut(redact(text))
    for name, octets in letter.message.headers[: extent.places]:
        text = octets[: 4 * _LONGEST].decode("utf-8", "backslashreplace")
        yield f"header.{_cut(name)}", _masked((name,), text)
    document = decoded(letter.message.body)
    if isinstance(document, dict):
        scalars = _scalars(document, (), extent.depth)
        for (path, value), _ in zip(scalars, range(extent.places), strict=False):
            yield f"body.{_cut('.'.join(path))}", _masked(path, value)


def _scalars(
    document: dict[str, Any], path: tuple[str, ...], depth: int
) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, value in document.items():
        where = (*path, name)
        match value:
            case dict():
                if len(where) < depth:
                    yield from _scalars(value, where, depth)
            case str():
                yield where, value
            case bool() | int() | float() | None:
                yield where, json.dumps(value)


def _masked(path: tuple[str, ...], text: str) -> str:
    return MASK if any(map(is_secret_name, path)) else _cut(redact(text))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


SAMPLE: Final = 1_000  # the newest letters of the group
OTHERS: Final = 300  # the newest letters of other groups of its mailbox
_AT_ONCE: Final = 100


async def group_variants(store: LetterStore, name: str, *, sources: Sequence[str] = ()) -> Variants:
    """Return the values that the newest letters of a group share or differ in."""
    group = await get_group(store, name, sources=sources)
    own = Term("group", Op.IS, (literal(group.fingerprint),))
    here = Term("source", Op.IS, (literal(group.source),))
    letters, opened = await sample_letters(store, own, SAMPLE, _EXTENT)
    others, _ = await sample_letters(store, All((here, Not(own))), OTHERS, _EXTENT)
    return variants(
        group.fingerprint, letters, others, total=sum(group.counts.values()), opened=opened
    )


async def sample_letters(
    store: LetterStore, query: Node, most: int, extent: Extent
) -> tuple[list[DeadLetter], int]:
    """Return some letters, with contents as far as they may be read, and how many have them."""
    heads = (await store.find(query, limit=most)).heads
    wanted: list[str] = []
    size = 0
    for head in heads:
        if head.size <= extent.largest and size + head.size <= extent.total:
            wanted.append(head.id)
            size += head.size
    read: dict[str, DeadLetter] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        some = await store.get(wanted[start : start + _AT_ONCE])
        read |= {letter.id: letter for letter in some}
    return [read.get(head.id) or _unopened(head) for head in heads], len(read)


def _unopened(head: LetterHead) -> DeadLetter:
    message = Message(id=head.message_id, body=b"", sent_at=head.first_failed_at)
    return DeadLetter(head=head, message=message)
