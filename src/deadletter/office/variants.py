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
_MOST_NAMES: Final = 40  # headers, and body fields, of one letter
_MOST_TRAITS: Final = 20
_MOST_VALUES: Final = 5
_MOST_TEXTS: Final = 10
_INDIVIDUAL: Final = 0.8  # of letters with a value of their own
_FREQUENT: Final = 0.05  # of letters that have the same value
_DEPTH: Final = 2  # body.amount, body.order.id


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
    ours, theirs = _tally(letters), _tally(others)
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


def _tally(letters: Iterable[DeadLetter]) -> Mapping[str, Counter[str]]:
    tally: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for letter in letters:
        for field, value in dict.fromkeys(_fields(letter)):
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


def _fields(letter: DeadLetter) -> Iterator[tuple[str, str]]:
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
    for name, octets in letter.message.headers[:_MOST_NAMES]:
        text = octets[: 4 * _LONGEST].decode("utf-8", "backslashreplace")
        yield f"header.{_cut(name)}", _masked((name,), text)
    document = decoded(letter.message.body)
    if isinstance(document, dict):
        scalars = _scalars(document, ())
        for (path, value), _ in zip(scalars, range(_MOST_NAMES), strict=False):
            yield f"body.{_cut('.'.join(path))}", _masked(path, value)


def _scalars(
    document: dict[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, value in document.items():
        where = (*path, name)
        match value:
            case dict():
                if len(where) < _DEPTH:
                    yield from _scalars(value, where)
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
MOST_BYTES: Final = 8_000_000  # of contents, for each of the two
LARGEST: Final = 256_000  # bytes of a message whose contents are read
_AT_ONCE: Final = 100


async def group_variants(store: LetterStore, name: str, *, sources: Sequence[str] = ()) -> Variants:
    """Return the values that the newest letters of a group share or differ in."""
    group = await get_group(store, name, sources=sources)
    own = Term("group", Op.IS, (literal(group.fingerprint),))
    here = Term("source", Op.IS, (literal(group.source),))
    letters, opened = await _sample(store, own, SAMPLE)
    others, _ = await _sample(store, All((here, Not(own))), OTHERS)
    return variants(
        group.fingerprint, letters, others, total=sum(group.counts.values()), opened=opened
    )


async def _sample(store: LetterStore, query: Node, most: int) -> tuple[list[DeadLetter], int]:
    """Return some letters, with contents as far as they may be read, and how many have them."""
    heads = (await store.find(query, limit=most)).heads
    wanted: list[str] = []
    size = 0
    for head in heads:
        if head.size <= LARGEST and size + head.size <= MOST_BYTES:
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
