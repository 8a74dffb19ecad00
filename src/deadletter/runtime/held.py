"""A delivery in our hands, from its claim until it is settled."""

import asyncio
from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from deadletter.core.message import Delivery


class Hand(Enum):
    """What we did to a running handler, so that its end is read aright."""

    TIMED_OUT = 1  # it overstayed its time limit
    STOPPED = 2  # we are shutting down
    LOST = 3  # the lease is gone: whatever it does no longer counts


class Noted(Struct, frozen=True, tag="noted"):
    """What a running handler wants people to see: how far it is, or a line."""

    progress: bytes | None = None  # JSON
    line: str | None = None


class Held:
    """
    One claimed delivery.

    It is `running` until its handler has ended, and held until it is settled;
    its lease is kept alive all that time.
    """

    __slots__ = (
        *("beaten", "begun", "delivery", "hand", "running", "started", "stoppable"),
        *("on_note", "task"),
    )

    def __init__(
        self, delivery: Delivery, now: float, *, stoppable: bool = True
    ) -> None:
        self.delivery = delivery
        self.started = now
        self.beaten = now
        self.begun = False
        self.running = True
        self.hand: Hand | None = None
        self.stoppable = stoppable  # a thread is not: it runs on, and has its slot
        self.task: asyncio.Task[None] | None = None
        self.on_note: Callable[[Held, Noted], None] | None = None

    def note(self, noted: Noted) -> None:
        """Pass on what the handler wants people to see; from any thread."""
        if self.on_note is not None:
            self.on_note(self, noted)

    def begin(self, now: float) -> None:
        """Its handler starts now; waiting for its key was not the handler's time."""
        self.begun = True
        self.started = self.beaten = now

    def beat(self, now: float) -> None:
        """A sign of life from the handler itself."""
        self.beaten = now

    def interrupt(self, hand: Hand) -> None:
        """Cancel the handler, once, remembering why."""
        if self.hand is None and self.running:
            self.hand = hand
            # A task that is cancelled before its first step never takes it, and
            # nobody would hear of its end; it looks at the hand by itself.
            if self.task is not None and self.begun and self.stoppable:
                self.task.cancel()
