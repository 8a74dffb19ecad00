"""
Requests of several clients, carried out together.

What is asked while a transaction is under way goes into the next one: no added
latency when idle, large batches under load.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from deadletter.core.errors import NotFound, Unavailable

from .errors import overloaded, timed_out

Ask = TypeVar("Ask")
Got = TypeVar("Got")


class _Asked(Generic[Ask, Got]):
    """A request and who waits for the answer to it."""

    __slots__ = ("answer", "request", "size", "until")

    def __init__(
        self, request: Ask, size: int, answer: asyncio.Future[Got], until: float
    ) -> None:
        self.request = request
        self.size = size
        self.answer = answer
        self.until = until


class Gathering(Generic[Ask, Got]):
    """
    One kind of request to one queue.

    `carry_out` applies each request whole or not at all, and answers each. `most` is
    how much is carried out at a time, `limit` how much may wait before others are
    told to try again; both in the sizes the requests are given.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[Ask]], Awaitable[Sequence[Got]]],
        *,
        most: int,
        limit: int,
    ) -> None:
        self.under_way = 0  # requests being carried out
        self._carry_out = carry_out
        self._most = most
        self._limit = limit
        self._waiting: deque[_Asked[Ask, Got]] = deque()
        self._size = 0  # of those that wait
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked or being carried out."""
        return self._task is None

    async def ask(self, request: Ask, *, size: int, within: float) -> Got:
        """
        Have a request carried out, if its turn comes within so many seconds.

        Once it is under way its true outcome is waited for, however long it takes.
        """
        if self._waiting and self._size + size > self._limit:
            raise overloaded()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Got] = loop.create_future()
        self._waiting.append(_Asked(request, size, answer, loop.time() + within))
        self._size += size
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await answer

    async def drained(self) -> None:
        """Wait until everything asked so far is answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._next(asyncio.get_running_loop().time())
                self.under_way = len(batch)
                if batch:
                    await self._together(batch)
        finally:
            self.under_way = 0
            self._task = None

    def _next(self, now: float) -> list[_Asked[Ask, Got]]:
        batch: list[_Asked[Ask, Got]] = []
        size = 0
        while self._waiting and (
            not batch or size + self._waiting[0].size <= self._most
        ):
            asked = self._waiting.popleft()
            self._size -= asked.size
            if asked.answer.done():  # whoever asked has gone
                continue
            if asked.until < now:
                asked.answer.set_exception(timed_out())
                continue
            batch.append(asked)
            size += asked.size
        return batch

    async def _together(self, batch: Sequence[_Asked[Ask, Got]]) -> None:
        try:
            got = await self._carry_out([asked.request for asked in batch])
        except asyncio.CancelledError:
            for asked in batch:
                asked.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 -- whatever it is, the clients are told
            await self._failed(batch, error)
            return
        for asked, answer in zip(batch, got, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(answer)

    async def _failed(
        self, batch: Sequence[_Asked[Ask, Got]], error: Exception
    ) -> None:
        # One bad request must not fail its neighbours: each is tried alone. But what
        # became of a transaction whose server went away nobody knows, and it must not
        # be repeated; and where there is no queue, there is none for anybody.
        if len(batch) > 1 and not isinstance(error, (Unavailable, NotFound)):
            for asked in batch:
                await self._together([asked])
            return
        for asked in batch:
            if not asked.answer.done():
                asked.answer.set_exception(error)
