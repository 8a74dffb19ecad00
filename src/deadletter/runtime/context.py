"""What a handler may know about, and do with, the delivery it is working on."""

from contextvars import ContextVar

from deadletter.core.message import Delivery
from deadletter.ports import Clock

from .held import Held

_current: ContextVar["Context"] = ContextVar("deadletter_context")


class Context:
    """
    The delivery being worked on.

    A handler gets it by taking a second parameter annotated with `Context`.
    """

    __slots__ = ("_clock", "_held")

    def __init__(self, held: Held, clock: Clock) -> None:
        self._held = held
        self._clock = clock

    @classmethod
    def current(cls) -> "Context":
        """The context of the handler that is running here."""
        return _current.get()

    def enter(self) -> None:
        """Become the current context of this task."""
        _current.set(self)

    @property
    def delivery(self) -> Delivery:
        """The delivery itself, with its message and the story so far."""
        return self._held.delivery

    @property
    def attempt(self) -> int:
        """Which attempt this is, counting from 1."""
        return self.delivery.attempt

    @property
    def message_id(self) -> str:
        """The id its producer gave the message."""
        return self.delivery.message.id

    def beat(self) -> None:
        """
        Say that the work is getting on.

        Matters to handlers registered with `heartbeat=`: one that does not beat
        for that long is taken for stuck, and its lease is not extended.
        """
        self._held.beat(self._clock.monotonic())
