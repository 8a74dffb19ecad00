"""
Requests that wait: for their turn in a batch, or for items of one queue.

Requests that arrive while a transaction is in progress go into the next one. That adds no
latency when idle, and makes large batches under load.

A client that waits for items is a future and a timer, and costs nothing while nothing
happens. The store is asked when a client joins and when it may have items, never otherwise.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, islice
from typing import Final, Generic, TypeVar

from deadletter.core.errors import ConfigError, DeadLetterError, NotFound, Unavailable

from .model import LeasedItems
from .plans import fair_shares


class TryAgain(DeadLetterError):
    """Nothing of the request was applied, and sending it again may help."""


class ShuttingDown(TryAgain):
    """The server is stopping."""


# Clients compare these texts, all but the last, so they are part of the wire.
REQUEST_TIMEOUT: Final = "request timeout; no items are in the queue, try again"
DUPLICATE_CLIENT: Final = (
    "duplicate client id; a client cannot make multiple leased requests to the same queue"
)
QUEUE_SHUTTING_DOWN: Final = "queue is shutting down"  # to clients that wait
SERVICE_SHUTTING_DOWN: Final = "service is shutting down"  # to those that come later
OVERLOADED: Final = "queue is overloaded; try again later"
NO_TURN: Final = "request timeout; its turn did not come, try again"


Request = TypeVar("Request")
Answer = TypeVar("Answer")


class _Waiting(Generic[Request, Answer]):
    """A request, and the future of its answer."""

    __slots__ = ("answer", "request", "size", "until")

    def __init__(
        self, request: Request, size: int, answer: asyncio.Future[Answer], until: float
    ) -> None:
        self.request = request
        self.size = size
        self.answer = answer
        self.until = until


class RequestBatcher(Generic[Request, Answer]):
    """
    Requests of one kind to one queue.

    `carry_out` applies each request as a whole or not at all, and answers each. `most` is
    the size of one batch; `limit` is the size that may wait before further requests raise
    TryAgain. Callers of `ask` say how large a request is.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[Request]], Awaitable[Sequence[Answer]]],
        *,
        most: int,
        limit: int,
    ) -> None:
        self.in_progress = 0  # requests being carried out
        self._carry_out = carry_out
        self._most = most
        self._limit = limit
        self._waiting: deque[_Waiting[Request, Answer]] = deque()
        self._size = 0  # of the waiting requests
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait for their turn."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Return whether no request waits or is in progress."""
        return self._task is None

    async def ask(self, request: Request, *, size: int, within: float) -> Answer:
        """
        Carry out a request if its turn comes within some seconds; else raise TryAgain.

        A request in progress is waited for, however long it takes: its outcome is unknown
        until then.
        """
        if self._waiting and self._size + size > self._limit:
            raise TryAgain(OVERLOADED)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append(_Waiting(request, size, answer, loop.time() + within))
        self._size += size
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await answer

    async def drained(self) -> None:
        """Wait until every request so far is answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch(asyncio.get_running_loop().time())
                self.in_progress = len(batch)
                if batch:
                    await self._carry_out_batch(batch)
        finally:
            self.in_progress = 0
            self._task = None

    def _next_batch(self, now: float) -> list[_Waiting[Request, Answer]]:
        batch: list[_Waiting[Request, Answer]] = []
        size = 0
        while self._waiting and (not batch or size + self._waiting[0].size <= self._most):
            one = self._waiting.popleft()
            self._size -= one.size
            if one.answer.done():  # the client has gone
                continue
            if one.until < now:
                one.answer.set_exception(TryAgain(NO_TURN))
                continue
            batch.append(one)
            size += one.size
        return batch

    async def _carry_out_batch(self, batch: Sequence[_Waiting[Request, Answer]]) -> None:
        try:
            answers = await self._carry_out([one.request for one in batch])
        except asyncio.CancelledError:
            for one in batch:
                one.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 -- every error goes to the clients
            await self._fail(batch, error)
            return
        for one, answer in zip(batch, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)

    async def _fail(self, batch: Sequence[_Waiting[Request, Answer]], error: Exception) -> None:
        # One bad request must not fail the others: each is carried out alone. Two errors
        # are for all. After Unavailable the outcome is unknown and nothing may be repeated;
        # after NotFound there is no queue for any of them.
        if len(batch) > 1 and not isinstance(error, (Unavailable, NotFound)):
            for one in batch:
                await self._carry_out_batch([one])
            return
        for one in batch:
            if not one.answer.done():
                one.answer.set_exception(error)


CLIENTS_AT_ONCE: Final = 100  # served by one transaction
ITEMS_AT_ONCE: Final = 1000  # in one transaction, unless one client alone wants more
MAX_WAITING: Final = 50_000  # clients of one queue


class WaitingClient:
    """One client, and how many items it wants."""

    __slots__ = ("answer", "client", "has_waited", "is_late", "is_served", "timer", "want")

    def __init__(self, client: str, want: int, answer: asyncio.Future[LeasedItems]) -> None:
        self.client = client
        self.want = want
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None
        self.is_served = False  # the store is being asked on its behalf
        self.is_late = False  # its time ran out while it was served
        self.has_waited = False  # the store had nothing for it


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
            raise ConfigError(DUPLICATE_CLIENT)
        if len(self._waiting) >= MAX_WAITING:
            raise TryAgain(OVERLOADED)
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
                one.answer.set_exception(ShuttingDown(QUEUE_SHUTTING_DOWN))
                self._leave(one)

    async def drained(self) -> None:
        """Wait until no client is being served."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _time_out(self, one: WaitingClient) -> None:
        if one.is_served:  # items that the store leases to it must not be lost
            one.is_late = True
        elif not one.answer.done():
            one.answer.set_exception(TryAgain(REQUEST_TIMEOUT))
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
                batch, wants = self._next_batch()
                if batch:
                    await self._serve(batch, wants)
        finally:
            self.in_progress = 0
            self._task = None

    def _next_batch(self) -> tuple[list[WaitingClient], list[int]]:
        """
        Return the clients to serve next, and how many items to lease to each.

        While there is plenty, each gets what it wants, and those beyond the limit come
        next. Clients that have waited share what comes, so all of them are served at once.
        """
        present = (one for one in self._waiting.values() if not one.answer.done())
        batch = list(islice(present, CLIENTS_AT_ONCE))
        wants = [one.want for one in batch]
        if any(one.has_waited for one in batch):
            return batch, fair_shares(wants, ITEMS_AT_ONCE)
        last = next(
            (place for place, items in enumerate(accumulate(wants)) if items > ITEMS_AT_ONCE),
            len(batch),
        )
        count = max(1, last)
        return batch[:count], wants[:count]

    async def _serve(self, batch: Sequence[WaitingClient], wants: Sequence[int]) -> None:
        self.in_progress = len(batch)
        for one in batch:
            one.is_served = True
        try:
            leased = await self._lease(wants)
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
            one.answer.set_exception(TryAgain(REQUEST_TIMEOUT))
        else:
            one.has_waited = True
            return
        self._leave(one)

    def _fail(self, batch: Sequence[WaitingClient], error: Exception) -> None:
        for one in batch:
            one.is_served = False
            if not one.answer.done():
                one.answer.set_exception(error)
                self._leave(one)
