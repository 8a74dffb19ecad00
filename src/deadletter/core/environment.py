"""Settings by environment variables, as data: which variable means which setting."""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, Final, TypeVar

from msgspec import Struct, inspect
from msgspec.structs import replace

from .errors import ConfigError

S = TypeVar("S", bound=Struct)


class Variable(Struct, frozen=True, kw_only=True):
    """A number in the environment, and where it goes."""

    name: str
    setting: str  # dotted: policy.backoff.base
    whole: bool = False
    least: float = 0.0
    most: float = inf
    scale: float = 1.0  # 0.001 makes seconds of milliseconds

    def read(self, text: str) -> float:
        """The value as the setting wants it; a ConfigError says what to write."""
        try:
            number = int(text) if self.whole else float(text)
        except ValueError:
            raise self._refusal(text) from None
        # Written this way round because "nan" is in no range at all.
        if not (self.least <= number <= self.most and number < inf):
            raise self._refusal(text)
        return number if self.whole and self.scale == 1 else number * self.scale

    def _refusal(self, text: str) -> ConfigError:
        kind = "a whole number" if self.whole else "a number"
        limits = f"of at least {self.least:g}"
        if self.most < inf:
            limits = f"from {self.least:g} to {self.most:g}"
        return ConfigError(f"{self.name} must be {kind} {limits}, not {text!r}.")


def applied(value: S, variables: Iterable[Variable], environ: Mapping[str, str]) -> S:
    """The value with what the environment says differently; unset is left alone."""
    for variable in variables:
        text = environ.get(variable.name, "").strip()
        if text:
            path = variable.setting.split(".")
            value = _replaced(value, path, variable.read(text))
    return value


def _replaced(struct: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    inner = _replaced(getattr(struct, name), rest, value) if rest else value
    return replace(struct, **{name: inner})


# What could have been said, where something was said that is no choice.

_NO_CHOICE: Final = "Invalid enum value "  # so msgspec begins its sentence
_step: Final = re.compile(r"\[\.\.\.\]|[^.\[\]]+").findall
_place: Final = re.compile(r" - at `\$?\.?(.*)`$").search


def with_choices(said: str, kind: Any, place: str | None = None) -> str:
    """
    Return what msgspec says is wrong with a value of this type, with the choices there are.

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
    """Return what is to be found under a name, or at a number, in values of this type."""
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
