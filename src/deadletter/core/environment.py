"""Settings by environment variables, as data: which variable means which setting."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, TypeVar

from msgspec import Struct
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
