"""
The loop that takes letters from a dead-letter mailbox and hands them to a handler.

A letter whose handler succeeds is gone; one whose handler fails waits where it is.
It is never dead-lettered again: a dead-letter mailbox has none of its own.
"""

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar, cast

from deadletter.core.attempts import append, attempt_of, last_number
from deadletter.core.burial import claims_letter, from_message, is_copy
from deadletter.core.errors import BackendError, ConfigError, Signal
from deadletter.core.events import (
    ACTIONS,
    HeadersIgnored,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    Observer,
)
from deadletter.core.failure import Ack, Failure, Retry, Trouble
from deadletter.core.failure.capture import capture
from deadletter.core.failure.classify import ErrorClassifier
from deadletter.core.failure.rules import DEFAULT
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery
from deadletter.core.presence import LONGEST, WorkedMailbox
from deadletter.core.signing import Keys
from deadletter.ports import (
    PROCESS_KEYS,
    Acked,
    Clock,
    Dice,
    Fate,
    LetterStore,
    Released,
    Settlement,
    Source,
)

from .availability import Availability, RuntimeContext
from .deliveries import (
    ClaimedDelivery,
    CorruptionCheck,
    ExclusiveGate,
    Heartbeat,
    InterruptReason,
    LeaseKeeper,
    Trust,
)
from .handlers import as_async, is_async
from .loop_group import was_cancelled
from .moved_letters import MovedLetters

LetterHandler: TypeAlias = Callable[[DeadLetter], Awaitable[object]]

_DEATHS: Final = 2  # of our process, before a letter has to wait like a failed one


class LetterAttempts:
    """Runs a handler on letters and settles them; what fails stays in its mailbox."""

    def __init__(
        self,
        *,
        source: Source,
        handler: LetterHandler,
        availability: Availability,
        clock: Clock,
        observe: Observer,
        classifier: ErrorClassifier,
        on_failure: float,
        discard_failures: bool,
        keys: Keys,
        moved: MovedLetters | None,
    ) -> None:
        self._source = source
        self._handler = handler
        self._availability = availability
        self._clock = clock
        self._observe = observe
        self._classifier = classifier
        self._on_failure = on_failure
        self._discard_failures = discard_failures
        self._keys = keys
        self._moved = moved

    async def run(self, delivery: Delivery) -> None:
        """Run the handler; raises only when cancelled, with nothing settled then."""
        letter = await self._letter(delivery)
        deaths = delivery.attempt - 1 - last_number(delivery.history)
        if delivery.suspect and deaths >= _DEATHS:
            # Nobody buries it here, so it would kill one process after another.
            await self._refuse(delivery, letter, _worker_lost(deaths))
            return
        if delivery.corrupt:
            await self._refuse(delivery, letter, _corrupt(delivery))
            return
        started = self._clock.monotonic()
        try:
            did = await self._handler(letter)
        except BaseException as error:
            if was_cancelled():
                raise asyncio.CancelledError from error
            await self._failed(delivery, letter, error, started)
        else:
            action = did if isinstance(did, str) and did in ACTIONS else "processed"
            await self._handled(delivery, letter, started, action)

    async def _letter(self, delivery: Delivery) -> DeadLetter:
        message, mailbox = delivery.message, self._source.mailbox
        if (
            delivery.moved is not None
            and self._moved is not None
            and not is_copy(message, mailbox, self._keys)
        ):
            return await self._moved.letter_of(delivery)
        letter = from_message(message, mailbox, self._keys, self._clock.now())
        if claims_letter(letter.message.headers):
            id_ = message.id
            self._observe(HeadersIgnored(mailbox=mailbox, message_id=id_, what="letter"))
        return letter

    async def _failed(
        self, delivery: Delivery, letter: DeadLetter, error: BaseException, started: float
    ) -> None:
        asked = error.decision if isinstance(error, Signal) else None
        if isinstance(asked, Ack):
            await self._handled(delivery, letter, started, "processed")
            return
        failure = capture(error, self._classifier, self._clock.now())
        if isinstance(asked, Retry):
            await self._refuse(delivery, letter, failure, asked.delay)
        elif self._discard_failures:
            self._tell_refused(letter, 0.0, failure)
            await self._handled(delivery, letter, started, "discarded")
        else:
            await self._refuse(delivery, letter, failure)

    async def _handled(
        self, delivery: Delivery, letter: DeadLetter, started: float, action: str
    ) -> None:
        seconds = self._clock.monotonic() - started
        fate = Fate.PURGED if action == "discarded" else Fate.HANDLED
        if not await self._settle(Acked(delivery, fate)):
            return
        age = (self._clock.now() - letter.head.dead_at).total_seconds()
        self._observe(
            LetterHandled(
                mailbox=self._source.mailbox,
                letter_id=letter.id,
                seconds=seconds,
                age=max(age, 0.0),
                action=action,
                message_id=letter.head.message_id,
                request_id=letter.head.business_key,
            )
        )

    async def _refuse(
        self, delivery: Delivery, letter: DeadLetter, failure: Failure, delay: float | None = None
    ) -> None:
        delay = self._on_failure if delay is None else delay
        attempt = attempt_of(failure, number=delivery.attempt, at=self._clock.now())
        history = append(delivery.history, attempt)
        if await self._settle(Released(delivery, delay, history)):
            self._tell_refused(letter, delay, failure)

    def _tell_refused(self, letter: DeadLetter, delay: float, failure: Failure) -> None:
        self._observe(
            LetterRefused(
                mailbox=self._source.mailbox,
                letter_id=letter.id,
                delay=delay,
                failure=failure,
                message_id=letter.head.message_id,
                request_id=letter.head.business_key,
            )
        )

    async def _settle(self, settlement: Settlement) -> bool:
        """Settle it, however long that takes; False when it was no longer ours."""
        ours = await self._availability.retry_until_available(
            "broker", lambda: self._source.settle([settlement])
        )
        if not ours[0]:
            delivery = settlement.delivery
            self._observe(
                LeaseLost(
                    mailbox=self._source.mailbox,
                    message_id=delivery.message.id,
                    attempt=delivery.attempt,
                )
            )
        return ours[0]


