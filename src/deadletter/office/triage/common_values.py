"""
Values that nearly all letters of a group have in common, and fields in which they vary.

Counting is that of `office.variants`; here, more places of fewer letters are looked at.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.letter import DeadLetter
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import literal, number
from deadletter.core.redact import MASK
from deadletter.office.groups import get_group
from deadletter.office.variants import Extent, count_fields, sample_letters
from deadletter.ports import LetterStore

SAMPLE: Final = 200  # the newest letters of the group
SHARE: Final = 0.8  # of the letters that one value has to cover
_MOST_FIELDS: Final = 40
_EXTENT: Final = Extent(depth=4, places=200, largest=64 * 1024, total=2_000_000, heads=True)


class SharedValue(Struct, frozen=True, kw_only=True):
    """A value that nearly all letters have; `count` of those that were looked at."""

    field: str  # version, consumer, header.NAME, body.PATH
    value: str
    count: int
    distinct: int  # different values of the field


class VaryingField(Struct, frozen=True, kw_only=True):
    """A field with different values; `least` and `most` if all of them are numbers."""

    field: str
    present: int  # letters that have it
    distinct: int
    least: float | None = None
    most: float | None = None


class CommonValues(Struct, frozen=True, kw_only=True):
    """
    Values that letters of a group have in common, and fields in which they vary.

    The newest `looked_at` letters were examined; the contents of `opened` of them were read.
    """

    group: str
    looked_at: int
    opened: int
    shared: tuple[SharedValue, ...]
    varying: tuple[VaryingField, ...]


def common_values(group: str, letters: Sequence[DeadLetter], *, opened: int) -> CommonValues:
    """Return what letters have in common: the most common values, and the fullest fields, first."""
    shared, varying = [], []
    for field, values in count_fields(letters, _EXTENT).items():
        (value, count), *_ = values.most_common(1)
        if count >= SHARE * len(letters):
            one = SharedValue(field=field, value=value, count=count, distinct=len(values))
            shared.append(one)
        elif set(values) != {MASK}:
            varying.append(_varying(field, values, values.total()))
    shared.sort(key=lambda one: (one.value == MASK, -one.count, one.field))
    varying.sort(key=lambda one: (-one.present, one.distinct, one.field))
    return CommonValues(
        group=group,
        looked_at=len(letters),
        opened=opened,
        shared=tuple(shared[:_MOST_FIELDS]),
        varying=tuple(varying[:_MOST_FIELDS]),
    )


def _varying(field: str, values: Iterable[str], present: int) -> VaryingField:
    numbers = [number(value) for value in values]
    known = [one for one in numbers if one is not None]
    if len(known) < len(numbers):
        return VaryingField(field=field, present=present, distinct=len(numbers))
    return VaryingField(
        field=field, present=present, distinct=len(numbers), least=min(known), most=max(known)
    )


async def group_common_values(
    store: LetterStore, name: str, *, sources: Sequence[str] = ()
) -> CommonValues:
    """Return what the newest letters of a group have in common."""
    group = await get_group(store, name, sources=sources)
    own = Term("group", Op.IS, (literal(group.fingerprint),))
    letters, opened = await sample_letters(store, own, SAMPLE, _EXTENT)
    return common_values(group.fingerprint, letters, opened=opened)
