"""How long a search goes on before it answers, and whose turn it is meanwhile."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeAlias

from msgspec import Struct

Turn: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Entered for every step of a search, so that searches can take turns."""


class Patience(Struct, frozen=True, kw_only=True):
    """What one search may use before it answers with what it has found so far."""

    letters: int = 200_000  # looked at
    seconds: float = 10.0  # of searching; waiting for a turn is not counted


PATIENCE: Final = Patience()
AT_ONCE: Final[Turn] = nullcontext
"""For searches that nobody else waits for."""
