"""The brake at work: what it is told, and when it says so."""

from typing import Final

from deadletter.core.brake import (
    Brake,
    BrakePolicy,
    may_fetch,
    on_failure,
    on_probe,
    on_success,
)
from deadletter.core.events import BrakeClosed, BrakeOpened, Observer
from deadletter.core.failure import Failure
from deadletter.ports import Clock, Dice

PAUSE: Final = 0.5  # seconds between looks while nothing may be fetched
MEMORY: Final = 0.02  # how much the latest attempt weighs in the error rate


class Braking:
    """One mailbox's brake and error rate; without a policy it never brakes."""

    def __init__(
        self,
        policy: BrakePolicy | None,
        mailbox: str,
        *,
        clock: Clock,
        dice: Dice,
        observe: Observer,
    ) -> None:
        self.error_rate = 0.0  # a moving average over the latest attempts
        self._brake = Brake(policy) if policy is not None else None
        self._touched = False
        self._mailbox = mailbox
        self._clock = clock
        self._dice = dice
        self._observe = observe

    @property
    def is_open(self) -> bool:
        """Whether fetching has stopped."""
        return self._brake is not None and self._brake.is_open

    def may_fetch(self, room: int, running: int) -> int:
        """How many of `room` deliveries may be fetched now."""
        if self._brake is None or not self._brake.is_open:
            return room
        now = self._clock.monotonic()
        if running or not may_fetch(self._brake, now):
            return 0
        self._brake = on_probe(self._brake, now, self._dice.draw())
        return 1

    def pause(self) -> float:
        """How long to wait before looking again, in seconds."""
        if self._brake is None or not self._brake.is_open:
            return PAUSE
        left = self._brake.probe_at - self._clock.monotonic()
        return min(PAUSE, max(left, 0.01))

    def succeeded(self) -> None:
        """A handler ran through: its work is done, or it said there was none."""
        if not self._touched:  # by far the most frequent case
            return
        self.error_rate -= self.error_rate * MEMORY
        self._touched = self.error_rate > 0.001
        if self._brake is None or not self._brake.failures:
            return
        self._become(on_success(self._brake))

    def failed(self, failure: Failure, message_id: str) -> bool:
        """An attempt has failed; says whether the outage is to blame for it."""
        self._touched = True
        self.error_rate += (1.0 - self.error_rate) * MEMORY
        if self._brake is None:
            return False
        now = self._clock.monotonic()
        self._become(
            on_failure(self._brake, failure.trouble, message_id, now, self._dice.draw())
        )
        return self._brake.spares(failure.trouble)

    def _become(self, brake: Brake) -> None:
        before, self._brake = self._brake, brake
        if before is None or before.is_open == brake.is_open:
            return
        if brake.is_open:
            text = f"{brake.failures} transient failures in a row"
            self._observe(BrakeOpened(mailbox=self._mailbox, text=text))
        else:
            since = before.opened_at or 0.0
            seconds = self._clock.monotonic() - since
            self._observe(BrakeClosed(mailbox=self._mailbox, seconds=seconds))
