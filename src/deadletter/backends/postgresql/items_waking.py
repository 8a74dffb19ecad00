"""Telling those who wait for items of a queue."""

import asyncio
from collections.abc import Callable, Iterable

from .waking import Waking


class Readiness:
    """
    Who is told when a queue may have something to lease.

    Queues of which somebody has asked in vain are listened for and, since nobody
    may be telling, also told of now and then for nothing.
    """

    def __init__(self, waking: Waking) -> None:
        self._waking = waking
        self._tell: list[Callable[[str], None]] = []
        self._watched: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called with the names of queues."""
        self._tell.append(tell)

    def tell(self, names: Iterable[str]) -> None:
        """These queues may have something to lease."""
        for name in names:
            self._watched.discard(name)
            for tell in self._tell:
                tell(name)

    def watch(self, name: str) -> None:
        """Somebody has asked this queue in vain."""
        if not self._tell:
            return
        self._watched.add(name)
        self._waking.listen_for_items(self._heard)
        if self._task is None:
            self._task = asyncio.create_task(self._look_now_and_then())

    async def stop(self) -> None:
        """Stop looking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _heard(self, name: str | None) -> None:
        # Without a name we have missed something, maybe.
        self.tell(list(self._watched) if name is None else [name])

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._waking.patience)
            self.tell(list(self._watched))
