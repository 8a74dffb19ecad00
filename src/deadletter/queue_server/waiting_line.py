"""
Clients that wait for items of one queue, first come first served.

Each is a future and a timer, and costs nothing while nothing happens. The store is asked
when a client joins and when it may have items, never otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from deadletter.core.errors import ConfigError

from .errors import nothing_to_lease, overloaded, shutting_down
from .model import LeasedItems

CLIENTS_AT_ONCE: Final = 100  # served by one transaction
ITEMS_AT_ONCE: Final = 1000  # in one transaction, unless one client alone wants more
MAX_WAITING: Final = 50_000  # clients of one queue


class WaitingClient:
    """One client, and how many items it wants."""

    __slots__ = ("answer", "client", "is_late", "is_served", "timer", "want")

    def __init__(self, client: str, want: int, answer: asyncio.Future[LeasedItems]) -> None:
        self.client = client
        self.want = want
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None
        self.is_served = False  # the store is being asked on its behalf
        self.is_late = False  # its time ran out while it was served


class WaitingLine:
    """Clients waiting for items, each until its time is over."""

    def __init__(self, lease: Callable[[Sequence[int]], Awaitable[Sequence[LeasedItems]]]) -> None:
        self.in_progress = 0  # clients being served
        self._lease = lease
        self._waiting: dict[str, WaitingClient] = {}  # by client id, in order of arrival
        self._may_have_items = False  # since the store was asked last
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Return the number of waiting clients, including those being served."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Return whether no client waits and none is being served."""
        return not self._waiting and self._task is None

    def join(self, client: str, want: int, *, within: float) -> asyncio.Future[LeasedItems]:
        """
        Wait up to `within` seconds for up to `want` items.

        The future has at least one item, or raises TryAgain when the time is over. Cancel
        it when the client has gone.
        """
        if client in self._waiting:
            raise ConfigError("duplicate client id; one lease request per client and queue")
        if len(self._waiting) >= MAX_WAITING:
            raise overloaded()
        loop = asyncio.get_running_loop()
        one = WaitingClient(client, want, loop.create_future())
        one.timer = loop.call_later(within, self._time_out, one)
        one.answer.add_done_callback(lambda _answer: self._leave(one))
        self._waiting[client] = one
        self.wake()
        return one.answer

    def wake(self) -> None:
        """Ask the store if any client waits: there may be items to lease."""
        self._may_have_items = True
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Send all clients away; those being served still get their items."""
        for one in list(self._waiting.values()):
            if one.is_served:
                one.is_late = True
            elif not one.answer.done():
                one.answer.set_exception(shutting_down())
                self._leave(one)

    async def drained(self) -> None:
        """Wait until no client is being served."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _time_out(self, one: WaitingClient) -> None:
        if one.is_served:  # items that the store leases to it must not be lost
            one.is_late = True
        elif not one.answer.done():
            one.answer.set_exception(nothing_to_lease())
            self._leave(one)

    def _leave(self, one: WaitingClient) -> None:
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
        if self._waiting.get(one.client) is one:
            del self._waiting[one.client]

    async def _run(self) -> None:
        try:
            while self._may_have_items and self._waiting:
                self._may_have_items = False
                if batch := self._next_batch():
                    await self._serve(batch)
        finally:
            self.in_progress = 0
            self._task = None

    def _next_batch(self) -> list[WaitingClient]:
        batch: list[WaitingClient] = []
        items = 0
        present = (one for one in self._waiting.values() if not one.answer.done())
        for one in islice(present, CLIENTS_AT_ONCE):
            items += one.want
            if batch and items > ITEMS_AT_ONCE:
                break
            batch.append(one)
        return batch

    async def _serve(self, batch: Sequence[WaitingClient]) -> None:
        self.in_progress = len(batch)
        for one in batch:
            one.is_served = True
        try:
            leased = await self._lease([one.want for one in batch])
        except asyncio.CancelledError:
            for one in batch:
                one.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 -- every error goes to the clients
            self._fail(batch, error)
            self._may_have_items = True  # the other clients get the error as well
            return
        for one, found in zip(batch, leased, strict=True):
            self._answer(one, found)
        if all(found.items for found in leased):
            self._may_have_items = True  # every client got items, so there may be more

    def _answer(self, one: WaitingClient, leased: LeasedItems) -> None:
        one.is_served = False
        if one.answer.done():  # the client has gone: its leases expire by themselves
            return
        if leased.items:
            one.answer.set_result(leased)
        elif one.is_late:
            one.answer.set_exception(nothing_to_lease())
        else:
            return
        self._leave(one)

    def _fail(self, batch: Sequence[WaitingClient], error: Exception) -> None:
        for one in batch:
            one.is_served = False
            if not one.answer.done():
                one.answer.set_exception(error)
                self._leave(one)
