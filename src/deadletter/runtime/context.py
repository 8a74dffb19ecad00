"""What a handler may know about, and do with, the delivery it is working on."""

from contextvars import ContextVar
from typing import Final

import msgspec

from deadletter.core.errors import ConfigError
from deadletter.core.message import Delivery
from deadletter.ports import Clock

from .held import Held, Noted

LONGEST_LINE: Final = 8 * 1024  # characters

_current: ContextVar["Context"] = ContextVar("deadletter_context")


class Context:
    """
    The delivery being worked on.

    A handler gets it by taking a second parameter annotated with `Context`.
    """

    __slots__ = ("_clock", "_held", "keeps_results")

    def __init__(
        self, held: Held, clock: Clock, *, keeps_results: bool = False
    ) -> None:
        self.keeps_results = keeps_results  # somebody can see what a handler returns
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

    def heard(self, noted: Noted | None) -> None:
        """Pass on a sign of life, or a note, from the handler's own process."""
        self.beat()
        if noted is not None:
            self._held.note(noted)

    def progress(self, value: object) -> None:
        """
        Say how far the work has got: a number, or anything that is JSON.

        Counts as a beat. BullMQ shows it as the job's progress; with other engines it
        is an event.
        """
        self.beat()
        self._held.note(Noted(progress=_as_json(value)))

    def log(self, text: str) -> None:
        """
        Write a line to the log of this message.

        Counts as a beat. BullMQ shows it among the job's logs; with other engines it
        is an event.
        """
        self.beat()
        self._held.note(Noted(line=text[:LONGEST_LINE]))


def _as_json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            "progress must be a number or another value that is JSON, got"
            f" {type(value).__name__}: {error}"
        ) from error
