"""
All events, as one union.

The runtime emits events and never logs; `observe/` renders them as logs, metrics and traces. A
new event needs a class here and a line in the docs.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from .brake import BrakeKind
from .failure import Failure, Reason


class Event(Struct, frozen=True, kw_only=True):
    """An event of a mailbox."""

    mailbox: str


class WorkerStarted(Event, frozen=True, tag="worker-started"):
    """A worker started to receive."""

    slots: int


class WorkerStopped(Event, frozen=True, tag="worker-stopped"):
    """A worker stopped; `abandoned` deliveries were still running."""

    abandoned: int = 0


class Received(Event, frozen=True, tag="received"):
    """A batch of deliveries was claimed."""

    count: int


class Succeeded(Event, frozen=True, tag="succeeded"):
    """A handler processed a message, which has left its mailbox."""

    message_id: str
    attempt: int
    seconds: float
    fate: str = "handled"


class Retried(Event, frozen=True, tag="retried"):
    """An attempt failed, and the message was released for another one."""

    message_id: str
    attempt: int
    delay: float
    charged: bool
    failure: Failure
    seconds: float = 0.0  # run time of the handler


class Buried(Event, frozen=True, tag="buried"):
    """A message was kept as a dead letter and has left its mailbox."""

    message_id: str
    letter_id: str
    attempt: int
    reason: Reason
    text: str
    failure: Failure
    is_new: bool = True  # False: it returned to its existing letter
    conflict: bool = False  # its message id or key was used before, with another body
    request_id: str | None = None
    consumer: str = ""
    seconds: float = 0.0  # run time of the handler; 0: none ran


class FailedForGood(Event, frozen=True, tag="failed-for-good"):
    """A message was recorded as failed and deleted without a letter, as its policy says."""

    message_id: str
    attempt: int
    text: str
    failure: Failure
    seconds: float = 0.0  # run time of the handler; 0: none ran


class LeaseLost(Event, frozen=True, tag="lease-lost"):
    """A delivery was not settled, because its lease had been lost."""

    message_id: str
    attempt: int


class HandlerStuck(Event, frozen=True, tag="handler-stuck"):
    """A handler exceeded its time limit and cannot be stopped; its slot is lost."""

    message_id: str
    seconds: float


class HandlerNoted(Event, frozen=True, tag="handler-noted"):
    """A handler reported progress, or logged a line for its message."""

    message_id: str
    attempt: int
    progress: str = ""  # JSON
    text: str = ""


class PolicyFailed(Event, frozen=True, tag="policy-failed"):
    """A decision function of the application raised; the worker used the default."""

    message_id: str
    text: str


class SuspectsFound(Event, frozen=True, tag="suspects-found"):
    """Deliveries of a lost worker will run alone, one at a time."""

    lost: int


class BrakeOpened(Event, frozen=True, tag="brake-opened"):
    """Nearly everything fails: the worker stops fetching, and charges or buries nothing."""

    text: str
    kind: BrakeKind
    cause: str
    version: str = ""  # of the application


class BrakeClosed(Event, frozen=True, tag="brake-closed"):
    """The worker fetches again; `text` says why."""

    seconds: float
    kind: BrakeKind
    held: int = 0  # messages that were released meanwhile
    text: str = ""


class OutOfReach(Event, frozen=True, tag="out-of-reach"):
    """The broker, office or ledger is unreachable; nothing is acknowledged until it is back."""

    what: str
    text: str
    tries: int


class BackInReach(Event, frozen=True, tag="back-in-reach"):
    """The broker, office or ledger is reachable again."""

    what: str
    seconds: float


class ReplyFailed(Event, frozen=True, tag="reply-failed"):
    """A reply could not be sent."""

    message_id: str
    reply_to: str
    text: str


class CopyFailed(Event, frozen=True, tag="copy-failed"):
    """A dead-letter mailbox refused the copy of a letter; the letter itself is kept."""

    letter_id: str
    to: str
    text: str


class FilingFailed(Event, frozen=True, tag="filing-failed"):
    """A report of a task queue could not be filed; it is filed later, or lost."""

    message_id: str
    what: str  # death, success
    text: str
    waits: bool  # it is filed later; False: it is lost


class HeadersIgnored(Event, frozen=True, tag="headers-ignored"):
    """
    A message came with `dlq-` headers that are unsigned or invalid.

    They stay with the message like the user's headers, and have no effect.
    """

    message_id: str
    what: str  # lineage, attempts, letter, max-attempts
    key: str = ""  # the unknown key that signed a lineage


ACTIONS: Final = frozenset({"processed", "replayed", "discarded", "alerted"})
"""The outcomes that a letter handler can report."""


class LetterHandled(Event, frozen=True, tag="letter-handled"):
    """A DLQ consumer's handler processed a letter; `mailbox` is the dead-letter mailbox."""

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
    """A loop ended with an error and is restarted."""

    loop: str
    text: str


class Stalled(Event, frozen=True, tag="stalled"):
    """A loop has sent no heartbeat for too long."""

    loop: str
    seconds: float


class ClockJumped(Event, frozen=True, tag="clock-jumped"):
    """The clock that decides due times jumped; waits that became too long are shortened."""

    seconds: float  # of the jump; 0: the clock was corrected before this worker started
    shortened: int = 0  # waits and leases that would have lasted too long
    ahead: float = 0.0  # seconds by which the clock had been ahead


class ItemMoved(Event, frozen=True, tag="item-moved"):
    """A dead item of the queue server was moved to the dead queue `to`."""

    item_id: str
    death: str  # attempts, expired, asked
    to: str


class ItemDeleted(Event, frozen=True, tag="item-deleted"):
    """A dead item was deleted, because its queue `mailbox` has no dead queue."""

    item_id: str
    death: str  # attempts, expired, asked
    text: str = ""  # the death in words, for people


class Alerted(Event, frozen=True, tag="alerted"):
    """Alerts were sent."""

    target: str  # webhook, slack, email
    alerts: int


class AlertFailed(Event, frozen=True, tag="alert-failed"):
    """Alerts could not be sent; those that still apply are retried later."""

    target: str
    alerts: int
    text: str


class Anchored(Event, frozen=True, tag="anchored"):
    """The end of the audit was recorded outside of the database."""

    target: str  # file, webhook
    seq: int  # of the last entry
    seal: str


class AnchorFailed(Event, frozen=True, tag="anchor-failed"):
    """The end of the audit could not be recorded outside; this is retried later."""

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
    | FilingFailed
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
