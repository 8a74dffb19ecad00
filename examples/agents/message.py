"""Mailboxes, and a message in hand: what it says, what can be done with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from .errors import MessageFinalizedError, ReceiptHandleExpiredError, ReplyNotAvailableError

T = TypeVar("T")
R = TypeVar("R")


class Mailbox(Protocol[T, R]):
    """A queue of bodies T whose readers may be answered with R."""

    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    def send(self, body: T, *, reply_to: "Mailbox[R, Any] | None" = None) -> str: ...
    def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> "Sequence[Message[T, R]]": ...
    def purge(self) -> int: ...
    def approximate_count(self) -> int: ...
    def close(self) -> None: ...


class Claim(Protocol):
    """The way back to the broker; each verb says whether the message was still ours."""

    def acknowledge(self) -> bool: ...
    def release(self, delay: float) -> bool: ...
    def extend(self, lease: float) -> bool: ...


@dataclass(slots=True, eq=False)
class Message(Generic[T, R]):
    """
    One delivery of a message, ours until its visibility timeout is over.

    `acknowledge` and `nack` are the last thing that can be done with it; either of
    them, or `extend_visibility`, raises ReceiptHandleExpiredError when it is no
    longer ours. The receipt handle is another one with every delivery.
    """

    id: str
    body: T  # as bytes, if it is not what the mailbox should hold
    delivery_count: int  # 1 the first time
    enqueued_at: datetime
    receipt_handle: str = ""
    reply_to: "Mailbox[R, Any] | None" = None
    error_rate: float = 0.0  # of the loop's recent attempts, the share that failed
    is_finalized: bool = False
    claim: Claim | None = field(default=None, repr=False)

    def reply(self, body: R) -> str:
        """Answer whoever asked; as often as need be, until it is finalised."""
        if self.is_finalized:
            raise MessageFinalizedError(f"message {self.id} is finalised: reply first")
        if self.reply_to is None:
            raise ReplyNotAvailableError(f"message {self.id} asks for no reply")
        return self.reply_to.send(body)

    def acknowledge(self) -> None:
        """It is done: forget it."""
        self._finalize()
        self._still_ours(self._claim().acknowledge())

    def nack(self, *, visibility_timeout: float = 0) -> None:
        """Hand it back, to be received again after so many seconds."""
        self._finalize()
        self._still_ours(self._claim().release(visibility_timeout))

    def extend_visibility(self, timeout: float) -> None:
        """Keep it for so many seconds from now."""
        if self.is_finalized:
            raise MessageFinalizedError(f"message {self.id} is finalised")
        self._still_ours(self._claim().extend(timeout))

    def _finalize(self) -> None:
        if self.is_finalized:
            raise MessageFinalizedError(f"message {self.id} is finalised already")
        self.is_finalized = True

    def _claim(self) -> Claim:
        if self.claim is None:  # shown to a policy, by the loop that settles it
            raise MessageFinalizedError(f"message {self.id} is its loop's to settle")
        return self.claim

    def _still_ours(self, ours: bool) -> None:
        if not ours:
            raise ReceiptHandleExpiredError(
                f"message {self.id} was not settled in time: its receipt handle "
                f"{self.receipt_handle} is no longer valid"
            )
