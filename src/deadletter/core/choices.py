"""What could have been said, where something was said that is no choice."""

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import inspect

_NO_CHOICE: Final = "Invalid enum value "  # so msgspec begins its sentence
_step: Final = re.compile(r"\[\.\.\.\]|[^.\[\]]+").findall
_place: Final = re.compile(r" - at `\$?\.?(.*)`$").search


def with_choices(said: str, kind: Any, place: str | None = None) -> str:
    """
    What msgspec says is wrong with a value of this type, with the choices there are.

    `place` is where, as in `targets[0].kind`, if it does not stand in the sentence.
    """
    if not said.startswith(_NO_CHOICE):
        return said
    found = _place(said)
    where = place if found is None else found[1]
    there = [inspect.type_info(kind)]
    for name in _step(where or ""):
        there = [inner for outer in there for inner in _inside(outer, name)]
    choices = [str(one) for outer in there for one in _choices(outer)]
    return f"{said}; it is one of {', '.join(choices)}" if choices else said


def _inside(kind: inspect.Type, name: str) -> Iterator[inspect.Type]:
    """What is to be found under a name, or at a number, in values of this type."""
    match kind:
        case inspect.StructType(fields=fields):
            yield from (one.type for one in fields if one.encode_name == name)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield item
        case inspect.DictType(value_type=value):
            yield value
        case inspect.UnionType(types=types):
            for one in types:
                yield from _inside(one, name)
        case inspect.Metadata(type=bare):
            yield from _inside(bare, name)


def _choices(kind: inspect.Type) -> Iterator[object]:
    match kind:
        case inspect.EnumType(cls=choice):
            yield from (one.value for one in choice)
        case inspect.LiteralType(values=values):
            yield from values
        case inspect.UnionType(types=types):
            for one in types:
                yield from _choices(one)
        case inspect.Metadata(type=bare):
            yield from _choices(bare)
