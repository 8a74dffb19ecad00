"""The mailbox protocol, and the messages that the mailboxes of this package return."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from .errors import MessageFinalizedError, ReceiptHandleExpiredError, ReplyNotAvailableError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


class Message(Protocol[T_co, R]):
    """One delivery of a message; `acknowledge` or `nack` settles it."""

    @property
    def id(self) -> str: ...
    @property
    def body(self) -> T_co: ...
    @property
    def delivery_count(self) -> int: ...  # 1 for the first delivery
    @property
    def enqueued_at(self) -> datetime: ...
    @property
    def reply_to(self) -> "Mailbox[R, Any] | None": ...
    def reply(self, body: R) -> str: ...
    def acknowledge(self) -> None: ...
    def nack(self, *, visibility_timeout: int = 0) -> None: ...


class Mailbox(Protocol[T, R]):
    """
    A queue of bodies T, whose messages are answered with R.

    Loops, policies, consumers, health checks and replays accept any object with these
    members. A message that also has `extend_visibility(timeout)` keeps its lease while a
    long request is processed.
    """

    @property
    def name(self) -> str: ...
    def send(self, body: T, *, reply_to: "Mailbox[R, Any] | None" = None) -> str: ...
    def receive(
        self, *, max_messages: int = 1, visibility_timeout: int = 30, wait_time_seconds: int = 0
    ) -> "Sequence[Message[T, R]]": ...
    def approximate_count(self) -> int: ...


class Claim(Protocol):
    """The broker's side of a delivery; each method returns whether the delivery was still ours."""

    def acknowledge(self) -> bool: ...
    def release(self, delay: float) -> bool: ...
    def extend(self, lease: float) -> bool: ...


@dataclass(slots=True, eq=False)
class ReceivedMessage(Generic[T, R]):
    """
    One delivery of a message, leased until its visibility timeout ends.

    `acknowledge` and `nack` finalise the message. Both, and `extend_visibility`, raise
    ReceiptHandleExpiredError after the lease has ended. Each delivery has its own
    receipt handle.
    """

    id: str
    body: T  # bytes if the body does not fit the type of the mailbox
    delivery_count: int  # 1 for the first delivery
    enqueued_at: datetime
    receipt_handle: str = ""
    reply_to: Mailbox[R, Any] | None = None
    error_rate: float = 0.0  # share of the loop's recent attempts that failed
    is_finalized: bool = False
    claim: Claim | None = field(default=None, repr=False)

    def reply(self, body: R) -> str:
        """Send a reply to the sender's mailbox; several are allowed before finalisation."""
        if self.is_finalized:
            raise MessageFinalizedError(
                f"message {self.id} is finalised: reply before acknowledge() or nack()"
            )
        if self.reply_to is None:
            raise ReplyNotAvailableError(
                f"message {self.id} has no reply mailbox: send it with reply_to="
            )
        return self.reply_to.send(body)

    def acknowledge(self) -> None:
        """Delete the message: it is done."""
        self._finalize()
        self._check_lease(self._claim().acknowledge())

    def nack(self, *, visibility_timeout: float = 0) -> None:
        """Return the message to its mailbox, visible again after this many seconds."""
        self._finalize()
        self._check_lease(self._claim().release(visibility_timeout))

    def extend_visibility(self, timeout: float) -> None:
        """Keep the lease for this many seconds from now."""
        if self.is_finalized:
            raise MessageFinalizedError(f"message {self.id} is finalised: its lease has ended")
        self._check_lease(self._claim().extend(timeout))

    def _finalize(self) -> None:
        if self.is_finalized:
            raise MessageFinalizedError(f"message {self.id} is already finalised")
        self.is_finalized = True

    def _claim(self) -> Claim:
        if self.claim is None:  # a policy was given this message; its loop settles it
            raise MessageFinalizedError(
                f"message {self.id} is settled by its loop: a policy must only read it"
            )
        return self.claim

    def _check_lease(self, ours: bool) -> None:
        if not ours:
            raise ReceiptHandleExpiredError(
                f"the lease of message {self.id} has ended: its receipt handle "
                f"{self.receipt_handle} is no longer valid"
            )
