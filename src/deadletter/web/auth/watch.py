"""
Answers that take long end when whoever asked is let in no more.

One look every few seconds serves all that wait with the same token or session, and
there is none while nobody waits.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from deadletter.core.access import Session, Token
from deadletter.core.errors import BackendError
from deadletter.ports import AccessStore, Clock

EVERY: Final = 1.5  # seconds between two looks
BLIND: Final = 5.0  # seconds without a look after which nobody counts as known

Credential: TypeAlias = Token | Session
Gone: TypeAlias = Callable[[], object]
"""Called once, when a caller is let in no more."""


class _Holder:
    """One token or session, and all that wait with it."""

    __slots__ = ("credential", "seen_at", "waiting")

    def __init__(self, credential: Credential, seen_at: float) -> None:
        self.credential = credential
        self.seen_at = seen_at
        self.waiting: dict[object, Gone] = {}


class Watch:
    """Looks after everybody who waits for an answer of one server."""

    def __init__(self, access: AccessStore, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._holders: dict[str, _Holder] = {}  # by the hash of what they have shown
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, credential: Credential, gone: Gone) -> Iterator[None]:
        """Within, `gone` is called when the token or session is good no more."""
        now = self._clock.monotonic()
        holder = self._holders.setdefault(credential.hash, _Holder(credential, now))
        key = object()
        holder.waiting[key] = gone
        self._arm()
        try:
            yield
        finally:
            holder.waiting.pop(key, None)
            if not holder.waiting and self._holders.get(credential.hash) is holder:
                del self._holders[credential.hash]

    def _arm(self) -> None:
        if self._timer is None and self._look is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(EVERY, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._holders:
            self._look = asyncio.get_running_loop().create_task(self._look_at_all())

    async def _look_at_all(self) -> None:
        try:
            for holder in list(self._holders.values()):
                if not await self._is_good(holder):
                    for gone in list(holder.waiting.values()):
                        gone()
        finally:
            self._look = None
            if self._holders:
                self._arm()

    async def _is_good(self, holder: _Holder) -> bool:
        asked_at = self._clock.monotonic()
        known = holder.credential
        try:
            async with asyncio.timeout(BLIND):
                found: Credential | None
                if isinstance(known, Session):
                    found = await self._access.session(known.hash)
                else:
                    found = await self._access.token(known.hash)
                    if found is not None and found.is_over(self._clock.now()):
                        found = None
        except (BackendError, TimeoutError):
            return self._clock.monotonic() - holder.seen_at <= BLIND
        holder.seen_at = asked_at
        return found is not None and found.to == known.to
