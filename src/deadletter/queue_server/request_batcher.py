"""
Requests of several clients, carried out together.

Requests that arrive while a transaction is in progress go into the next one. That adds no
latency when idle, and makes large batches under load.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from deadletter.core.errors import NotFound, Unavailable

from .errors import overloaded, timed_out

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
            raise overloaded()
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
                one.answer.set_exception(timed_out())
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
