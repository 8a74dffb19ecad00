"""
The wait before the next attempt, in seconds.

`attempt` counts from 1 and is the one that has just failed. `draw` is uniform in [0, 1) and an
argument, so that every delay can be tested.
"""

from math import inf, isfinite
from typing import TypeAlias

from msgspec import Struct

from .errors import ConfigError


class NoBackoff(Struct, frozen=True, tag="none"):
    """Retry at once."""

    def delay(self, attempt: int, draw: float) -> float:
        return 0.0


class Fixed(Struct, frozen=True, tag="fixed"):
    """Wait the same time before every attempt."""

    seconds: float

    def __post_init__(self) -> None:
        _must_be_seconds("Fixed", "seconds", self.seconds)

    def delay(self, attempt: int, draw: float) -> float:
        return self.seconds


class Linear(Struct, frozen=True, tag="linear"):
    """Wait `step` seconds, then twice, three times as long …, at most `cap`."""

    step: float
    cap: float = 900.0

    def __post_init__(self) -> None:
        _must_be_seconds("Linear", "step", self.step)
        _must_be_seconds("Linear", "cap", self.cap)

    def delay(self, attempt: int, draw: float) -> float:
        return min(self.step * attempt, self.cap)


class Exponential(Struct, frozen=True, tag="exponential"):
    """
    Wait `base` seconds, then `factor` times as long each time, at most `cap`.

    `jitter` is the largest share of the delay that is added at random: 0.2 turns 10 seconds
    into 10 to 12.
    """

    base: float = 1.0
    factor: float = 2.0
    cap: float = 900.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _must_be_seconds("Exponential", "base", self.base)
        _must_be_seconds("Exponential", "cap", self.cap)
        if not (is_seconds(self.factor) and self.factor >= 1):
            raise ConfigError(f"Exponential(factor={self.factor!r}) would not grow: use 1 or more.")
        if not (is_seconds(self.jitter) and self.jitter <= 1):
            raise ConfigError(
                f"Exponential(jitter={self.jitter!r}) is not a share of the delay: "
                "use a number from 0 to 1; 0.2 adds up to 20 %."
            )

    def delay(self, attempt: int, draw: float) -> float:
        try:
            grown = self.base * self.factor ** (attempt - 1)
        except OverflowError:  # larger than any cap
            grown = inf if self.base else 0.0
        return min(self.cap, grown) * (1 + self.jitter * draw)


Backoff: TypeAlias = NoBackoff | Fixed | Linear | Exponential


def is_seconds(value: object, *, above: bool = False) -> bool:
    """Return whether a value is a number of seconds, 0 or more; with `above`, more than 0."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return isfinite(value) and (value > 0 or (value == 0 and not above))


def _must_be_seconds(owner: str, name: str, value: float) -> None:
    if not is_seconds(value):
        raise ConfigError(
            f"{owner}({name}={value!r}) is not a time to wait: use a number of seconds, 0 or more."
        )
