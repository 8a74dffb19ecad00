"""
One attempt: run the handler, read how it ended, decide.

Nothing here waits for a broker; decisions go to the settler as values.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import coroutine
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from deadletter.core.attempts import append, attempt_of
from deadletter.core.backoff import Exponential
from deadletter.core.errors import Ignore
from deadletter.core.events import HandlerStuck, PolicyFailed
from deadletter.core.failure import Ack, Bury, Decision, Fail, Failure, Retry, checked_decision
from deadletter.core.failure.capture import capture, safe_text
from deadletter.core.failure.clues import described
from deadletter.core.message import Delivery, Message, mark, marked, reply
from deadletter.core.policy import DLQPolicy, Situation, last_word, refusal, refused_history
from deadletter.ports import Fate

from .availability import RuntimeContext
from .brake_gate import BrakeGate
from .deliveries import ClaimedDelivery, HandlerNote, InterruptReason
from .handlers import Context, Handler, encode, encode_result
from .outcomes import Finished
from .registration import CauseOf, WorkerOptions
from .settlement import Settler
from .watchdog import StarvationCheck, is_wreck

_DONE: Final = Ack()
_PATIENT: Final = Exponential()


class TimeLimitExceeded(TimeoutError):
    """A handler ran longer than its time limit."""


class Attempts:
    """Runs handlers and decides what becomes of their deliveries."""

    def __init__(
        self,
        *,
        mailbox: str,
        handler: Handler,
        options: WorkerOptions,
        settler: Settler,
        brake_gate: BrakeGate,
        context: RuntimeContext,
        on_ended: Callable[[ClaimedDelivery], None],
        keeps_results: bool = False,
        on_note: Callable[[ClaimedDelivery, HandlerNote], None] | None = None,
    ) -> None:
        self.stuck = 0  # slots held by threads that overstayed their time limit
        self._mailbox = mailbox
        self._handler = handler
        self._options = options
        self._settler = settler
        self._brake_gate = brake_gate
        self._clock = context.clock
        self._dice = context.dice
        self._observe = context.observe
        self._on_ended = on_ended
        self._keeps_results = keeps_results
        self._on_note = on_note
        self._expires = options.policy.expire_after is not None
        self._starvation = StarvationCheck()

    @property
    def is_starved(self) -> bool:
        """Return whether there may be no room in this process for any handler."""
        return self._starvation.is_running

    async def run(self, held: ClaimedDelivery) -> None:
        """Run the handler on one delivery. Never raises."""
        delivery = held.delivery
        if held.interrupted is not None:
            # Lost, or told to stop, while its key was still being claimed.
            self._end(held, None)
            self.hand_back(held)
            return
        held.begin(self._clock.monotonic())
        try:
            if (
                delivery.charged > 1
                or delivery.message.expires_at is not None
                or delivery.unreadable
                or self._expires
            ):
                early = self._options.policy.before(delivery, self._clock.now())
                if early is not None:
                    self._refuse(held, early)
                    return
            held.on_note = self._on_note
            Context(held, self._clock, keeps_results=self._keeps_results).enter()
            value = await self._handler(delivery)
            answer = result = None
            if value is not None:
                answer = self._answer(delivery, value)
                result = encode_result(value) if self._keeps_results else None
        except BaseException as error:  # noqa: BLE001 -- handlers may raise anything
            self._failed(held, error)
        else:
            self._succeeded(held, answer, result)

    def skip(self, held: ClaimedDelivery, decision: Decision, fate: Fate) -> None:
        """Settle a delivery whose handler need not run."""
        if isinstance(decision, Bury):
            self._refuse(held, decision)
            return
        self._end(held, Finished(held=held, decision=decision, fate=fate))

    def reject(self, held: ClaimedDelivery, error: Exception) -> None:
        """Settle a delivery whose key could not be read, as one that has failed."""
        held.begin(self._clock.monotonic())
        text = f"the function that reads the key raised {described(error)}"
        self._policy_failed(held.delivery, text)
        self._decide(held, error)

    def hand_back(self, held: ClaimedDelivery) -> None:
        """Give back a delivery that was never started, at once and uncharged."""
        released = Retry(0.0, charged=False)
        self._settler.add(Finished(held=held, decision=released, history=None))

    def overdue(self, held: ClaimedDelivery) -> None:
        """The time limit of a running handler is over."""
        is_lost = held.interrupted is InterruptReason.LOST
        if not self._options.on_threads:
            held.interrupt(InterruptReason.TIMED_OUT)
            return
        if held.interrupted is not None and not is_lost:
            return
        # A thread cannot be stopped: its slot is lost, and its message must not
        # be run again beside it while it could still be at work.
        held.interrupted = InterruptReason.TIMED_OUT
        self.stuck += 1
        seconds = self._clock.monotonic() - held.started
        self._observe(
            HandlerStuck(
                mailbox=self._mailbox, message_id=held.delivery.message.id, seconds=seconds
            )
        )
        if is_lost:
            self._end(held, None)
            self.hand_back(held)
        else:
            self._decide(held, self._too_long(), at_least=self._options.lease)

    def _succeeded(
        self, held: ClaimedDelivery, answer: Message | None, result: bytes | None
    ) -> None:
        if self._is_over(held):
            return
        self._brake_gate.succeeded(held.delivery.message.id)
        self._end(
            held,
            Finished(
                held=held,
                decision=_DONE,
                seconds=self._clock.monotonic() - held.started,
                reply=answer,
                result=result,
            ),
        )

    def _failed(self, held: ClaimedDelivery, error: BaseException) -> None:
        if self._is_over(held):
            return
        if held.interrupted is None:
            self._decide(held, error)
        elif held.interrupted is InterruptReason.STOPPED:
            self._end(held, None)
            self.hand_back(held)
        else:
            late = self._too_long()
            if span := marked(error):
                mark(late, span)
            self._decide(held, late)

    def _is_over(self, held: ClaimedDelivery) -> bool:
        """Return whether this end comes too late to matter."""
        if not held.running:  # a thread that was given up on, back at last
            self.stuck -= 1
            return True
        if held.interrupted is not None and held.interrupted is InterruptReason.LOST:
            self._end(held, None)
            # Settling finds that it is no longer ours, and says so.
            self.hand_back(held)
            return True
        return False

    def _decide(
        self, held: ClaimedDelivery, error: BaseException, *, at_least: float = 0.0
    ) -> None:
        if is_wreck(error):
            self._starvation.start()
        policy, delivery = self._options.policy, held.delivery
        now = self._clock.now()
        failure = capture(error, policy.classifier, now)
        if failure.broken:
            self._policy_failed(delivery, failure.broken)
        if self._options.cause_of is not None:
            failure = self._named(self._options.cause_of, failure, delivery)
        seconds = self._clock.monotonic() - held.started
        if isinstance(error, Ignore):
            self._brake_gate.succeeded(delivery.message.id)  # it ran, and had its say
            fate = Fate.IGNORED
            self._end(
                held, Finished(held=held, decision=error.decision, seconds=seconds, fate=fate)
            )
            return
        situation = Situation(
            delivery=delivery, failure=failure, error=error, error_rate=self._brake_gate.error_rate
        )
        decision = self._decided(policy, situation)
        # While the brake is open, nothing is charged or buried.
        decision = self._brake_gate.failed(failure, error, delivery, decision)
        decision = last_word(decision, delivery, failure)
        if isinstance(decision, Retry) and decision.delay < at_least:
            decision = Retry(at_least, decision.charged)
        attempt = attempt_of(
            failure,
            number=delivery.attempt,
            at=now,
            seconds=int(seconds * 1e6) / 1e6,  # a tenth of what round() takes
            worker=self._options.worker,
            version=self._options.version,
            generation=delivery.message.generation,
        )
        self._end(
            held,
            Finished(
                held=held,
                decision=decision,
                seconds=seconds,
                failure=failure,
                history=append(delivery.history, attempt),
            ),
        )

    def _decided(self, policy: DLQPolicy, situation: Situation) -> Decision:
        """Ask the policy; one that fails itself must neither bury nor lose anything."""
        draw = self._dice.draw()
        try:
            return checked_decision(policy.decide(situation, draw))
        except Exception as error:  # noqa: BLE001 -- it may be anybody's code
            self._policy_failed(
                situation.delivery, f"{type(policy).__name__} raised {described(error)}"
            )
            delay = _PATIENT.delay(situation.delivery.attempt, draw)
            return Retry(delay, charged=False)

    def _named(self, cause_of: CauseOf, failure: Failure, delivery: Delivery) -> Failure:
        """Return the failure with the name that the application has for its cause, if any."""
        try:
            cause = cause_of(failure, delivery.message)
        except Exception as error:  # noqa: BLE001 -- it may be anybody's code
            text = f"the function that names causes raised {described(error)}"
            self._policy_failed(delivery, text)
            return failure
        if cause is not None and not isinstance(cause, str):
            text = (
                f"the function that names causes returned {type(cause).__name__}:"
                " it has to return a text or None"
            )
            self._policy_failed(delivery, text)
            return failure
        return replace(failure, cause=str(cause)) if cause else failure

    def _policy_failed(self, delivery: Delivery, text: str) -> None:
        self._observe(
            PolicyFailed(
                mailbox=self._mailbox, message_id=delivery.message.id, text=safe_text(text)
            )
        )

    def _refuse(self, held: ClaimedDelivery, decision: Decision) -> None:
        """Settle a delivery that must not be run at all."""
        if not isinstance(decision, Bury | Fail):
            self.skip(held, decision, Fate.IGNORED)
            return
        now = self._clock.now()
        failure = refusal(held.delivery, decision, now)
        self._end(
            held,
            Finished(
                held=held,
                decision=decision,
                failure=failure,
                history=refused_history(held.delivery, failure, now),
            ),
        )

    def _answer(self, delivery: Delivery, value: object) -> Message | None:
        if delivery.message.reply_to is None:
            return None
        body, content_type = encode(value)
        return reply(delivery, body, content_type, id=self._dice.new_id(), now=self._clock.now())

    def _too_long(self) -> TimeLimitExceeded:
        return TimeLimitExceeded(
            f"the handler ran longer than its time limit of {self._options.time_limit:g} seconds"
        )

    def _end(self, held: ClaimedDelivery, finished: Finished | None) -> None:
        if finished is not None:
            self._settler.add(finished)
        self._on_ended(held)


# A task of its own costs more than many a handler does. So one task runs the handlers
# of a batch, one after another, each in a context of its own. The first one that waits
# for something keeps the task for itself, and another task goes on with the rest: to
# a handler it looks as if it had been started alone.

Attempt: TypeAlias = Callable[[ClaimedDelivery], Coroutine[Any, Any, None]]

_TURNS: Final = 6  # of an event loop, in which what is to be sent out has been


class Running:
    """Starts attempts; they end by themselves, and never raise."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._ready: deque[ClaimedDelivery] = deque()
        self._is_going = False  # a task is there that will take the next
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio itself forgets them
        self._loop = asyncio.get_running_loop()

    def start(self, batch: Sequence[ClaimedDelivery]) -> None:
        """
        Run these, some turns of the event loop later.

        Until then the next fetch and what is to be settled are on their way, and
        these run while an engine waits for its disk or its server.
        """
        self._soon(batch, _TURNS)

    def forget(self) -> None:
        """Start none of those that have not been started yet, nor any other."""
        self._is_over = True
        self._ready.clear()

    def _soon(self, batch: Sequence[ClaimedDelivery], turns: int) -> None:
        if turns:
            self._loop.call_soon(self._soon, batch, turns - 1)
        elif not self._is_over:
            self._ready.extend(batch)
            self._go_on()

    def _go_on(self) -> None:
        if self._ready and not self._is_going:
            self._is_going = True
            self._tasks.add(task := self._loop.create_task(self._run()))
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        task = asyncio.current_task()
        while self._ready:
            held = self._ready.popleft()
            held.task = task
            if await self._steps(self._attempt(held), contextvars.copy_context()):
                return  # it waited, and somebody else has gone on meanwhile
        self._is_going = False

    @coroutine
    def _steps(
        self, attempt: Coroutine[Any, Any, None], context: contextvars.Context
    ) -> Generator[Any, Any, bool]:
        """Take an attempt to its end; whether it had to wait on the way."""
        try:
            awaited = context.run(attempt.send, None)
        except StopIteration:
            return False
        self._is_going = False
        self._go_on()
        while True:
            step: Callable[[Any], Any] = attempt.send
            try:
                value = yield awaited
            except BaseException as error:  # noqa: BLE001 -- it is the attempt's
                step, value = attempt.throw, error
            try:
                awaited = context.run(step, value)
            except StopIteration:
                return True
