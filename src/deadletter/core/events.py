"""
Everything that can be observed, as one union.

The runtime emits these and never logs; `observe/` renders them as logs, metrics
and traces. Adding an event is adding a class here and a line in the docs.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from .brake import BrakeKind
from .failure import Failure, Reason


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to a mailbox."""

    mailbox: str


class WorkerStarted(Event, frozen=True, tag="worker-started"):
    """A worker has begun to receive."""

    slots: int


class WorkerStopped(Event, frozen=True, tag="worker-stopped"):
    """A worker has stopped; `abandoned` deliveries were still running."""

    abandoned: int = 0


class Received(Event, frozen=True, tag="received"):
    """A batch of deliveries was claimed."""

    count: int


class Succeeded(Event, frozen=True, tag="succeeded"):
    """A handler has done its work and the message is gone from its mailbox."""

    message_id: str
    attempt: int
    seconds: float
    fate: str = "handled"


class Retried(Event, frozen=True, tag="retried"):
    """An attempt failed and the message was handed back."""

    message_id: str
    attempt: int
    delay: float
    charged: bool
    failure: Failure
    seconds: float = 0.0  # that the handler took


class Buried(Event, frozen=True, tag="buried"):
    """A message was kept as a dead letter and is gone from its mailbox."""

    message_id: str
    letter_id: str
    attempt: int
    reason: Reason
    text: str
    failure: Failure
    is_new: bool = True  # False: it returned to the letter it had before
    conflict: bool = False  # its message id or key was used with another body before
    request_id: str | None = None
    consumer: str = ""
    seconds: float = 0.0  # that the handler took; 0: none was run


class FailedForGood(Event, frozen=True, tag="failed-for-good"):
    """A message was recorded as failed and deleted, by policy, without a letter."""

    message_id: str
    attempt: int
    text: str
    failure: Failure
    seconds: float = 0.0  # that the handler took; 0: none was run


class LeaseLost(Event, frozen=True, tag="lease-lost"):
    """A delivery was no longer ours when we wanted to settle it: nothing was done."""

    message_id: str
    attempt: int


class HandlerStuck(Event, frozen=True, tag="handler-stuck"):
    """A handler ran past its time limit and cannot be stopped; its slot is lost."""

    message_id: str
    seconds: float


class HandlerNoted(Event, frozen=True, tag="handler-noted"):
    """A handler said how far it has got, or wrote a line to the log of its message."""

    message_id: str
    attempt: int
    progress: str = ""  # JSON
    text: str = ""


class PolicyFailed(Event, frozen=True, tag="policy-failed"):
    """A function of the application that decides something raised; we went on."""

    message_id: str
    text: str


class SuspectsFound(Event, frozen=True, tag="suspects-found"):
    """Deliveries of a lost worker will be run alone, one at a time."""

    lost: int


class BrakeOpened(Event, frozen=True, tag="brake-opened"):
    """Nearly everything fails: fetching stops, and nothing is charged or buried."""

    text: str
    kind: BrakeKind
    cause: str
    version: str = ""  # of the application


class BrakeClosed(Event, frozen=True, tag="brake-closed"):
    """Fetching goes on; `text` says why."""

    seconds: float
    kind: BrakeKind
    held: int = 0  # messages that were given back meanwhile
    text: str = ""


class OutOfReach(Event, frozen=True, tag="out-of-reach"):
    """The broker, office or ledger cannot be reached: nothing is acked until it can."""

    what: str
    text: str
    tries: int


class BackInReach(Event, frozen=True, tag="back-in-reach"):
    """...it can be reached again."""

    what: str
    seconds: float


class ReplyFailed(Event, frozen=True, tag="reply-failed"):
    """A reply could not be sent."""

    message_id: str
    reply_to: str
    text: str


class CopyFailed(Event, frozen=True, tag="copy-failed"):
    """A dead-letter mailbox refused its copy of a letter, which is kept anyway."""

    letter_id: str
    to: str
    text: str


class HeadersIgnored(Event, frozen=True, tag="headers-ignored"):
    """
    A message came with `dlq-` headers that are unsigned or invalid.

    They stay with the message like headers of the user, and have no effect.
    """

    message_id: str
    what: str  # lineage, attempts, letter, max-attempts
    key: str = ""  # that signed a lineage, and is not one of ours


ACTIONS: Final = frozenset({"processed", "replayed", "discarded", "alerted"})
"""The outcomes that a letter handler can report."""


class LetterHandled(Event, frozen=True, tag="letter-handled"):
    """A DLQ consumer's handler has dealt with a letter; `mailbox` is the dead one."""

    letter_id: str
    seconds: float
    age: float
    action: str = "processed"  # processed, replayed, discarded, alerted
    message_id: str = ""
    request_id: str | None = None


class LetterRefused(Event, frozen=True, tag="letter-refused"):
    """A DLQ consumer's handler failed; the letter waits `delay` seconds."""

    letter_id: str
    delay: float
    failure: Failure
    message_id: str = ""
    request_id: str | None = None


class LoopDied(Event, frozen=True, tag="loop-died"):
    """A loop of ours ended by an error of its own and is started again."""

    loop: str
    text: str


class Stalled(Event, frozen=True, tag="stalled"):
    """A loop has not given a sign of life for too long."""

    loop: str
    seconds: float


class ClockJumped(Event, frozen=True, tag="clock-jumped"):
    """The clock that due times are judged by jumped; waits are shortened if need be."""

    seconds: float  # by which it jumped; 0: it was set right before this worker started
    shortened: int = 0  # waits and leases that would have lasted too long
    ahead: float = 0.0  # seconds by which the clock was ahead when those were written


class ItemMoved(Event, frozen=True, tag="item-moved"):
    """An item of the queue server is dead and lies in the dead queue `to` now."""

    item_id: str
    death: str  # attempts, expired, asked
    to: str


class ItemDeleted(Event, frozen=True, tag="item-deleted"):
    """An item is dead and deleted: its queue `mailbox` has no dead queue."""

    item_id: str
    death: str  # attempts, expired, asked
    text: str = ""  # the same in words, for people


class Alerted(Event, frozen=True, tag="alerted"):
    """People were told of alerts."""

    target: str  # webhook, slack, email
    alerts: int


class AlertFailed(Event, frozen=True, tag="alert-failed"):
    """People could not be told of alerts; what still holds is tried again later."""

    target: str
    alerts: int
    text: str


class Anchored(Event, frozen=True, tag="anchored"):
    """The end of the audit was noted outside of the database."""

    target: str  # file, webhook
    seq: int  # of the last entry
    seal: str


class AnchorFailed(Event, frozen=True, tag="anchor-failed"):
    """The end of the audit could not be noted outside; it is tried again later."""

    target: str
    text: str


AnyEvent: TypeAlias = (
    WorkerStarted
    | WorkerStopped
    | Received
    | Succeeded
    | Retried
    | Buried
    | FailedForGood
    | LeaseLost
    | HandlerNoted
    | HandlerStuck
    | PolicyFailed
    | SuspectsFound
    | BrakeOpened
    | BrakeClosed
    | OutOfReach
    | BackInReach
    | ReplyFailed
    | CopyFailed
    | HeadersIgnored
    | LetterHandled
    | LetterRefused
    | LoopDied
    | Stalled
    | ClockJumped
    | ItemMoved
    | ItemDeleted
    | Alerted
    | AlertFailed
    | Anchored
    | AnchorFailed
)
Observer: TypeAlias = Callable[[Event], None]
