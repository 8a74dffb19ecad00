"""
Values that are the same for many people, made once for all of them.

However many look at a page, the office is asked at most once in a while for each value. A
value that takes long is made in the background: whoever cannot wait gets none, and the next
one gets it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast

from deadletter.ports import Clock

T = TypeVar("T")

LASTS: Final = 1.0  # seconds
_MOST: Final = 500  # values


class Fresh:
    """Values by key, each made at most once a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[Hashable, tuple[float, Any]] = {}
        self._making: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[T]], *, lasts: float = LASTS
    ) -> T:
        """Return the value of a key that is at most `lasts` seconds old; 0 makes it anew."""
        known = self._known(key, lasts)
        if known is not None:
            return cast("T", known[1])
        return cast("T", await asyncio.shield(self._task(key, make, is_shared=lasts > 0)))

    async def soon(
        self,
        key: Hashable,
        make: Callable[[], Awaitable[T]],
        *,
        patience: float,
        lasts: float = LASTS,
    ) -> T | None:
        """Return the value of a key if it is there within `patience` seconds."""
        known = self._known(key, lasts)
        if known is not None:
            return cast("T", known[1])
        task = self._task(key, make, is_shared=lasts > 0)
        done, _ = await asyncio.wait({task}, timeout=patience)
        return cast("T", task.result()) if done else None

    def _known(self, key: Hashable, lasts: float) -> tuple[float, Any] | None:
        known = self._values.get(key)
        return known if known is not None and self._clock.monotonic() - known[0] < lasts else None

    def forget(self) -> None:
        """Forget all values: somebody did something, and wants to see it."""
        self._values.clear()
        self._making.clear()

    def _task(
        self, key: Hashable, make: Callable[[], Awaitable[Any]], *, is_shared: bool
    ) -> asyncio.Task[Any]:
        task = self._making.get(key) if is_shared else None
        if task is None:
            task = asyncio.ensure_future(self._made(key, make))
            task.add_done_callback(_look_at)
            self._making[key] = task
        return task

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        began = self._clock.monotonic()
        try:
            value = await make()
        finally:
            is_current = self._making.get(key) is asyncio.current_task()
            if is_current:
                del self._making[key]
        if is_current:
            self._values.pop(key, None)
            while len(self._values) >= _MOST:
                del self._values[next(iter(self._values))]
            self._values[key] = (began, value)
        return value


def _look_at(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waited for: the next one who asks gets it again."""
    if not task.cancelled():
        task.exception()
