"""
When a child that died is replaced.

One that took messages died of its work: a poison message, say. Its attempt has been
counted, so that cannot go on for ever, and others wait to be worked: it is replaced
at once. One that took none died of its surroundings: an import that fails, a disk
that is full. Starting it again changes nothing soon, so the wait grows.
"""

from typing import Final

from msgspec import Struct

from deadletter.core.backoff import Exponential

AGAIN: Final = Exponential(0.5, factor=2.0, cap=30.0, jitter=0.0)
PACE: Final = 1.0  # seconds between two starts of a child, whatever it dies of
_HEALTHY_AFTER: Final = 60.0  # one that ran this long has got over its troubles


class Life(Struct, frozen=True):
    """How a child fared: the seconds it ran, and whether it took any message."""

    seconds: float
    took_messages: bool


class Replacement(Struct, frozen=True):
    """Wait `delay` seconds; `failures` children in a row have died in vain."""

    delay: float
    failures: int


def replace_after(life: Life, failures: int) -> Replacement:
    """Decide when to replace a child, after so many `failures` before it."""
    if life.took_messages:
        return Replacement(max(0.0, PACE - life.seconds), 0)
    failures = 1 if life.seconds >= _HEALTHY_AFTER else failures + 1
    return Replacement(AGAIN.delay(failures, 0.0), failures)
