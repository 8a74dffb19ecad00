"""Undo: acts that have an opposite can be taken back for ten minutes."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.errors import Conflict
from deadletter.ports import Clock
from deadletter.server.context import ServerContext

from .notices import Notice

LASTS: Final = 600.0  # seconds
_MOST: Final = 20  # acts of one server
_MOST_IDS: Final = 200_000  # letters of all these acts

Opposite: TypeAlias = Callable[[ServerContext, Identity], Awaitable[Notice]]
"""Takes an act back, with the rights of the person who asks for it, and says what it did."""


class _Kept(Struct, frozen=True):
    principal: str
    opposite: Opposite
    size: int
    ends: float


class Undoing:
    """The acts of one server that can still be undone, by keys that nobody can guess."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def keep(self, who: Identity, opposite: Opposite, *, size: int = 1) -> str:
        """
        Keep the opposite of an act, and return the path that undoes it by a POST.

        Returns an empty path, which is no undo, if the act has more letters than are kept.
        """
        if size > _MOST_IDS:
            return ""
        self._forget_old()
        while len(self._kept) >= _MOST or self._size() + size > _MOST_IDS:
            del self._kept[next(iter(self._kept))]
        key = secrets.token_hex(8)
        ends = self._clock.monotonic() + LASTS
        self._kept[key] = _Kept(who.principal, opposite, size, ends)
        return f"/undo/{key}"

    def take(self, who: Identity, key: str) -> Opposite:
        """Return the opposite of an act, once. Raises Conflict if it is no longer kept."""
        self._forget_old()
        found = self._kept.get(key)
        if found is None or found.principal != who.principal:
            raise Conflict(
                "this can no longer be undone: ten minutes have passed, or it was undone"
            )
        del self._kept[key]
        return found.opposite

    def _size(self) -> int:
        return sum(kept.size for kept in self._kept.values())

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        self._kept = {key: kept for key, kept in self._kept.items() if kept.ends > now}
