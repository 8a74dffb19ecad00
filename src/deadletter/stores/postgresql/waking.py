"""
Waking those who wait for a message.

Whoever sends in this process rings at once. What other processes send is told by
the server to one connection that listens for it. Since that may be cut without
anybody noticing, or not be there at all, those who wait also look now and then.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

from .database import Connection

Listen: TypeAlias = Callable[[], Awaitable[Connection]]

LOOK: Final = 2.0  # seconds between two looks while we are told
LOOK_OFTEN: Final = 0.2  # ...and while we are not
ITEMS: Final = "items:"  # before the name of a lease queue
_PAUSE: Final = 1.0  # seconds until we try again to listen


class Waking:
    """All who wait, in this process."""

    def __init__(self, listen: Listen | None) -> None:
        self._listen = listen
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._items: Callable[[str | None], None] | None = None
        self._is_told = False
        self._task: asyncio.Task[None] | None = None

    @property
    def patience(self) -> float:
        """For how long one may wait before one looks again."""
        return LOOK if self._is_told else LOOK_OFTEN

    @contextmanager
    def bell(self, mailbox: int) -> Iterator[asyncio.Event]:
        """An event that is set when something may have come into the mailbox."""
        self._start()
        bell = asyncio.Event()
        self._waiting[mailbox].add(bell)
        try:
            yield bell
        finally:
            self._waiting[mailbox].discard(bell)

    def ring(self, mailbox: int) -> None:
        """Something was put into the mailbox."""
        for bell in self._waiting.get(mailbox, ()):
            bell.set()

    def listen_for_items(self, tell: Callable[[str | None], None]) -> None:
        """
        Have `tell` called with the names of lease queues that got something.

        None stands for any: we may have missed something.
        """
        self._items = tell
        self._start()

    async def stop(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _start(self) -> None:
        if self._listen is not None and self._task is None:
            self._task = asyncio.create_task(self._keep_listening(self._listen))

    async def _keep_listening(self, listen: Listen) -> None:
        while True:
            with suppress(Exception):  # whatever it is, we look instead meanwhile
                await self._listen_once(await listen())
            self._is_told = False
            await asyncio.sleep(_PAUSE)

    async def _listen_once(self, connection: Connection) -> None:
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        try:
            await connection.add_listener("deadletter", self._told)
            self._is_told = True
            for bells in self._waiting.values():  # what came before we listened
                for bell in bells:
                    bell.set()
            if self._items is not None:
                self._items(None)
            await gone.wait()
        finally:
            connection.terminate()

    def _told(self, *heard: Any) -> None:
        payload = heard[-1]
        if payload.isascii() and payload.isdigit():
            self.ring(int(payload))
        elif self._items is not None and payload.startswith(ITEMS):
            self._items(payload.removeprefix(ITEMS))
