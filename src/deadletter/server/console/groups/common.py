"""What letters of a group have in common, in what they vary, and how their texts differ."""

from typing import Final

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.query.ast import All, Op, Term
from deadletter.core.query.fields import field_called, literal
from deadletter.core.query.parse import show
from deadletter.core.redact import MASK, redact
from deadletter.core.text import cut
from deadletter.office.triage.common_values import CommonValues, SharedValue, VaryingField
from deadletter.office.variants import Variants
from deadletter.server.console import words
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

_LONGEST: Final = 120


class Shared(Struct, frozen=True, kw_only=True):
    """A value that nearly all letters have; its path narrows the search to it."""

    field: str
    value: str
    count: int
    path: str
    is_masked: bool


class Varying(Struct, frozen=True, kw_only=True):
    """A field with different values."""

    field: str
    told: str


class Common(Struct, frozen=True, kw_only=True):
    """What the newest letters have in common."""

    name: str
    looked_at: int
    of: str
    shared: tuple[Shared, ...]
    varying: tuple[Varying, ...]
    variants_url: str


class Difference(Struct, frozen=True, kw_only=True):
    """A value, and the shares of letters of this group and of others that have it."""

    field: str
    value: str
    here: str
    elsewhere: str


class Texts(Struct, frozen=True, kw_only=True):
    """How letters of a group differ from others of its mailbox, and their error texts."""

    looked_at: int
    compared: int
    differences: tuple[Difference, ...]
    texts: tuple[tuple[str, str], ...]  # share and text
    distinct: int


async def load_common(
    context: ServerContext, who: Identity, searching: Searching, name: str
) -> Common:
    """Return what the newest letters of a group have in common; everything is masked."""
    triage = context.office.triage
    found = await searching.look(triage.common_values(name, sources=who.sources))
    return Common(
        name=found.group,
        looked_at=found.looked_at,
        of=_of(found),
        shared=tuple(_shared(found.group, one) for one in found.shared),
        varying=tuple(_varying(one) for one in found.varying),
        variants_url=path_to("groups", found.group, part="variants"),
    )


async def load_texts(
    context: ServerContext, who: Identity, searching: Searching, name: str
) -> Texts:
    """Return how letters of a group differ from others; everything is masked."""
    found = await searching.look(context.office.groups.variants(name, sources=who.sources))
    return Texts(
        looked_at=found.looked_at,
        compared=found.compared,
        differences=tuple(_differences(found)),
        texts=tuple(
            (words.share(one.count, found.looked_at), cut(one.value or "(no text)", _LONGEST * 2))
            for one in found.texts
        ),
        distinct=found.distinct_texts,
    )


def _of(found: CommonValues) -> str:
    text = f"of the newest {found.looked_at:,}"
    if found.opened < found.looked_at:
        text += f"; the contents of {found.opened:,} were read"
    return text


def _shared(group: str, one: SharedValue) -> Shared:
    return Shared(
        field=cut(one.field, _LONGEST),
        value=cut(one.value, _LONGEST),
        count=one.count,
        path=value_path(group, one.field, one.value),
        is_masked=one.value == MASK,
    )


def value_path(group: str, field: str, value: str) -> str:
    """Return the path of letters of a group with a value; empty if it cannot be searched for."""
    name, _, place = field.partition(".")
    if redact(value) != value or MASK in value or value.endswith("…") or not value:
        return ""
    if field_called(name) is None or (name in {"header", "body"}) != bool(place):
        return ""
    node = All(
        (
            Term("group", Op.IS, (literal(group),)),
            Term(name, Op.IS, (literal(value),), tuple(place.split(".")) if place else ()),
        )
    )
    return path_to("letters", q=show(node))


def _varying(one: VaryingField) -> Varying:
    if one.least is not None and one.most is not None:
        told = f"{_number(one.least)} to {_number(one.most)}"
    else:
        told = f"{one.distinct:,} different"
    return Varying(field=cut(one.field, _LONGEST), told=told)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,}"


def _differences(found: Variants) -> list[Difference]:
    lines = []
    for trait in found.traits:
        if not trait.tells:
            continue
        one = trait.values[0]
        lines.append(
            Difference(
                field=cut(trait.field, _LONGEST),
                value=cut(one.value, _LONGEST),
                here=words.share(one.count, found.looked_at),
                elsewhere=words.share(one.elsewhere, found.compared) if found.compared else "",
            )
        )
    return lines[:10]
