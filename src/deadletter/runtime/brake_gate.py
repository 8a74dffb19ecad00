"""The brake at work: what it is told, what it holds, and when it says so."""

import asyncio
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from deadletter.core.brake import (
    SAMPLE,
    AttemptResult,
    Brake,
    BrakeKind,
    BrakePolicy,
    BrakeWindow,
    Finding,
    closed,
    is_released,
    may_fetch,
    on_probe,
    on_result,
    on_time,
    released,
)
from deadletter.core.errors import BackendError, GiveUp, Signal
from deadletter.core.events import BrakeClosed, BrakeOpened
from deadletter.core.failure import Ack, Bury, Continue, Decision, Failure, Reason, Retry
from deadletter.core.message import Delivery
from deadletter.ports import Clock, LetterStore

from .availability import Calls, RuntimeContext

PAUSE: Final = 0.5  # seconds between looks while nothing may be fetched
MEMORY: Final = 0.02  # how much the latest attempt weighs in the error rate
SOONEST: Final = 1.0  # seconds that a held message waits at least
COUNTED: Final = 10_000  # held messages that are told apart
UNWRITTEN: Final = 100  # windows that wait for an office out of reach

PROBED = "a probe was answered"
RELEASED = "somebody said to go on"
HELD_LONG_ENOUGH = "it had been open for as long as its policy allows"


class BrakeGate:
    """One mailbox's brake and error rate; without a policy it never brakes."""

    def __init__(
        self,
        policy: BrakePolicy | None,
        mailbox: str,
        *,
        context: RuntimeContext,
        version: str = "",
    ) -> None:
        self.error_rate = 0.0  # a moving average over the latest attempts
        self.window: BrakeWindow | None = None  # of the time that it was last open
        self.ended: list[BrakeWindow] = []  # of times before that, yet to be written
        self.changed = asyncio.Event()  # it opened or closed
        self._brake = Brake(policy) if policy is not None else None
        self._touched = False
        self._held: set[str] = set()
        self._mailbox = mailbox
        self._version = version
        self._clock = context.clock
        self._dice = context.dice
        self._observe = context.observe

    @property
    def is_open(self) -> bool:
        """Return whether fetching has stopped."""
        return self._brake is not None and self._brake.is_open

    def complaint(self) -> str | None:
        """Return why fetching has stopped, for people; None when it has not."""
        if self.window is None or not self.is_open:
            return None
        return f"the brake is open ({self.window.kind}): {self.window.text}"

    def may_fetch(self, room: int, running: int) -> int:
        """Return how many of `room` deliveries may be fetched now."""
        if self._brake is None or not self._brake.is_open:
            return room
        now = self._clock.monotonic()
        after = on_time(self._brake, now)
        if not after.is_open:
            is_proven = self._brake.proven_at is not None
            self._become(after, PROBED if is_proven else HELD_LONG_ENOUGH)
            return room
        if running or not may_fetch(self._brake, now):
            return 0
        self._brake = on_probe(self._brake, now, self._dice.draw())
        return 1

    def pause(self) -> float:
        """Return how long to wait before looking again, in seconds."""
        if self._brake is None or not self._brake.is_open:
            return PAUSE
        left = self._brake.probe_at - self._clock.monotonic()
        return min(PAUSE, max(left, 0.01))

    def succeeded(self, message_id: str) -> None:
        """A handler ran through: its work is done, or it said there was none."""
        if not self._touched:  # by far the most frequent case
            return
        self.error_rate -= self.error_rate * MEMORY
        self._touched = self.error_rate > 0.001
        if self._brake is None or not self._brake.recent:
            return
        self._tell(AttemptResult(message_id))

    def failed(
        self, failure: Failure, error: BaseException, delivery: Delivery, decision: Decision
    ) -> Decision:
        """Note a failed attempt, and return the decision on it, changed where the brake is open."""
        self._touched = True
        self.error_rate += (1.0 - self.error_rate) * MEMORY
        if self._brake is None:
            return decision
        message = delivery.message
        if isinstance(error, GiveUp) or isinstance(decision, Ack | Continue):
            # A verdict on this message alone, by its handler or policy.
            self._tell(AttemptResult(message.id))
            return decision
        result = AttemptResult(
            message.id,
            failure.trouble,
            cause_of(failure),
            is_first=delivery.charged <= 1 and message.lineage is None,
            is_last=_is_spent(decision),
        )
        brake = self._tell(result)
        if not brake.spares(result):
            return decision
        self._hold(message.id)
        if isinstance(error, Signal):  # it says itself when to try again
            return decision
        delay = decision.delay if isinstance(decision, Retry) else 0.0
        latest = max(brake.policy.cap, failure.retry_after or 0.0)
        return Retry(max(min(delay, latest), SOONEST), charged=False)

    def release(self) -> None:
        """Go on, and let this cause pass for a day."""
        if self._brake is not None and self._brake.is_open:
            self._become(released(self._brake, self._clock.monotonic()), RELEASED)

    def stop(self) -> None:
        """Say that nothing is held any more: this worker stops."""
        if self._brake is not None and self._brake.is_open:
            self._become(closed(self._brake), "its worker stopped")

    def _tell(self, result: AttemptResult) -> Brake:
        assert self._brake is not None
        now, draw = self._clock.monotonic(), self._dice.draw()
        brake = on_result(self._brake, result, now, draw)
        self._become(brake, PROBED)
        return brake

    def _hold(self, message_id: str) -> None:
        window = self.window
        if window is None:
            return
        if message_id not in self._held and len(self._held) < COUNTED:
            self._held.add(message_id)
            if len(window.message_ids) < SAMPLE:
                ids = (*window.message_ids, message_id)
                window = replace(window, message_ids=ids)
        self.window = replace(window, held=len(self._held), attempts=window.attempts + 1)

    def _become(self, brake: Brake, ending: str) -> None:
        before, self._brake = self._brake, brake
        if before is None or before.is_open == brake.is_open:
            return
        self.changed.set()
        if brake.finding is not None:
            self._opened(brake.finding)
        else:
            self._closed(self._clock.monotonic() - before.opened_at, ending)

    def _opened(self, finding: Finding) -> None:
        now = self._clock.now()
        self._held = set()
        if self.window is not None:
            self.ended = [*self.ended, self.window][-UNWRITTEN:]
        self.window = BrakeWindow(
            id=self._dice.new_id(),
            mailbox=self._mailbox,
            kind=finding.kind,
            cause=finding.cause,
            version=self._version,
            text=sentence(finding, self._version),
            opened_at=now,
            seen_at=now,
        )
        self._observe(
            BrakeOpened(
                mailbox=self._mailbox,
                text=self.window.text,
                kind=finding.kind,
                cause=finding.cause,
                version=self._version,
            )
        )

    def _closed(self, seconds: float, ending: str) -> None:
        window = self.window
        if window is None:
            return
        now = self._clock.now()
        self.window = replace(window, seen_at=now, closed_at=now, ending=ending)
        self._observe(
            BrakeClosed(
                mailbox=self._mailbox,
                seconds=seconds,
                kind=window.kind,
                held=window.held,
                text=ending,
            )
        )


