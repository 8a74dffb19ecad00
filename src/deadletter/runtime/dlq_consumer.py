"""
The loop that takes letters from a dead-letter mailbox and hands them to a handler.

A letter whose handler succeeds is gone; one whose handler fails waits where it is.
It is never dead-lettered again: a dead-letter mailbox has none of its own.
"""

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeVar, cast

from deadletter.core.classify import ErrorClassifier
from deadletter.core.errors import BackendError, ConfigError
from deadletter.core.events import Observer
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery
from deadletter.core.rules import DEFAULT
from deadletter.core.signing import Keys
from deadletter.ports import PROCESS_KEYS, Clock, Dice, Released, Source

from .handlers import as_async, is_async
from .heartbeat import Heartbeat
from .held import Hand, Held
from .lease import LeaseKeeper
from .letter_attempt import LetterAttempts, LetterHandler
from .reach import Reach
from .rereading import Rereading
from .solitude import Solitude
from .trust import Trust

T = TypeVar("T")

_LONGEST_REST: Final = 10.0  # seconds between two heartbeats
_PATIENCE: Final = 1.0  # seconds to wait for others, who wait for us meanwhile
_LONGEST_PATIENCE: Final = 30.0


class DLQConsumer:
    """
    Hands the letters of one dead-letter mailbox to a handler, one at a time.

    The handler, sync or async, takes a DeadLetter. It may return what it did:
    "replayed" or "discarded" rather than "processed". When it fails, the letter
    comes back after `on_failure` seconds, or is thrown away if `discard_failures`.
    Polls start at least `interval` seconds apart and never overlap.
    """

    def __init__(
        self,
        *,
        source: Source,
        handler: Callable[[DeadLetter], object],
        clock: Clock,
        dice: Dice,
        observe: Observer,
        visibility_timeout: float = 300.0,
        wait: float = 20.0,
        interval: float = 0.0,
        batch: int = 10,
        on_failure: float = 3600.0,
        discard_failures: bool = False,
        classifier: ErrorClassifier = DEFAULT,
        solitude: Solitude | None = None,
        keys: Keys = PROCESS_KEYS,
        dead_queue_of: Collection[str] = (),
    ) -> None:
        if min(visibility_timeout, wait, interval, on_failure) < 0 or batch < 1:
            raise ConfigError(
                f"the DLQ consumer of {source.mailbox} needs a batch of at least 1, "
                "and no negative visibility_timeout, wait, interval or on_failure"
            )
        self.name = f"dlq consumer {source.mailbox}"
        self.heartbeat = Heartbeat(clock)
        self._source = source
        self._clock = clock
        self._visibility_timeout = visibility_timeout
        self._wait = wait
        self._interval = interval
        self._batch = batch
        self._solitude = solitude or Solitude()
        self._is_told = solitude is not None  # of suspects, by a sweep
        self._patience = _PATIENCE
        self._reach = Reach(
            source.mailbox,
            clock=clock,
            dice=dice,
            observe=observe,
            beat=self.heartbeat.beat,
        )
        self._can_be_cancelled = is_async(handler)
        # One thread, started when it is needed: letters are handled one at a time.
        self._rereading = Rereading(source, calls=self._reach.calls, observe=observe)
        threads = ThreadPoolExecutor(1, thread_name_prefix="dlq-consumer")
        self._attempts = LetterAttempts(
            source=source,
            handler=cast("LetterHandler", as_async(handler, threads)),
            reach=self._reach,
            clock=clock,
            observe=observe,
            classifier=classifier,
            on_failure=on_failure,
            discard_failures=discard_failures,
            keys=keys,
        )
        self._trust = Trust(source.features, keys, observe, dead_queue_of)
        self._is_shut = False
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def running(self) -> bool:
        """Whether it is at work."""
        return not self._ended.is_set()

    def ready(self) -> str | None:
        """Why it cannot work at the moment; None when it can."""
        return self._reach.complaint()

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until `stop` is set or it is shut down."""
        if stop.is_set():
            return
        forwarding = asyncio.create_task(self._forward(stop))
        try:
            await self.run_turns()
        finally:
            forwarding.cancel()

    async def run_turns(
        self,
        max_iterations: int | None = None,
        visibility_timeout: float | None = None,
    ) -> None:
        """
        Poll so many times, or until it is shut down.

        A turn is a poll, however many letters it brings. A visibility timeout of 0
        is 0; only None means the one the consumer was made with.
        """
        if self.running:
            raise ConfigError(f"the {self.name} is running already")
        lease = visibility_timeout
        if lease is None:
            lease = self._visibility_timeout
        self._stop.clear()
        self._ended.clear()
        turns = 0
        try:
            while not self._is_over and turns != max_iterations:
                due = self._clock.monotonic() + self._interval
                await self._turn(lease)
                turns += 1
                if turns != max_iterations:
                    await self._rest(due)
        finally:
            self._ended.set()

    async def shutdown(self, timeout: float = 30.0) -> bool:  # noqa: ASYNC109 -- R3.99
        """
        Stop after the letter in hand, for good; says whether that was in time.

        Letters not started yet are handed back at once.
        """
        self._is_shut = True
        self._stop.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), timeout)
        return not self.running

    @property
    def _is_over(self) -> bool:
        return self._is_shut or self._stop.is_set()

    async def _forward(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stop.set()

    async def _rest(self, until: float) -> None:
        while not self._is_over and (left := until - self._clock.monotonic()) > 0:
            self.heartbeat.beat()
            with suppress(TimeoutError):
                rest = min(left, _LONGEST_REST)
                await asyncio.wait_for(self._stop.wait(), rest)

    async def _turn(self, lease: float) -> None:
        """One suspect, run alone, or a batch of others."""
        self.heartbeat.beat()
        if self._may_have_suspects() and await self._take_suspect(lease):
            return
        if not self._is_over:
            deliveries = await self._receive(self._batch, self._wait, lease)
            await self._work(deliveries, lease)

    def _may_have_suspects(self) -> bool:
        if not self._source.features.finds_suspects:
            return False
        return not self._is_told or self._source.mailbox in self._solitude.suspects

    async def _take_suspect(self, lease: float) -> bool:
        """Handle a letter whose consumer died, while nothing else runs here."""
        async with AsyncExitStack() as stack:
            alone = self._solitude.alone(self.name, patience=self._patience)
            entering = stack.enter_async_context(alone)
            if not await self._unless_stopped(entering):
                self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
                return False
            self._patience = _PATIENCE
            suspects = await self._receive(1, 0.0, lease, alone=True)
            if not suspects:
                self._solitude.suspects.discard(self._source.mailbox)
                return False
            await self._work(suspects, lease)
            return True

    async def _work(self, deliveries: Sequence[Delivery], lease: float) -> None:
        now = self._clock.monotonic()
        waiting = deque(Held(delivery, now) for delivery in deliveries)
        holding = set(waiting)
        async with self._keeping(holding, lease):
            try:
                while waiting and not self._is_over:
                    self.heartbeat.beat()
                    await self._next(waiting, holding)
            finally:
                await self._hand_back(waiting)

    async def _next(self, waiting: deque[Held], holding: set[Held]) -> None:
        held = waiting[0]
        with ExitStack() as stack:
            if not held.delivery.suspect:
                if self._solitude.wanted:
                    await self._solitude.until_free(_PATIENCE)
                    return
                self._solitude.enter()
                stack.callback(self._solitude.leave)
            waiting.popleft()
            try:
                if held.hand is not Hand.LOST:  # otherwise somebody else has it
                    await self._attempts.run(held.delivery)
            except asyncio.CancelledError:
                # A thread runs on: its letter must not be handled beside it.
                if self._can_be_cancelled:
                    waiting.appendleft(held)
                raise
            finally:
                holding.discard(held)

    async def _receive(
        self, limit: int, wait: float, lease: float, *, alone: bool = False
    ) -> Sequence[Delivery]:
        receiving = self._reach.patiently(
            "broker",
            lambda: self._source.receive(
                limit=limit, wait=wait, lease=lease, alone=alone
            ),
            wait=wait,
        )
        received = await self._unless_stopped(receiving) or ()
        return self._trust.checked(await self._rereading.sorted_out(received))

    async def _unless_stopped(self, call: Coroutine[Any, Any, T]) -> T | None:
        """What the call gives; None if we are stopped before it gives anything."""
        calling = asyncio.create_task(call)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({calling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                calling.cancel()
                await asyncio.wait({calling})
            return None if calling.cancelled() else calling.result()
        finally:
            calling.cancel()
            stopping.cancel()

    @asynccontextmanager
    async def _keeping(self, holding: set[Held], lease: float) -> AsyncIterator[None]:
        """Extend the leases of what is held meanwhile."""
        if lease <= 0 or not holding:
            yield
            return
        keeper = LeaseKeeper(
            self._source,
            holding,
            calls=self._reach.calls,
            clock=self._clock,
            lease=lease,
            time_limit=None,
            heartbeat=None,
            on_overdue=lambda held: None,
        )
        keeping = asyncio.create_task(keeper.run())
        try:
            yield
        finally:
            keeping.cancel()

    async def _hand_back(self, waiting: Iterable[Held]) -> None:
        """Give back what was not started, at once and uncharged."""
        unstarted = [
            Released(held.delivery, charged=False)
            for held in waiting
            if held.hand is not Hand.LOST
        ]
        if unstarted:
            settling = self._source.settle(unstarted)
            with suppress(BackendError):  # their leases run out all the same
                await self._reach.calls.limited("broker", settling)