def _moved(
    letters: LetterStore | None, availability: Availability, clock: Clock, observe: Observer
) -> MovedLetters | None:
    return None if letters is None else MovedLetters(letters, availability, clock, observe)


def _corrupt(delivery: Delivery) -> Failure:
    return Failure(
        trouble=Trouble.MALFORMED,
        code="CORRUPT",
        error_type="deadletter.Corrupt",
        text=delivery.unreadable,
    )


def _worker_lost(deaths: int) -> Failure:
    return Failure(
        trouble=Trouble.WORKER_LOST,
        code=Trouble.WORKER_LOST.name,
        error_type="deadletter.WorkerLost",
        text=f"the process that ran its handler died {deaths} times",
    )


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
        gate: ExclusiveGate | None = None,
        keys: Keys = PROCESS_KEYS,
        dead_queue_of: Collection[str] = (),
        letters: LetterStore | None = None,
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
        self._gate = gate or ExclusiveGate()
        self._is_told = gate is not None  # of suspects, by a sweep
        self._patience = _PATIENCE
        self._availability = Availability(
            source.mailbox, context=RuntimeContext(clock, dice, observe), beat=self.heartbeat.beat
        )
        self._can_be_cancelled = is_async(handler)
        # One thread, started when it is needed: letters are handled one at a time.
        self._corruption_check = CorruptionCheck(
            source, calls=self._availability.calls, observe=observe
        )
        threads = ThreadPoolExecutor(1, thread_name_prefix="dlq-consumer")
        self._attempts = LetterAttempts(
            source=source,
            handler=cast("LetterHandler", as_async(handler, threads)),
            availability=self._availability,
            clock=clock,
            observe=observe,
            classifier=classifier,
            on_failure=on_failure,
            discard_failures=discard_failures,
            keys=keys,
            moved=_moved(letters, self._availability, clock, observe),
        )
        self._trust = Trust(source.features, keys, observe, dead_queue_of)
        self._is_shut = False
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def running(self) -> bool:
        """Return whether it is at work."""
        return not self._ended.is_set()

    def ready(self) -> str | None:
        """Return why it cannot work at the moment; None when it can."""
        return self._availability.complaint()

    def presence(self) -> WorkedMailbox:
        """Return what people see of this consumer."""
        return WorkedMailbox(
            mailbox=self._source.mailbox, slots=1, trouble=(self.ready() or "")[:LONGEST]
        )

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
        self, max_iterations: int | None = None, visibility_timeout: float | None = None
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
        if self._is_told:
            return self._source.mailbox in self._gate.suspects
        return self._source.features.finds_suspects

    async def _take_suspect(self, lease: float) -> bool:
        """Handle a letter whose consumer died, while nothing else runs here."""
        async with AsyncExitStack() as stack:
            alone = self._gate.alone(self.name, patience=self._patience)
            entering = stack.enter_async_context(alone)
            if not await self._unless_stopped(entering):
                self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
                return False
            self._patience = _PATIENCE
            suspects = await self._receive(1, 0.0, lease, alone=True)
            if not suspects:
                self._gate.suspects.discard(self._source.mailbox)
                return False
            await self._work(suspects, lease)
            return True

    async def _work(self, deliveries: Sequence[Delivery], lease: float) -> None:
        now = self._clock.monotonic()
        waiting = deque(ClaimedDelivery(delivery, now) for delivery in deliveries)
        holding = set(waiting)
        async with self._keeping(holding, lease):
            try:
                while waiting and not self._is_over:
                    self.heartbeat.beat()
                    await self._next(waiting, holding)
            finally:
                await self._hand_back(waiting)

    async def _next(self, waiting: deque[ClaimedDelivery], holding: set[ClaimedDelivery]) -> None:
        held = waiting[0]
        with ExitStack() as stack:
            if not held.delivery.suspect:
                if self._gate.wanted:
                    await self._gate.until_free(_PATIENCE)
                    return
                self._gate.enter()
                stack.callback(self._gate.leave)
            waiting.popleft()
            try:
                if held.interrupted is not InterruptReason.LOST:  # otherwise somebody else has it
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
        receiving = self._availability.retry_until_available(
            "broker",
            lambda: self._source.receive(limit=limit, wait=wait, lease=lease, alone=alone),
            wait=wait,
        )
        received = await self._unless_stopped(receiving) or ()
        return self._trust.checked(await self._corruption_check.sorted_out(received))

    async def _unless_stopped(self, call: Coroutine[Any, Any, T]) -> T | None:
        """Return what the call gives; None if we are stopped before it gives anything."""
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
    async def _keeping(self, holding: set[ClaimedDelivery], lease: float) -> AsyncIterator[None]:
        """Extend the leases of what is held meanwhile."""
        if lease <= 0 or not holding:
            yield
            return
        keeper = LeaseKeeper(
            self._source,
            holding,
            calls=self._availability.calls,
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

    async def _hand_back(self, waiting: Iterable[ClaimedDelivery]) -> None:
        """Give back what was not started, at once and uncharged."""
        unstarted = [
            Released(held.delivery, charged=False)
            for held in waiting
            if held.interrupted is not InterruptReason.LOST
        ]
        if unstarted:
            settling = self._source.settle(unstarted)
            with suppress(BackendError):  # their leases run out all the same
                await self._availability.calls.limited("broker", settling)