def cause_of(failure: Failure) -> str:
    """Return what failures of one cause have in common, readable."""
    code = f"{failure.code} " if failure.rule else ""
    function = failure.frame.partition("#")[0]  # without the hash of its line
    place = f" in {function}" if function else ""
    return f"{code}{failure.error_type}{place}"


def sentence(finding: Finding, version: str) -> str:
    """Say why the brake opened."""
    if finding.kind is BrakeKind.OUTAGE:
        return (
            f"{finding.failed} of the last {finding.of} attempts failed for a "
            f"passing reason, most often {finding.cause}"
        )
    since = f" since version {version}" if version else ""
    return (
        f"{finding.failed} of the last {finding.of} messages failed by one "
        f"cause{since}: {finding.cause}"
    )


def _is_spent(decision: Decision) -> bool:
    return isinstance(decision, Bury) and decision.reason is Reason.ATTEMPTS_EXHAUSTED


# The brake works whether or not the office can be reached; this only tells of it.

EVERY: Final = 2.0  # seconds between two looks while the brake is open
LOOKED_AT: Final = 100  # earlier windows of the mailbox, for what was released
LAST_WORD: Final = 3.0  # seconds to write the end when the worker stops


class BrakeLog:
    """Keeps the windows of one mailbox's brake in the office."""

    def __init__(
        self,
        brake_gate: BrakeGate,
        letters: LetterStore,
        mailbox: str,
        *,
        calls: Calls,
        clock: Clock,
    ) -> None:
        self._brake_gate = brake_gate
        self._letters = letters
        self._mailbox = mailbox
        self._calls = calls
        self._clock = clock
        self._written: BrakeWindow | None = None  # as the office has it

    async def run(self) -> None:
        """Write whatever changes, until cancelled."""
        changed = self._brake_gate.changed
        while True:
            await changed.wait()
            changed.clear()
            while self._is_behind() or self._brake_gate.is_open:
                with suppress(BackendError):  # whoever settles says so
                    await self._write()
                with suppress(TimeoutError):
                    async with asyncio.timeout(EVERY):
                        await changed.wait()
                    changed.clear()

    async def end(self) -> None:
        """Write that nothing is held any more, if the office can be reached."""
        self._brake_gate.stop()
        if not self._is_behind():
            return
        with suppress(BackendError, TimeoutError):  # it is shown as without news
            async with asyncio.timeout(LAST_WORD):
                await self._write()

    def _is_behind(self) -> bool:
        return bool(self._brake_gate.ended) or self._brake_gate.window != self._written

    async def _write(self) -> None:
        while self._brake_gate.ended:
            await self._save(self._brake_gate.ended[0])
            del self._brake_gate.ended[0]
        taken = window = self._brake_gate.window
        if window is None:
            return
        is_new = self._written is None or self._written.id != window.id
        if window.closed_at is None:
            window = replace(window, seen_at=self._clock.now())
        kept = await self._save(window)
        self._written = taken  # not what it has become meanwhile: that is yet to be written
        if self._brake_gate.is_open and (
            kept.release is not None or (is_new and await self._was_released(window))
        ):
            self._brake_gate.release()

    async def _save(self, window: BrakeWindow) -> BrakeWindow:
        return await self._calls.limited("office", self._letters.save_window(window))

    async def _was_released(self, window: BrakeWindow) -> bool:
        asked = self._letters.windows(mailbox=self._mailbox, limit=LOOKED_AT)
        earlier = await self._calls.limited("office", asked)
        return is_released(earlier, window.kind, window.cause, self._clock.now())
