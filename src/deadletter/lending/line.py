"""
Those who wait for items of one queue, first come first served.

Each is a future and a timer and costs nothing while nothing happens. The store is
asked when somebody joins and when it may have something, never otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.core.items import Leased

from .errors import nothing_to_lease, overloaded, shutting_down

AT_ONCE: Final = 100  # clients served by one transaction
ITEMS: Final = 1000  # ...and items, unless one client alone wants more
MOST: Final = 50_000  # clients waiting for one queue


class Waiting:
    """One client, and how much it wants."""

    __slots__ = ("answer", "client", "is_late", "is_served", "timer", "want")

    def __init__(self, client: str, want: int, answer: asyncio.Future[Leased]) -> None:
        self.client = client
        self.want = want
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None
        self.is_served = False  # the store is being asked for it
        self.is_late = False  # its time ran out meanwhile


class Line:
    """Clients waiting for items, each until its time is over."""

    def __init__(
        self, lease: Callable[[Sequence[int]], Awaitable[Sequence[Leased]]]
    ) -> None:
        self.under_way = 0  # requests being served
        self._lease = lease
        self._waiting: dict[str, Waiting] = {}  # by client, in order of arrival
        self._may_have = False  # there may be something the store was not asked for
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many clients wait, those being served included."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits and nothing is under way."""
        return not self._waiting and self._task is None

    def join(self, client: str, want: int, *, within: float) -> asyncio.Future[Leased]:
        """
        Wait for up to `want` items, for so many seconds.

        The future has at least one item, or TryAgain when the time is over. Cancel it
        when the client has gone.
        """
        if client in self._waiting:
            raise ConfigError(
                "duplicate client id; one lease request per client and queue"
            )
        if len(self._waiting) >= MOST:
            raise overloaded()
        loop = asyncio.get_running_loop()
        one = Waiting(client, want, loop.create_future())
        one.timer = loop.call_later(within, self._is_over, one)
        one.answer.add_done_callback(lambda _answer: self._leave(one))
        self._waiting[client] = one
        self.wake()
        return one.answer

    def wake(self) -> None:
        """There may be something to lease: ask, if anybody waits."""
        self._may_have = True
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Send everybody away; who is being served still gets what there is."""
        for one in list(self._waiting.values()):
            if one.is_served:
                one.is_late = True
            elif not one.answer.done():
                one.answer.set_exception(shutting_down())
                self._leave(one)

    async def drained(self) -> None:
        """Wait until nobody is being served."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _is_over(self, one: Waiting) -> None:
        if one.is_served:  # what the store has lent to it must not be lost
            one.is_late = True
        elif not one.answer.done():
            one.answer.set_exception(nothing_to_lease())
            self._leave(one)

    def _leave(self, one: Waiting) -> None:
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
        if self._waiting.get(one.client) is one:
            del self._waiting[one.client]

    async def _run(self) -> None:
        try:
            while self._may_have and self._waiting:
                self._may_have = False
                if batch := self._next():
                    await self._serve(batch)
        finally:
            self.under_way = 0
            self._task = None

    def _next(self) -> list[Waiting]:
        batch: list[Waiting] = []
        items = 0
        here = (one for one in self._waiting.values() if not one.answer.done())
        for one in islice(here, AT_ONCE):
            items += one.want
            if batch and items > ITEMS:
                break
            batch.append(one)
        return batch

    async def _serve(self, batch: Sequence[Waiting]) -> None:
        self.under_way = len(batch)
        for one in batch:
            one.is_served = True
        try:
            lent = await self._lease([one.want for one in batch])
        except asyncio.CancelledError:
            for one in batch:
                one.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the clients are told
            self._fail(batch, error)
            self._may_have = True  # the others shall hear of it, too
            return
        for one, leased in zip(batch, lent, strict=True):
            self._hand_over(one, leased)
        if all(leased.items for leased in lent):
            self._may_have = True  # nobody was left without, so there may be more

    def _hand_over(self, one: Waiting, leased: Leased) -> None:
        one.is_served = False
        if one.answer.done():  # it went away: what it was lent returns by itself
            return
        if leased.items:
            one.answer.set_result(leased)
        elif one.is_late:
            one.answer.set_exception(nothing_to_lease())
        else:
            return
        self._leave(one)

    def _fail(self, batch: Sequence[Waiting], error: Exception) -> None:
        for one in batch:
            one.is_served = False
            if not one.answer.done():
                one.answer.set_exception(error)
                self._leave(one)
