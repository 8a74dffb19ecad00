"""
Calls to broker, office and ledger: deadlines, and retries until they are available.

Every call has a deadline as a whole, besides the timeouts of its engine: a server that
sends half an answer, or one byte a second, counts as unavailable. `RuntimeContext` is the
clock, the dice and the observer that every part of a loop gets.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from deadletter.core.backoff import Exponential
from deadletter.core.errors import BackendError, Unavailable
from deadletter.core.events import BackInReach, Observer, OutOfReach
from deadletter.ports import Broker, Clock, Counting, Dice, Reconnecting


class RuntimeContext(NamedTuple):
    """Clock, dice and observer of a loop."""

    clock: Clock
    dice: Dice
    observe: Observer


T = TypeVar("T")

PATIENCE: Final = Exponential(0.1, factor=2.0, cap=5.0, jitter=0.5)
SLOW: Final = 10.0  # seconds after which a call in progress is reported
LIMIT: Final = 60.0  # seconds after which a call is given up, if its engine has not


class Calls:
    """Calls under way, by what they are made to, each with a deadline as a whole."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[object, tuple[str, float]] = {}  # when an answer is due

    async def limited(self, what: str, call: Awaitable[T], *, wait: float = 0.0) -> T:
        """
        Await a call that may take `wait` seconds if all is well.

        Raises Unavailable after the deadline; the call may or may not have taken effect.
        """
        self._due[call] = what, self._clock.monotonic() + wait
        deadline = asyncio.timeout(wait + LIMIT)
        try:
            async with deadline:
                return await call
        except TimeoutError as error:
            if not deadline.expired():
                raise
            seconds = wait + LIMIT
            raise Unavailable(f"no answer within {seconds:.0f} s") from error
        finally:
            del self._due[call]

    def complaint(self) -> str | None:
        """Return what has not been answered for long; None when nothing is late."""
        now = self._clock.monotonic()
        late = {what: now - due for what, due in self._due.values() if now - due > SLOW}
        return (
            "; ".join(
                f"{what} is out of reach: no answer for {seconds:.0f} s"
                for what, seconds in late.items()
            )
            or None
        )


class Availability:
    """
    State of the connections to the broker, the office and the ledger.

    While one of them cannot, `down` says which, and workers stop fetching.
    """

    def __init__(
        self, mailbox: str, *, context: RuntimeContext, beat: Callable[[], None] = lambda: None
    ) -> None:
        self.down: dict[str, str] = {}
        self.calls = Calls(context.clock)
        self._mailbox = mailbox
        self._clock = context.clock
        self._dice = context.dice
        self._observe = context.observe
        self._beat = beat  # waiting is a sign of life

    def complaint(self) -> str | None:
        """Return why something cannot be reached; None when everything can."""
        if self.down:
            return "; ".join(f"{what} is out of reach: {text}" for what, text in self.down.items())
        return self.calls.complaint()

    async def retry_until_available(
        self, what: str, call: Callable[[], Awaitable[T]], *, wait: float = 0.0
    ) -> T:
        """
        Call until it succeeds, and report outages.

        Only errors of a backend are retried. Each call may take `wait` seconds if all is
        well.
        """
        tries = 0
        since = self._clock.monotonic()
        try:
            while True:
                try:
                    result = await self.calls.limited(what, call(), wait=wait)
                    break
                except BackendError as error:
                    tries += 1
                    self._beat()
                    self.down[what] = str(error)
                    self._observe(
                        OutOfReach(mailbox=self._mailbox, what=what, text=str(error), tries=tries)
                    )
                    await asyncio.sleep(PATIENCE.delay(tries, self._dice.draw()))
        finally:
            # However it ended: nobody is left to notice when it is available again.
            if tries:
                self.down.pop(what, None)
        if tries:
            seconds = self._clock.monotonic() - since
            self._observe(BackInReach(mailbox=self._mailbox, what=what, seconds=seconds))
        return result


EVERY: Final = 5.0  # seconds between two checks
_ASK: Final = 3  # checks without a message, after which the broker is asked for its count
_STALLED: Final = 6  # ...after which it is reported, and connections are made anew
_RESTART: Final = 12  # ...after which the loop restarts, and the next time the process ends


class NoProgress(Exception):
    """The loop receives nothing, and has to start again."""


class RestartFailed(Exception):
    """Starting the loop again did not help: the process has to end."""


class Progress:
    """
    Detection of a worker that receives nothing although its mailbox has messages.

    Such a worker has lost its connection to the broker without noticing. `run` first
    reports it and makes the connections anew, then raises `NoProgress` so that the loop
    starts again, then `RestartFailed` so that the process ends. Time is counted in checks, so
    that a process that was paused is not affected.
    """

    def __init__(
        self,
        mailbox: str,
        broker: Broker,
        *,
        calls: Calls,
        is_free: Callable[[], bool],
        unstarted: Callable[[], int],
    ) -> None:
        self._mailbox = mailbox
        self._broker = broker
        self._calls = calls
        self._is_free = is_free  # whether it may take something now
        self._unstarted = unstarted  # what it has taken, and not begun with
        self._taken = 0
        self._seen = 0
        self._looks = 0  # in which something was there, and nothing was taken
        self._waiting = 0  # looks in which something was not begun with
        self._ready = 0
        self._restarts = 0

    def taken(self, count: int) -> None:
        """Note that messages were received."""
        self._taken += count
        self._restarts = 0

    def complaint(self) -> str | None:
        """Return why nothing is received; None if messages are, or if there are none."""
        if self._looks >= _STALLED:
            seconds = self._looks * EVERY
            return f"stalled: {self._ready} ready, nothing claimed for {seconds:.0f} s"
        if self._waiting >= _STALLED:
            seconds = self._waiting * EVERY
            return f"stalled: what was claimed has not begun for {seconds:.0f} s"
        return None

    async def run(self) -> None:
        """Check regularly until cancelled; raises `NoProgress` or `RestartFailed`."""
        self._looks = self._waiting = 0
        while True:
            await asyncio.sleep(EVERY)
            self._waiting = self._waiting + 1 if self._unstarted() else 0
            moved, self._seen = self._taken != self._seen, self._taken
            if moved or not self._is_free() or not await self._is_something_there():
                self._looks = 0
            else:
                self._looks += 1
            if self._looks == _STALLED and isinstance(self._broker, Reconnecting):
                await self._broker.reconnect()
            if max(self._looks, self._waiting) >= _RESTART:
                self._give_up()

    async def _is_something_there(self) -> bool:
        """Return whether the mailbox has messages; assume so during the first checks."""
        if not isinstance(self._broker, Counting):
            return False
        if self._looks < _ASK:
            return True
        try:
            counting = self._broker.ready(self._mailbox)
            self._ready = await self._calls.limited("count", counting)
        except BackendError:
            return False  # reported elsewhere
        return self._ready > 0

    def _give_up(self) -> None:
        why = self.complaint() or "stalled"
        self._restarts += 1
        raise RestartFailed(why) if self._restarts > 1 else NoProgress(why)
